"""Motions shown: what is drawn of a system, in a browser and in films, each against the other."""

import contextlib
import io
import sys
import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import pytest
from matplotlib import image
from mpi4py import MPI
from PIL import Image, ImageSequence
from scipy.ndimage import binary_dilation

from mpimbs import InputError, Simulation, System, simulate
from mpimbs.cli import main
from mpimbs.model import system_from
from mpimbs.view.film import Film
from mpimbs.view.page import NOBODY, RATE, Page
from mpimbs.view.recording import Recording
from mpimbs.view.scene import Scene
from oracles.random_systems import Seeded, choice, random_system
from run.event_systems import varied
from view.browser import browser

SIZE = 640, 420
OPEN_AND_CLOSED = (
    "chain:1", "chain16", "free_chain:4", "rope:40", "caterpillar:5", "figure", "tree:3:2", "four_bar:2", "five_bar",
    "coupled_loops", "ring:4",
)  # fmt: skip
CONTROLS = "play", "frames", "loads as arrows", "tension as color"


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four links that fall, with loads."""
    path = tmp_path_factory.mktemp("view") / "out.h5"
    simulate("chain:4", 1.0, output=path, every=0.05, loads=True)
    return path


def shown() -> System:
    """Bodies with shapes of all kinds, and two without."""
    system = System("shapes")
    inertia = (1, 1, 1, 0, 0, 0)
    for k, shape in enumerate(
        (
            {"kind": "box", "size": (1, 2, 3), "position": (1, 0, 0), "color": (1, 0, 0, 1)},
            {"kind": "sphere", "size": 0.5},
            {"kind": "capsule", "size": (0.1, 2.0), "rotation": (np.sqrt(0.5), 0, np.sqrt(0.5), 0)},
            {"kind": "cylinder", "size": (0.2, 1.0)},
            {"kind": "mesh", "file": "none.stl"},
        )
    ):
        joint = {"type": "revolute", "axis": (0, 0, 1), "position": (0, 0, 1)}
        system.add(name=f"b{k}", mass=1, inertia=inertia, center_of_mass=(0, 0, 0.5), joint=joint, geometry=(shape,))
    return system


def test_shapes_stand_where_their_bodies_are() -> None:
    scene = Scene(shown().contents)
    assert scene.missing == ["none.stl"]
    found = {k: (batch, np.flatnonzero(batch.bodies == k)[0]) for batch in scene.batches for k in batch.bodies}
    turn = np.array([np.cos(0.3), 0.0, 0.0, np.sin(0.3)])  # about z by 0.6
    poses = np.tile(np.hstack([[1.0, 2.0, 3.0], turn]), (5, 1))
    extents = {0: (1, 2, 3), 1: (1, 1, 1), 2: (2.2, 0.2, 0.2), 3: (0.4, 0.4, 1), 4: (0, 0, 1)}
    for k, (batch, row) in found.items():
        positions, quaternions = batch.placed(poses)
        w, x, y, z = quaternions[row]
        turned = np.array(
            [
                [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
                [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
                [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
            ]
        )
        world = (batch.scale[row] * batch.surface.vertices) @ turned.T + positions[row] - [1.0, 2.0, 3.0]
        c, s = np.cos(0.6), np.sin(0.6)
        own = world @ np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]])  # back into the body's frame
        size = own.max(axis=0) - own.min(axis=0)
        if k < 4:
            assert np.allclose(size, extents[k], rtol=0.03), k
        center = 0.5 * (own.max(axis=0) + own.min(axis=0))
        assert np.allclose(center, (1, 0, 0) if k == 0 else (0, 0, 0.5) if k == 4 else 0.0, atol=0.03), k
    assert found[0][0].color[found[0][1]].tolist() == [255, 0, 0]


def test_a_motion_through_events_and_of_some_bodies(tmp_path: Path) -> None:
    simulate(varied(), 0.4, output=tmp_path / "e.h5", every=0.05)
    assert len(Recording(tmp_path / "e.h5").t) == 9
    simulate("chain:4", 0.1, output=tmp_path / "some.h5", sample="pose:link2,load:link2")
    recording = Recording(tmp_path / "some.h5")
    assert recording.seen().tolist() == [1]
    Film(recording, tension=True).draw(0.05)
    simulate("chain:4", 0.1, output=tmp_path / "none.h5", sample="u")
    with pytest.raises(InputError, match="holds neither poses nor all of q"):
        Recording(tmp_path / "none.h5")


def ink(picture: Any) -> npt.NDArray[np.bool_]:
    """Which dots are colored."""
    values = np.asarray(picture, float)[..., :3]
    return values.max(axis=-1) - values.min(axis=-1) > 0.08 * max(1.0, values.max())


def drawn(film: Film, t: float) -> npt.NDArray[np.bool_]:
    film.draw(t)
    file = io.BytesIO()
    film.figure.savefig(file, dpi=100)
    file.seek(0)
    return ink(image.imread(file))


def test_a_film(output: Path, tmp_path: Path) -> None:
    film = Film(Recording(output), (320, 240), tension=True)
    (tmp_path / "x.part.gif").write_bytes(b"precious")
    assert film.write(tmp_path / "x.gif", rate=10) == 11
    assert (tmp_path / "x.part.gif").read_bytes() == b"precious"
    (tmp_path / "x.part.gif").unlink()
    with Image.open(tmp_path / "x.gif") as file:
        frames = [np.asarray(frame.convert("RGB")) for frame in ImageSequence.Iterator(file)]
    assert len(frames) == 11 and frames[0].shape == (240, 320, 3)
    assert 0.002 < ink(frames[0]).mean() < 0.5 and (ink(frames[0]) != ink(frames[5])).mean() > 0.002
    with pytest.raises(InputError, match=r"x.gif: exists"):
        film.write(tmp_path / "x.gif", rate=10)
    with pytest.raises(InputError, match="are more than 3000"):
        film.write(tmp_path / "y.gif", speed=1e-4)
    assert not (tmp_path / "y.gif").exists() and not list(tmp_path.glob("*.part*"))


def test_a_film_in_mp4(output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    film = Film(Recording(output), (320, 240), follow="link4")
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match=r"an .mp4 needs ffmpeg: pip install 'mpimbs\[view\]'"):
        film.write(tmp_path / "x.mp4")
    monkeypatch.undo()
    ffmpeg = pytest.importorskip("imageio_ffmpeg", reason="needs imageio-ffmpeg")
    film.write(tmp_path / "x.mp4", rate=10)
    frames = ffmpeg.read_frames(str(tmp_path / "x.mp4"))
    told = next(frames)
    assert told["size"] == (320, 240) and len(list(frames)) == 11


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("-o x.avi", "x.avi: a film is a .gif or .mp4 file"),
        ("--film x.gif --size big", "--size big: give width and height in dots"),
        ("--film x.gif --follow lnk4", "unknown body 'lnk4'; did you mean 'link4'"),
        ("--film x.gif --speed 0", "give a positive speed"),
    ],
)
def test_what_makes_no_film(
    output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, options: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["view", str(output), *options.split()], MPI.COMM_SELF)
    assert ended.value.code == 2 and words in capsys.readouterr().err


def test_what_is_no_output(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w"):
        pass
    with pytest.raises(InputError, match="is no output file of mpimbs"):
        Recording(tmp_path / "x.h5")


def test_without_viser(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "viser", None)
    with pytest.raises(InputError, match=r"the viewer needs viser: pip install 'mpimbs\[view\]'"):
        Page(Recording(output))


def test_ten_thousand_bodies_at_thirty_pictures_a_second(tmp_path: Path) -> None:
    """On the server: what a picture takes of its process, with nobody looking."""
    pytest.importorskip("viser")
    simulate("rope:10000", 1e-3, output=tmp_path / "out.h5", every=1e-3, dt=1e-3, integrator="petsc:euler")
    page, spent = Page(Recording(tmp_path / "out.h5"), port=18280), []
    try:
        for k in range(8):
            page.time, began = 1e-4 * k, time.process_time()
            page.advance(0.0)
            spent.append(time.process_time() - began)
    finally:
        page.close()
    assert min(spent[1:]) < 1.0 / RATE


def opened(found: Any, page: Page, size: tuple[int, int]) -> tuple[Any, list[str]]:
    """The page in a browser, once it shows something, and what it complains of."""
    tab, complaints = found.new_page(viewport={"width": size[0], "height": size[1]}), list[str]()
    tab.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.goto(page.url)
    tab.wait_for_selector("canvas")
    return tab, complaints


@pytest.mark.long
def test_in_a_browser(output: Path, tmp_path: Path) -> None:
    """The page loads, shows what the film shows from the same place, moves, and complains of nothing."""
    pytest.importorskip("viser", reason="needs viser: pip install mpimbs[view]")
    with browser() as found:
        recording = Recording(output)
        page = Page(recording, port=18080)
        try:
            tab, complaints = opened(found, page, SIZE)

            def seen() -> npt.NDArray[np.bool_]:
                with Image.open(io.BytesIO(tab.screenshot())) as picture:
                    return ink(picture)[:, 150:360]  # between notes and controls

            def until(t: float) -> float:
                expected, share, left = drawn(film, t)[:, 150:360], 0.0, 40
                while share < 0.5 and left:
                    tab.wait_for_timeout(250)
                    now = seen()
                    share, left = (now & expected).sum() / max(1, (now | expected).sum()), left - 1
                return share

            film = Film(recording, SIZE)
            assert until(0.0) >= 0.5, "as the film shows it"
            page.advance(0.6)
            assert page.time == pytest.approx(0.6) and until(0.6) >= 0.5, "it moves"
            first = drawn(film, 0.0)[:, 150:360]
            assert (first & seen()).sum() / (first | seen()).sum() < 0.5
            tab.get_by_label("tension as color").check()
            tab.get_by_label("loads as arrows").check()
            tab.wait_for_timeout(500)
            before = np.asarray(Image.open(io.BytesIO(tab.screenshot())))
            page.advance(0.0)
            tab.wait_for_timeout(1000)
            after = np.asarray(Image.open(io.BytesIO(tab.screenshot())))
            assert (before[:, 150:360] != after[:, 150:360]).any(), "colors and arrows"
            assert not complaints
        finally:
            page.close()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_pages_of_any_system(seed: int, tmp_path: Path) -> None:
    """The page shows what the film shows, of systems and outputs that are drawn, whatever is switched on and off."""
    pytest.importorskip("viser", reason="needs viser: pip install mpimbs[view]")
    draw, size = Seeded(seed), (1280, 720)
    system = random_system(seed, 1 + draw.index(9), draw.index(2) > 0, wrenches=False)[0]
    system = choice(draw, [system, *map(system_from, OPEN_AND_CLOSED)])
    t = choice(draw, [0.02, 0.3, 1.0])
    kept = choice(draw, [{}, {"loads": True}, {"sample": "pose"}, {"sample": "q,u,load"}])
    simulate(system, t, output=tmp_path / "out.h5", every=t / (1 + draw.index(12)), **kept)
    recording = Recording(tmp_path / "out.h5")
    film, page = Film(recording, size), Page(recording, port=18480)
    with contextlib.closing(page), browser() as found:
        tab, complaints = opened(found, page, size)
        middle = slice(None), slice(300, 950)  # between notes and controls
        for passed in (0.0, 0.6 * t):
            page.advance(passed)
            expected, share, left = drawn(film, page.time)[middle], 0.0, 40
            while share < 0.8 and left:
                tab.wait_for_timeout(250)
                with Image.open(io.BytesIO(tab.screenshot())) as picture:
                    now = ink(picture)[middle]
                near, there = (binary_dilation(dots, iterations=4) for dots in (expected, now))
                share = min((now & near).sum() / max(1, now.sum()), (expected & there).mean() / expected.mean())
                left -= 1
            assert share >= 0.8, (page.time, share)
        names = [NOBODY, *(recording.system.name_of(k) for k in recording.seen().tolist())]
        for _ in range(6):
            box = tab.get_by_role("checkbox", name=choice(draw, CONTROLS))
            if box.is_enabled():
                box.click()
            page._follow.value = choice(draw, names)
            page.advance(0.2 * t)
            tab.wait_for_timeout(100)
        assert not complaints


def test_live(tmp_path: Path) -> None:
    """Beside a run that goes on, the newest sample is shown."""
    pytest.importorskip("viser", reason="needs viser: pip install mpimbs[view]")
    with Simulation("chain:3", output=tmp_path / "o.h5", every=0.01) as simulation:
        simulation.advance(0.1)
        simulation._run._recorder.store.sync()  # rather than wait for a second
        recording = Recording(tmp_path / "o.h5")
        assert recording.going_on
        page = Page(recording, port=18180, live=True)
        try:
            assert page.time == pytest.approx(0.1)
            simulation.advance(0.2)
            simulation._run._recorder.store.sync()
            time.sleep(1.05)
            page.advance(0.0)
            assert page.time == pytest.approx(0.2)
        finally:
            page.close()
