"""Studies of speed: what is measured, what is fitted and advised, which files are written; the choice of a coupling."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib import image
from mpi4py import MPI

from mpimbs.base.errors import InputError
from mpimbs.bench.cost_fit import ButterflyModel
from mpimbs.bench.speedup import Plan, cores_of, default_couplings, default_ranks, measure_plan, scaled
from mpimbs.bench.study import predictor, study, study_lines
from mpimbs.bench.verdict import add_speedups, advice, choose_coupling, fits
from mpimbs.model import Joint, System, system_from
from mpimbs.model.summary import validate


def crane() -> System:
    """A body of its own, then links of two kinds."""
    system = System("crane", gravity=(0, 0, -9.81))
    hinge = Joint(type="revolute", axis=(0, 0, 1))
    system.add(name="boom", parent="world", mass=10, inertia=(1, 2, 2, 0, 0, 0), joint=hinge)
    ball = Joint(type="spherical", position=(0, 0, -1))
    links = [
        boom.model_copy(update={"name": name, "parent": None, "joint": joint})
        for boom in system.contents.bodies()
        for name, joint in (("link", ball), ("pin", hinge))
    ]
    system.repeat(5, *links)
    return system


@pytest.mark.parametrize(("bodies", "made"), [(11, 11), (31, 31), (4, 5), (1, 3)])
def test_a_chain_of_another_length(bodies: int, made: int) -> None:
    """The repetition comes more or less often, with the same joints; what is beside it stays. Files work too."""
    system = crane()
    other = scaled(system.contents, bodies)
    assert other.n_bodies == made and other.is_chain
    types = system.contents.joint_patterns(0, 3)
    assert list(other.joint_patterns(0, made)) == [types[0], *np.tile(types[1:], made // 2)]
    validate(other)


@pytest.mark.parametrize("bodies", [32, 64, 1024])
def test_a_chain_of_several_repetitions(bodies: int) -> None:
    """Links that begin otherwise are a repetition of their own: each keeps its share."""
    other = scaled(system_from("chain:256").contents, bodies)
    assert [segment.count for segment in other.segments] == [1, 3 * bodies // 4 - 1, bodies // 4]
    validate(other)


def test_no_point_is_told_twice(comm: MPI.Comm) -> None:
    """Of a chain that can't be as short as the study asks."""
    rows, _ = measure_plan(system_from("chain:3").contents, Plan(("dcae",), (1,), ("size",), 1e-3), comm)
    assert [row["n"] for row in rows] == [3, 6, 12]


def test_points_of_a_plan() -> None:
    system = system_from("chain:16")
    points = list(Plan(("dcae",), (1, 2, 4)).points(system.contents, cores=2))
    assert [p[2:] for p in points if p[0] == "strong"] == [(1, 16), (2, 16), (4, 16)]
    assert [p[2:] for p in points if p[0] == "weak"] == [(1, 16), (2, 32)], "within the cores"
    sizes = [p[2:] for p in points if p[0] == "size"]
    assert sizes == [(p, n) for p in (1, 2) for n in (2, 4, 8, 16, 32, 64)]
    assert default_ranks(6) == (1, 2, 4, 6)
    assert default_couplings(system_from("figure").contents) == ("dcae", "pcg")
    assert "dca" not in default_couplings(system_from("chain:20000").contents)
    for plan, message in (
        (Plan(("dcea",), (1,)), "unknown coupling 'dcea'"),
        (Plan(("dcae",), (0, 1)), "ranks from 1 on"),
        (Plan(("dcae",), (1,), ("long",)), "unknown study 'long'"),
    ):
        with pytest.raises(InputError, match=message):
            plan.checked(system.contents)
    with pytest.raises(InputError, match="0 ranks: a prediction is for 1 rank at least"):
        predictor((4, 0), "infiniband", MPI.COMM_SELF)


def test_what_is_possible_is_studied() -> None:
    """Trees, and chains in which nothing is repeated, have no other lengths; what else was asked for is done."""
    chain, tree = system_from("chain:4"), system_from("figure")
    plan = Plan(("dcae",), (1, 2))
    assert plan.checked(chain.contents) == (plan, [])
    possible, (note,) = plan.checked(tree.contents)
    assert possible == plan._replace(studies=("strong",))
    assert note.startswith("weak, size: system 'human figure' has no other lengths") and "[[repeat]]" in note
    assert possible.checked(tree.contents) == (possible, []), "nothing is left out of what was not asked for"
    with pytest.raises(InputError, match=r"no other lengths.*leave `studies='weak,size'` out"):
        Plan(("dcae",), (1,), ("size",)).checked(tree.contents)


def test_a_study_of_a_tree(comm: MPI.Comm, tmp_path: Path) -> None:
    """On all ranks that there are; everything that was left out is said, predicted ranks too."""
    folder = comm.bcast(tmp_path) / "study"
    system = system_from("tree:2:2")
    beyond = predictor((1, 64), "infiniband", comm)
    table = study(system.contents, "tree:2:2", Plan(("dcae",), (1, 2), seconds=0.0), folder, comm, predictor=beyond)
    measured = [(1, False), (2, False)][: comm.size]
    assert [(r["ranks"], r["predicted"]) for r in table["points"]] == [*measured, (1, True)]
    refused = ["weak, size", "dcae on 64 ranks, predicted"]
    assert [note.split(": ")[0] for note in table["notes"]] == refused
    assert table["evaluations_per_simulated_second"] > 10
    lines = study_lines(table)
    assert all(f"left out: {note}" in lines for note in table["notes"])
    unfit = f"any {len(measured)} point(s)"
    assert any(line.startswith("dcae: no fit of t = C0 + ") and unfit in line for line in lines)
    rows, notes = beyond(system.contents, ("pcg",), comm)
    assert not rows and notes[-1].startswith("pcg on any ranks, predicted: coupling 'pcg' is not predicted")


def row(coupling: str, ranks: int, us: float, **changes: Any) -> dict[str, Any]:
    given = {"study": "strong", "predicted": False, "oversubscribed": False, "n": 100, "dof": 100, "cuts": ranks - 1}
    return {**given, "coupling": coupling, "ranks": ranks, "us_min": us, **changes}


def test_verdict() -> None:
    """Oversubscribed and predicted times are neither fitted nor advised; predicted ones are said beside."""
    rows = [row("dcae", 1, 10.0), row("dcae", 2, 6.0), row("dcae", 4, 1.0, oversubscribed=True), row("pcg", 2, 8.0)]
    rows.append(row("dcae", 64, 2.0, predicted=True, cluster="big"))
    add_speedups(rows)
    assert [r["speedup"] for r in rows] == pytest.approx([1, 10 / 6, 10, 10 / 8, 5])
    assert rows[1]["efficiency"] == pytest.approx(10 / 12)
    found = fits(rows, 100)
    assert found["dcae"]["points"] == 2 and found["dcae"]["coefficients"] is None, "two points on any such curve"
    line = advice(rows, 1000.0, 1e-8)
    assert line.startswith("choose --coupling dcae on 2 rank(s): 6 us an evaluation, 0.006 s per simulated second")
    assert "predicted for the cluster 'big': dcae on 64 ranks, 2 us, 0.002 s" in line
    assert "no advice" in advice([row("dcae", 4, 1.0, oversubscribed=True)], None, 1e-8)


def test_a_fit_says_how_good_it_is() -> None:
    """What differs from its model by more than a quarter is called poor; one number of ranks tells no best one."""
    model = ButterflyModel(1e-6, 2e-8, 3e-6)
    exact = [row("dcae", p, 1e6 * model(n, p), n=n) for n in (100, 1000) for p in (1, 2)]
    (good,) = fits(exact, 1000).values()
    assert good["points"] == 4 and good["largest_relative_error"] < 1e-9 and not good["poor"]
    assert good["best_ranks"] == model.best_ranks(1000)
    assert fits(exact * 2, 1000)["dcae"]["points"] == 4, "studies have points in common"
    assert fits([r for r in exact if r["ranks"] == 1], 1000)["dcae"]["coefficients"] is None
    (alone,) = fits([row("dcae", 1, 1.0 + 0.02 * n, n=n) for n in (100, 500, 1000)], 1000).values()
    assert alone["best_ranks"] is None and alone["largest_relative_error"] < 1e-9
    disturbed = [{**r, "us_min": r["us_min"] * (1 + 2 * (k % 3 == 0))} for k, r in enumerate(exact)]
    (poor,) = fits(disturbed, 1000).values()
    assert poor["poor"] and poor["largest_relative_error"] > 0.25
    table = {"points": [], "fits": {"a": good, "b": poor}, "notes": [], "disturbed": "", "advice": "none"}
    a, b = (line for line in study_lines(table) if "measured points" in line)
    assert "POOR" in b and "POOR" not in a and "least" not in a, "the advice names the best number of ranks"


def test_a_study(comm: MPI.Comm, tmp_path: Path) -> None:
    """Every point that there are ranks for is measured once, written and drawn; a study is not overwritten."""
    folder = comm.bcast(tmp_path) / "study"
    system = system_from("chain:8")
    plan = Plan(("dcae", "dca"), (1, 2, 64), seconds=0.0)
    table = study(system.contents, "chain:8", plan, folder, comm)
    ranks = [1, 2][: comm.size]
    strong = [r for r in table["points"] if r["study"] == "strong"]
    assert [(r["coupling"], r["ranks"]) for r in strong] == [(c, p) for c in ("dcae", "dca") for p in ranks]
    assert {r["n"] for r in table["points"] if r["study"] == "weak"} == {8 * p for p in ranks if p <= cores_of(comm)}
    assert all(r["oversubscribed"] == (r["ranks"] > cores_of(comm)) and not r["predicted"] for r in table["points"])
    assert table["evaluations_per_simulated_second"] > 10 and set(table["fits"]) == {"dcae", "dca"}
    assert {"versions", "machine", "settings", "command", "date", "model_text"} <= table.keys()
    if comm.rank == 0:
        assert json.loads((folder / "study.json").read_text())["points"] == table["points"]
        lines = (folder / "study.tsv").read_text().splitlines()
        assert len(lines) == 1 + len(table["points"]) and len({line.count("\t") for line in lines}) == 1
        for name in ("strong", "speedup", "weak", "size"):
            assert image.imread(folder / f"study_{name}.png")[..., :3].std() > 0.02, f"{name} is blank"
        assert study_lines(table)[-1] == table["advice"] and "choose --coupling" in table["advice"]
    with pytest.raises(InputError, match=r"study.json: exists.*`force=True`"):
        study(system.contents, "chain:8", plan, folder, comm)


def test_a_collected_study(comm: MPI.Comm, tmp_path: Path) -> None:
    """Measurements of jobs on a cluster; those of another model are refused, as are folders without any."""
    folder = comm.bcast(tmp_path)
    system = system_from("chain:8")
    one = {"system": system.name, "coupling": "dcae", "n": 8, "dof": 8, "cuts": 0, "lanes": 1, "us_median": 9.0}
    if comm.rank == 0:
        for ranks, us in ((1, 8.0), (16, 2.0)):
            (folder / f"dcae-{ranks}.json").write_text(json.dumps({**one, "ranks": ranks, "us_min": us}))
        (folder / "notes.json").write_text('["not a measurement"]')
    comm.Barrier()
    plan = Plan(("dcae",), (1,), ("strong",))
    table = study(system.contents, "chain:8", plan, folder / "out", comm, collected=folder)
    assert [(r["ranks"], r["speedup"]) for r in table["points"]] == [(1, 1.0), (16, 4.0)]
    assert "on 16 rank(s): 2 us" in table["advice"]
    with pytest.raises(InputError, match=r"dcae-1\.json' was measured for 'chain of 8"):
        study(system_from("chain:9").contents, "chain:9", plan, folder / "other", comm, collected=folder)
    with pytest.raises(InputError, match="no measurement in"):
        study(system.contents, "chain:8", plan, folder / "third", comm, collected=folder / "out")


def test_the_choice_of_a_coupling(comm: MPI.Comm) -> None:
    """One of those that solve the system, the same on all ranks, and the times of all; long chains aren't assembled."""
    found = choose_coupling(system_from("chain:12").contents, comm)
    assert comm.allgather(found) == [found] * comm.size
    if comm.size == 1:
        assert found.coupling == "dcae" and "nothing to join" in found.why
        cut = choose_coupling(system_from("chain:12").contents, comm, cuts=3)
        assert cut.coupling in ("dcae", "pcg") and "dca refused" in cut.why, "it takes no cuts: the command would fail"
    else:
        others = {"dcae", "pcg", "dca", "dca-terminal"} - {found.coupling}
        assert all(name in found.why for name in others) and "measured" in found.why
        assert "dca loses digits" in choose_coupling(system_from("chain:1100").contents, comm).why
        tree = choose_coupling(system_from("figure").contents, comm)
        assert tree.coupling in ("dcae", "pcg") and "dca refused" in tree.why  # by times, beside other work by chance
