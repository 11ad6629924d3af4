"""A motion as a film, without a display: surfaces drawn from the farthest triangle to the nearest one."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.animation import AbstractMovieWriter, FFMpegWriter, PillowWriter
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure

from mpimbs.base.arrays import Floats
from mpimbs.base.errors import InputError
from mpimbs.base.places import check_new
from mpimbs.view.recording import Recording
from mpimbs.view.scene import FIELD, Camera, Instances, Scene, tension_colors

DOTS = 100.0  # of a picture per inch
DARK = 0.35  # of the light, on what it does not fall on
FORMATS = (".gif", ".mp4")
MOST_FRAMES = 3000  # of a film


class Film:
    """Draws pictures of a motion.

    Parameters
    ----------
    size : (int, int)
        Width and height of a picture in dots.
    tension : bool
        Show the tension of bodies by colors: red is pulled, blue is pushed.
    follow : str, optional
        Name of the body that stays where it is in the picture.

    Raises
    ------
    InputError
        There is no such body, or no loads in the output.
    """

    def __init__(
        self, recording: Recording, size: tuple[int, int] = (640, 480), tension: bool = False, follow: str | None = None
    ) -> None:
        self._recording, system, seen = recording, recording.system, recording.seen()
        self._scene = Scene(system, recording.path.parent, seen, recording.size())
        self._followed = None if follow is None else system.index_of(follow)
        if tension and recording.forces is None:
            raise InputError(
                f"the motion {recording.motion.where} holds no loads whose tension could be shown: run with --loads"
            )
        low, high = recording.bounds()
        self._begin = np.zeros(3)
        if self._followed is not None:
            self._begin = recording.poses[0, self._followed, :3]
            from_it = recording.poses[:, seen, :3] - recording.poses[:, self._followed, None, :3]
            reach = np.nanmax(np.abs(from_it), axis=(0, 1))
            low, high = self._begin - reach, self._begin + reach
        self._camera = Camera.facing(low, high, system.gravity, 5.0 * self._scene.thickness)
        self._tension, self._strongest = tension, recording.most_tension
        self.figure = Figure(figsize=(size[0] / DOTS, size[1] / DOTS), dpi=DOTS)
        FigureCanvasAgg(self.figure)
        axes = self.figure.add_axes((0.0, 0.0, 1.0, 1.0))
        high_as = np.tan(0.5 * FIELD)
        axes.set(xlim=(-high_as * size[0] / size[1], high_as * size[0] / size[1]), ylim=(-high_as, high_as))
        axes.set_axis_off()
        self._polygons = PolyCollection([], linewidths=0.3)
        axes.add_collection(self._polygons)
        self._ties = LineCollection([], linewidths=1.0, zorder=2)  # before all bodies
        axes.add_collection(self._ties)
        self._told = axes.text(0.02, 0.96, "", transform=axes.transAxes, va="top", fontsize=9)

    @property
    def missing(self) -> list[str]:
        """As of `Scene`."""
        return self._scene.missing

    def draw(self, t: float) -> None:
        """Draw the picture of a time (s) on `figure`."""
        poses, _ = self._recording.at(t)
        tensions = self._recording.tension_at(t) if self._tension else None
        camera = self._camera
        if self._followed is not None:
            camera = camera.moved(poses[self._followed, :3] - self._begin)
        axes = camera.axes()
        light = np.array([0.4, 0.7, -0.6]) @ axes  # from the right and above, behind who looks
        light /= np.linalg.norm(light)
        corners, colors = [], []
        for batch in self._scene.batches:
            given = batch.color
            if tensions is not None:
                given = tension_colors(tensions[batch.bodies], self._strongest)
            triangles, normals = _placed(batch, poses)
            color = np.repeat(given / 255.0, len(batch.surface.faces), axis=0)
            bright = DARK + (1.0 - DARK) * np.clip(normals @ light, 0.0, 1.0)
            front = np.einsum("nj,nj->n", normals, camera.position - triangles[:, 0]) > 0.0
            corners.append(triangles[front])
            colors.append((color * bright[:, None])[front])
        seen = (np.concatenate(corners) - camera.position) @ axes.T
        order = np.argsort(-seen[..., 2].mean(axis=1))
        order = order[seen[order, :, 2].min(axis=1) > 0.0]
        shades = np.concatenate(colors)[order]
        self._polygons.set_verts(list(seen[order, :, :2] / seen[order, :, 2:]))
        self._polygons.set(facecolor=shades, edgecolor=shades)
        ends = (self._scene.ties.placed(poses) - camera.position) @ axes.T
        in_front = ends[..., 2].min(axis=1) > 0.0
        self._ties.set_segments(list(ends[in_front, :, :2] / ends[in_front, :, 2:]))
        self._ties.set_color(list(self._scene.ties.color[in_front] / 255.0))
        self._told.set_text(f"{self._recording.system.name}   t = {t:.3f} s")

    def write(self, path: Path, rate: float = 25.0, speed: float = 1.0, force: bool = False) -> int:
        """Write all of the motion, and say how many pictures it has.

        Parameters
        ----------
        path : Path
            A .gif or .mp4 file.
        rate : float
            Pictures a second.
        speed : float
            Simulated seconds a second.
        force : bool
            Replace an existing file.

        Raises
        ------
        InputError
            It is another kind of file, exists, or there is no ffmpeg; or the film would be too long.
        """
        begin, end = float(self._recording.t[0]), float(self._recording.t[-1])
        count = int((end - begin) / speed * rate + 1e-9) + 1
        if count > MOST_FRAMES:
            raise InputError(f"{path}: {count} pictures are more than {MOST_FRAMES}: give a larger `speed`")
        with writer_for(path, rate) as writer:
            check_new(path, force, "film")
            # A folder of its own: the writer looks at the suffix, and a file of that name may be the user's.
            with tempfile.TemporaryDirectory(prefix=f"{path.stem}.part", dir=path.parent) as folder:
                part = Path(folder) / path.name
                with writer.saving(self.figure, str(part), DOTS):
                    for number in range(count):
                        self.draw(min(begin + number * speed / rate, end))
                        writer.grab_frame()
                part.replace(path)
        return count


def _placed(batch: Instances, poses: Floats) -> tuple[Floats, Floats]:
    """Triangles [n * faces, 3, 3] in the world, and the directions in which they look [n * faces, 3]."""
    triangles = batch.vertices(poses)[:, batch.surface.faces].reshape(-1, 3, 3)
    normals = np.cross(triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0])
    return triangles, normals / np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-300)


def check_format(path: Path) -> None:
    """Refuse a name of a file that films don't have, or whose kind can't be written here."""
    if path.suffix not in FORMATS:
        raise InputError(f"{path}: a film is a .gif or .mp4 file; give a name that ends so")
    if path.suffix == ".mp4":
        _ffmpeg(path)


@contextlib.contextmanager
def writer_for(path: Path, rate: float) -> Iterator[AbstractMovieWriter]:
    """Give the writer of a film, by the name of its file."""
    check_format(path)
    if path.suffix == ".gif":
        yield PillowWriter(fps=rate)  # type: ignore[arg-type]  # a fraction serves
        return
    with matplotlib.rc_context({"animation.ffmpeg_path": _ffmpeg(path)}):
        given: dict[str, Any] = {"fps": rate, "codec": "libx264", "extra_args": ["-pix_fmt", "yuv420p"]}
        yield FFMpegWriter(**given)


def _ffmpeg(path: Path) -> str:
    try:
        import imageio_ffmpeg

        return str(imageio_ffmpeg.get_ffmpeg_exe())
    except (ImportError, RuntimeError):
        found = shutil.which("ffmpeg")
    if found is None:
        raise InputError(f"{path}: an .mp4 needs ffmpeg: pip install 'mpimbs[view]', or give a .gif")
    return found
