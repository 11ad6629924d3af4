"""The command line on all ranks of a job, in a folder of its own where a case stands as files: for `operations`.

What it answers is judged as what a `Dynamics` answers. Files that are damaged, and options that are wrong, it has to
refuse in one message, or to take for what they say.
"""

import contextlib
import io
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from mpi4py import MPI

import mpimbs.cli
import random_robots
from mpimbs import Batch, load, simulate
from mpimbs.base.errors import InputError
from mpimbs.base.settings import FORMS
from mpimbs.coupling import COUPLINGS
from mpimbs.model import system_from_text, system_text
from oracles.dense import Array
from oracles.random_systems import choice
from oracles.structured_systems import TIME, Case, Weighted

Found = dict[str, Any]
ROBOTS = {
    "urdf": """<robot name="arm"><link name="base"/><link name="upper"><inertial><origin xyz="0 0 0.2" rpy="0 0.1 0"/>
<mass value="2"/><inertia ixx="0.1" ixy="0" ixz="0" iyy="0.1" iyz="0" izz="0.02"/></inertial></link><link name="lower">
<inertial><mass value="1"/><inertia ixx="0.1" ixy="0" ixz="0" iyy="0.1" iyz="0" izz="0.02"/></inertial></link>
<joint name="shoulder" type="revolute"><parent link="base"/><child link="upper"/><axis xyz="0 1 0"/>
<limit lower="-1" upper="2" effort="10" velocity="3"/><dynamics damping="0.1" friction="0.2"/></joint>
<joint name="elbow" type="continuous"><parent link="upper"/><child link="lower"/><origin xyz="0 0 0.4"/>
<axis xyz="0 1 0"/><mimic joint="shoulder" multiplier="2" offset="0.1"/></joint></robot>""",
    "mjcf": """<mujoco model="arm"><compiler angle="degree"/><default><joint damping="0.1" armature="0.01"/></default>
<worldbody><body name="upper" pos="0 0 1"><joint name="shoulder" axis="0 1 0" range="-60 120" limited="true"/>
<geom type="capsule" fromto="0 0 0 0 0 0.4" size="0.04"/><body name="lower" pos="0 0 0.4" euler="0 30 0">
<joint name="elbow" axis="0 1 0" stiffness="2" springref="10"/>
<inertial pos="0 0 0.2" mass="1" diaginertia="0.1 0.1 0.02"/>
</body></body></worldbody><actuator><position joint="elbow" kp="20"/><motor joint="shoulder" gear="3"/></actuator>
<tendon><fixed name="pull" stiffness="3"><joint joint="shoulder" coef="1"/>
<joint joint="elbow" coef="-0.5"/></fixed></tendon>
<equality><joint joint1="elbow" joint2="shoulder" polycoef="0.1 2 0 0 0"/></equality></mujoco>""",
}
WORDS = ("nan", "inf", "-inf", "1e400", "-1", "0", '"x"', "[]", "true", "1979-05-27", "{}", "9223372036854775808", "")
MODELS = (
    "chain:1", "chain16", "spatial_chain:6", "free_chain:4", "rope:6", "caterpillar:5", "figure", "tree:3:2",
    "random_tree:9:4", "four_bar:2", "four_bar_chain:2", "five_bar", "coupled_loops", "parallelogram", "ring:4",
)  # fmt: skip
OF_RUNS = {
    "integrator": ("dopri5", "dop853", "bs3", "rk4 --dt 1e-3", "rosenbrock", "rosenbrock2", "rosenbrock4", "petsc:bdf"),
    "tol": ("1e-6", "1e-3", "1e-4 --dt 1e-3"),
    "every": ("1e-3", "0.007", "0.01", "10", "1e-12"),
    "projection": ("none", "positions", "velocities", "all"),
    "stabilisation": ("0.01", "1"),
    "sample": ("q", "q,u", "pose", "load,power", "joint_work", "pose:link1", "q:nobody", "energy"),
    "checkpoint-steps": ("1", "5 --checkpoint @/c.h5", "5 --checkpoint-keep 1"),
    "tension": ("auto", "on", "off"),
    "poses": ("", "--loads", "--extremes", "--no-witness", "--force", "--pictures"),
    "loads": ("", "--extremes --poses"),
}
# Commands, of `MODEL` or of the output of a run, `@/out.h5`, with what may be added.
OPTIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "run MODEL --t-end 0.02 -o @/out.h5": OF_RUNS,
    "view @/out.h5 --film @/x.gif --rate 50": {
        "tension": ("",), "follow": ("link1", "world", "nobody"), "size": ("64x48", "64", "0x0"),
        "speed": ("1", "0", "nan"), "copy": ("0",), "force": ("",),
    },
    "plot @/out.h5 -o @/x.png": {"force": ("",), "copy": ("0",)},
    "plot @/out.h5 energy q load:link1 -o @/x.png": {"copy": ("x",)},
    "export @/out.h5 q power -o @/x.csv": {"copy": ("0",), "force": ("",)},
    "export @/out.h5 -o @/x.parquet": {"copy": ("0",)},
    "export @/out.h5 -o @/x.shapes.vtkhdf": {"copy": ("0",)},
    "predict MODEL --seconds 0.001": {
        "ranks": ("2", "2,4,8", "64", "0", "x", "3,3"), "cluster": ("infiniband", "ethernet", "@/model.toml"),
        "json": ("",), "find-schedule": ("",), "leaves": ("bodies", "sweeps"), "output": ("@/x",),
    },
    "bench MODEL --seconds 0.001": {"json": ("",), "batch": ("4", "1", "0", "-3", "17"), "inertia": ("",)},
    "study MODEL --seconds 0.001 -o @/x": {
        "couplings": ("dcae", "dcae,pcg", "nothing", ""), "ranks": ("1", "1,2", "64", "0"),
        "collect": ("@/", "@/absent"), "studies": ("strong", "size,weak", "long"),
        "predict": ("4,16", "0", "x"), "cluster": ("ethernet", "@/model.toml"), "force": ("",),
    },
    "check MODEL": {"accuracy": ("",), "ranks": ("1", "2", "7", "0"), "coordinates": ("",), "json": ("",)},
    "modes MODEL -o @/x.npz": {"picture": ("@/m.png", "@/m.txt", "@/absent/m.png"), "count": ("1", "100", "0")},
    "inverse @/model.toml --state @/asked.npz -o @/x.npz": {"actuated": ("nobody", ""), "time": ("0", "1")},
    "new -o @/x.toml": {"force": ("",)},
    "new --schema -o @/x.json": {"force": ("",)},
}  # fmt: skip
KEYS = {
    "lanes": (1, 2, 4, 8), "tip_ratio": (1, 2), "cuts": (0, 1, 3), "schedule": ("balanced", "serial", "auto"),
    "leaves": ("bodies", "sweeps"), "preconditioner": ("jacobi", "block-jacobi", "lagged", "dcae", "direct"),
    "estimate": ("none", "zero", "first", "second", "fischer"), "rtol": (1e-12, 1e-6), "penalty": (1, 1e6),
}  # fmt: skip


class Ended(NamedTuple):
    """How a command ended on a rank: its exit code, and what it said there."""

    code: Any
    out: str
    err: str


def run_command(words: str, folder: Path, comm: MPI.Comm) -> Ended:
    """Run a command on all ranks, in whose words `@` is the folder; give what it left on this one."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as stop:
        mpimbs.cli.main([word.replace("@", str(folder)) for word in words.split()], comm)
    return Ended(stop.value.code, out.getvalue(), err.getvalue())


class CommandLine:
    """The command line, called by all ranks: `@` in its words is the folder.

    Attributes
    ----------
    folder : Path
        With the model of the case, `@/model.toml`, and its state, `@/state.npz`.
    source : Weighted
        What the seed of the case draws.
    """

    def __init__(self, case: Case, comm: MPI.Comm) -> None:
        self.comm, self.source = comm, Weighted(case.seed + 13 * 10**9)
        self.folder = Path(comm.bcast(tempfile.mkdtemp() if comm.rank == 0 else None))
        self.put("model.toml", system_text(case.system).encode())
        self.state("state.npz", q=case.q, u=case.u, tau=case.tau)
        self.given = {"model.toml", "state.npz"}

    def __enter__(self) -> "CommandLine":
        return self

    def __exit__(self, *_: object) -> None:
        self.comm.Barrier()
        if self.comm.rank == 0:
            shutil.rmtree(self.folder)

    def put(self, name: str, content: bytes) -> None:
        if self.comm.rank == 0:
            (self.folder / name).write_bytes(content)
        self.comm.Barrier()

    def damage(self, name: str) -> None:
        """A file is damaged; what is drawn is rank 0's."""
        if self.comm.rank == 0:
            (self.folder / name).write_bytes(damaged(self.source, (self.folder / name).read_bytes()))
        self.comm.Barrier()

    def state(self, name: str, **arrays: Array | None) -> None:
        """A file of arrays, which rank 0 has."""
        if self.comm.rank == 0:
            np.savez(self.folder / name, **arrays)  # type: ignore[arg-type]
        self.comm.Barrier()

    def arrays(self, name: str, *wanted: str) -> dict[str, Array | None]:
        """Some of a file of arrays, which have to be there; None on all ranks but 0."""
        if self.comm.rank:
            return dict.fromkeys(wanted)
        with np.load(self.folder / name) as file:
            return {array: file[array] for array in wanted}

    def ended(self, words: str) -> Ended:
        """Run a command, however it ends."""
        return self.comm.bcast(run_command(words, self.folder, self.comm))

    def __call__(self, words: str) -> str:
        """What a command says.

        Raises
        ------
        InputError
            It is refused.
        RuntimeError
            It ends in another way than refusals do.
        """
        ended = self.ended(words)
        if ended.code == 0:
            return ended.out
        if wrong := bad_end(ended):
            raise RuntimeError(f"{words}: {wrong}")
        raise InputError(ended.err.replace(str(self.folder), "."))


def bad_end(ended: Ended) -> str:
    """What is wrong with how a command has ended, if anything: refusals are one message."""
    said = [
        line
        for line in ended.err.splitlines()
        if line.strip() and not re.match("(mpimbs: )?(note|warning|--coupling auto):", line)
    ]
    if "Traceback" in ended.err + ended.out:
        return f"a traceback: {(ended.err + ended.out).splitlines()[-1]}"
    if ended.code not in (0, 1, 2) or (ended.code and not any(line.startswith("mpimbs: ") for line in said)):
        return f"exit code {ended.code}, and {ended.err!r}"
    return ""


def damaged(source: Weighted, content: bytes, between: str = "") -> bytes:
    """A file with a fault as disks, editors and people make them; of a text with what is `between` its lines."""
    where = source.index(max(len(content), 1))
    if source.chance(0.2):
        return content[:where]
    if not between or source.chance(0.2):
        return content[:where] + bytes(source.index(256) for _ in range(1 + source.index(8))) + content[where + 1 :]
    lines = content.decode().split(between)
    k, way = source.index(len(lines)), source.index(6)
    if way == 0:
        del lines[k]
    elif way == 1:
        lines.insert(source.index(len(lines)), lines[k])
    else:
        value = r"-?\d[\d.e+-]*" + ("" if between == ">" else r"|\"[^\"]*\"")
        values = [(k, found) for k, line in enumerate(lines) for found in re.finditer(value, line)]
        k, found = choice(source, values)
        word = choice(source, WORDS) if way < 5 else choice(source, values)[1][0]
        word = word.strip('"') if between == ">" else word
        lines[k] = lines[k][: found.start()] + word + lines[k][found.end() :]
    return between.join(lines).encode()


# --- what is asked ---


def answer_accelerations(case: Case, line: CommandLine) -> Found:
    source = line.source
    n, comm, coupling = case.system.n_bodies, line.comm, {"coupling": "dcae"}
    if source.chance(0.5) and n > comm.size:
        cuts = min(n - 1, comm.size - 1 + source.index(4))
        coupling = {"coupling": choice(source, ("dcae", "pcg")), "cuts": cuts}
    name, *keys = (f"{'' if key == 'coupling' else f'{key}='}{value}" for key, value in coupling.items())
    options = f"--coupling {','.join((name, *keys))}{' --loads' if source.chance(0.5) else ''}"
    line(f"acceleration @/model.toml --state @/state.npz --time {TIME} -o @/a.npz {options}")
    return {**line.arrays("a.npz", "udot"), "settings": coupling}


def answer_matrices(case: Case, line: CommandLine) -> Found:
    line.state("q.npz", q=case.q)
    form = choice(line.source, FORMS)
    line(f"inertia @/model.toml --state @/q.npz --inverse --form {form} -o @/m.npz")
    found = line.arrays("m.npz", "M", "M_inverse")
    return {"M": found["M"], "M^-1": found["M_inverse"]}


def answer_actuation(case: Case, line: CommandLine) -> Found:
    line(f"acceleration @/model.toml --state @/state.npz --time {TIME} -o @/a.npz")
    found = line.arrays("a.npz", "udot")
    line.state("asked.npz", q=case.q, u=case.u, **found)
    line(f"inverse @/model.toml --state @/asked.npz --time {TIME} -o @/tau.npz")
    return found | line.arrays("tau.npz", "tau")


def answer_equilibrium(case: Case, line: CommandLine) -> Found:
    line.state("q.npz", q=case.q)
    said = line("settle @/model.toml --state @/q.npz -o @/rest.npz")
    found = line.arrays("rest.npz", "q")
    line.state("rest_q.npz", **found)
    line("modes @/model.toml --state @/rest_q.npz -k 3 -o @/modes.npz")
    left = re.search(r"acceleration left (\S+)", said)
    assert left is not None, said
    lowest = line.arrays("modes.npz", "squares", "shapes", "residuals")
    return found | {"left": float(left[1]), "modes": tuple(lowest.values())}


def answer_motion(case: Case, line: CommandLine) -> Found:
    """A run, or one of copies, and the same by Python; its output exported, drawn, and found complete."""
    source, t_end = line.source, 1e-3
    line.state("begin.npz", q=case.q, u=case.u)
    copies = columns_of(case, line.comm.size + source.index(5)) if source.chance(0.3) else None
    begin = "--state @/begin.npz"
    if copies is not None:
        begin = "--parameters @/copies.csv"
        rows = [",".join(map(repr, row)) for row in zip(*(values.tolist() for values in copies.values()), strict=True)]
        line.put("copies.csv", "\n".join((",".join(copies), *rows)).encode())
    fixed = source.chance(0.5)
    given = {"integrator": "rk4", "dt": t_end / 8} if fixed else {"integrator": "dopri5", "rtol": 1e-6, "atol": 1e-6}
    given |= {"t_end": t_end, "every": t_end / 4, "poses": source.chance(0.5)}
    words = " ".join(
        f"--{k.replace('_', '-')}{'' if v is True else f' {v}'}" for k, v in given.items() if v is not False
    )
    line(f"run @/model.toml {begin} {words} --checkpoint-steps 1 -o @/out.h5")
    again: Any = system_from_text(system_text(case.system), "model.toml")
    if copies is None:
        right: Any = simulate(again, comm=line.comm, state=(case.q, case.u), **given)
    else:
        right = Batch.of_parameters(again, copies, line.comm).simulate(**given)
    line("export @/out.h5 -o @/out.npz")
    one = "" if copies is None else " --copy 0"
    ways = ("plot @/out.h5 energy", *(f"export @/out.h5{one} -o @/out.{form}" for form in ("csv", "vtkhdf")))
    line(choice(source, ways))
    if line.comm.bcast((line.folder / "out.checkpoint.h5").exists()):  # not where a step was enough
        assert "complete" in line("restart @/out.h5")
    if line.comm.rank:
        return {}
    files = {"t": "time", "q": "q", "u": "u", "energy": "energy"}
    written, exported = load(line.folder / "out.h5"), line.arrays("out.npz", *files.values())
    return {name: (getattr(written, name), exported[there], getattr(right, name)) for name, there in files.items()}


def columns_of(case: Case, copies: int) -> dict[str, Array]:
    """What copies have of their own: the state of the case, with shares of its speeds, and a mass."""
    shares, bodies = np.linspace(1.0, 0.5, copies), tuple(case.system.contents.bodies())
    columns = {f"{bodies[0].name}.mass": bodies[0].mass * (2.0 - shares)}
    for kind, offsets, values in zip("qu", case.system.contents.offsets(), (case.q, case.u), strict=True):
        for body, first, end in zip(bodies, offsets[:-1], offsets[1:], strict=True):
            for k in range(first, end):
                key = f"{kind}:{body.name}" + (f"[{k - first}]" if end > first + 1 else "")
                columns[key] = values[k] * (shares if kind == "u" else np.ones(copies))
    return columns


def answer_copy(case: Case, line: CommandLine) -> Found:
    line("convert @/model.toml -o @/again.toml")
    line("check @/again.toml")
    texts = (
        {(line.folder / name).read_text() for name in ("model.toml", "again.toml")} if line.comm.rank == 0 else set()
    )
    return {"wrong": "another system is written" if len(texts) > 1 else ""}


def answer_robot(case: Case, line: CommandLine) -> Found:
    """A robot's file gives what MuJoCo or Pinocchio compute, and the same bits once it is converted."""
    kind = choice(line.source, ("mjcf", "urdf"))
    place = ("", ":free", "", ":free=0.1,-2,1,0.6,0,0.8,0")[case.seed % 4]
    robot = "@/robot.xml" if kind == "mjcf" else f"@/robot.urdf{place}"
    line.put(robot[2:].partition(":")[0], getattr(random_robots, kind)(case.seed).encode())
    line(f"convert {robot} -o @/robot.toml")
    runs = line.source.chance(0.3)
    for words, name in ((robot, "own"), ("@/robot.toml", "converted")):
        if runs:
            line(f"run {words} --t-end 0.01 --tol 1e-6 -o @/{name}.h5")
            line(f"export @/{name}.h5 -o @/{name}.npz")
        else:
            line(f"acceleration {words} -o @/{name}.npz")
    wanted = ("q", "u", "energy") if runs else ("udot",)
    own, converted = (line.arrays(f"{name}.npz", *wanted) for name in ("own", "converted"))
    found, why = random_robots.compared(kind, case.seed, line.folder) if line.comm.rank == 0 else ("", "")
    if found == "wrong":
        return {"wrong": f"{robot}: {why}"}
    return {key: (converted[key], own[key]) for key in wanted}


def answer_damage(case: Case, line: CommandLine) -> Found:
    """A damaged file is refused in one message, or taken for what it says."""
    source = line.source
    way = choice(source, ("model", "model", "state", "table", "robot", "output", "output"))
    words = "acceleration @/model.toml --state @/state.npz -o @/x.npz"
    if way == "model":
        line.put("model.toml", damaged(source, system_text(case.system).encode(), "\n"))
    elif way == "state":
        line.damage("state.npz")
    elif way == "table":
        rows = "".join(f"copy{k}, {1 + k / 10}, {k / 5}\n" for k in range(4))
        line.put("table.csv", damaged(source, f"name, link1.mass, q:link1\n{rows}".encode(), "\n"))
        words = "run chain:2 --t-end 0.001 --parameters @/table.csv -o @/x.h5"
    elif way == "robot":
        form = choice(source, ("urdf", "mjcf"))
        line.put("robot." + form.replace("mjcf", "xml"), damaged(source, ROBOTS[form].encode(), ">"))
        words = f"{choice(source, ('acceleration', 'convert'))} @/robot.{form.replace('mjcf', 'xml')} -o @/x."
        words += "npz" if words.startswith("acc") else "toml"
    else:
        line("run chain:3 --t-end 0.1 --every 0.02 --checkpoint-steps 2 -o @/out.h5")
        line.damage(choice(source, ("out.h5", "out.h5", "out.checkpoint.h5")))
        words = choice(
            source, ("plot @/out.h5", "export @/out.h5 -o @/x.npz", "restart @/out.h5", "restart @/out.checkpoint.h5")
        )
    wrong = bad_end(line.ended(words))
    return {"wrong": wrong and f"{words}, of a damaged {way}: {wrong}"}


def answer_options(case: Case, line: CommandLine) -> Found:
    """Any options of a command together do what they say, or are refused in one message; runs are complete."""
    source = line.source
    command = choice(source, tuple(OPTIONS)) if source.chance(0.6) else next(iter(OPTIONS))
    words, runs = command.replace("MODEL", choice(source, MODELS)), command.startswith("run")
    for name, values in OPTIONS[command].items():
        if source.chance(0.25 if runs else 0.4):
            words += f" --{name} {choice(source, values)}"
    if command.startswith(("run", "bench", "predict")) and source.chance(0.5):
        keys = [f"{key}={choice(source, values)}" for key, values in KEYS.items() if source.chance(0.1)]
        words += f" --coupling {','.join((choice(source, COUPLINGS), *keys))}"
    if "@/asked.npz" in words:
        line.state("asked.npz", q=case.q, u=case.u, udot=0.0 * case.u)
    if "@/out.h5" in words and not runs:
        line(f"run {choice(source, ('chain:3', 'four_bar:1', 'rope:3', 'figure'))} --t-end 0.02 --loads -o @/out.h5")
    ended = line.ended(words)
    wrong = bad_end(ended)
    if not wrong and ended.code == 0 and line.comm.rank == 0:
        if runs:
            result = load(line.folder / "out.h5")
            wrong = (
                "" if result.status == "complete" and result.t[-1] == 0.02 else f"{result.status}, t = {result.t[-1]}"
            )
        elif written := re.search(r"(?:-o|--film) @/(\S+)", words):
            wrong = "" if (line.folder / written[1]).exists() else f"{written[1]} is not there"
        else:
            wrong = "" if ended.out.strip() else "nothing is said"
    return {"wrong": wrong and f"{words}: {wrong}"}


def answer_mistake(case: Case, line: CommandLine) -> Found:
    """What is wrong in a command is told, and nothing is written."""
    words = mistaken(line.source, case)
    ended = line.ended(words)
    wrong = bad_end(ended) or ("" if ended.code == 2 else f"exit code {ended.code}")
    if not wrong and line.comm.rank == 0 and (left := {path.name for path in line.folder.iterdir()} - line.given):
        wrong = f"it leaves {left}"
    return {"wrong": wrong and f"{words}: {wrong}"}


def mistaken(source: Weighted, case: Case) -> str:
    """A command with something in it that is wrong."""
    n = case.system.n_bodies
    commands = [
        "acceleration @/model.toml -o @/x.npz --coupling nothing",
        f"acceleration @/model.toml -o @/x.npz --coupling pcg,cuts={n + source.index(3)}",
        "acceleration @/model.toml -o @/x.npz --coupling pcg,cut=3",
        "acceleration @/model.toml -o @/x.txt",
        "acceleration @/model.toml -o @/absent/x.npz",
        "acceleration @/model.toml --state @/absent.npz -o @/x.npz",
        "acceleration @/model.toml --state @/model.toml -o @/x.npz",
        "acceleration @/state.npz -o @/x.npz",
        "acceleration @/model.toml -o @/state.npz",
        "acceleration @/model.toml -o @/x.npz --time nan",
        "acceleration @/model.toml -o @/x.npz --forces absent:add",
        "inverse @/model.toml --state @/state.npz -o @/x.npz",
        "inertia @/model.toml -o @/x.npz --form square",
        "modes @/model.toml -o @/x.npz -k 0",
        "run @/model.toml -o @/x.h5 --t-end -1",
        "run @/model.toml -o @/x.h5 --t-end 1 --every 0",
        "run @/model.toml -o @/x.h5 --t-end 1 --rtol nan",
        "run @/model.toml -o @/x.h5 --t-end 1 --integrator euler",
        "run @/model.toml -o @/x.h5 --t-end 1 --dt 0.1 --rtol 1e-3 --parameters @/model.toml",
        "run @/model.toml -o @/x.h5 --t-end 1 --parameters @/absent.csv",
        "restart @/model.toml",
        "restart @/absent.h5",
        "plot @/model.toml",
        "export @/state.npz -o @/x.csv",
        "convert @/model.toml -o @/model.toml",
        "convert @/model.toml -o @/x.toml --free",
        "check @/absent.toml",
        f"check @/model.toml --ranks {10**9}",
        "check chain:-3",
        "check chain:x",
        "predict @/model.toml --ranks 0",
        "bench @/model.toml --ranks 2",
        "settle @/model.toml",
        "acceleration",
        "accelerations @/model.toml -o @/x.npz",
    ]
    return str(choice(source, commands))
