"""A motion in a browser, by viser: played, scrubbed, followed, with frames, loads and tension."""

from __future__ import annotations

import contextlib
import io
import time
from typing import Any

import numpy as np

from mpimbs.base.arrays import Floats
from mpimbs.base.errors import InputError
from mpimbs.view.recording import Recording
from mpimbs.view.scene import FIELD, Camera, Scene, tension_colors

RATE = 30.0  # pictures a second
ARROW = 0.2  # length of the largest load, over the size of the motion
TIE = 2.0  # thickness of lines, in dots
NOBODY = "nobody"
MOST_NAMES = 500  # of bodies that can be followed


def viser_module() -> Any:
    """Import viser; InputError if it isn't installed."""
    try:
        import viser
    except ImportError:
        raise InputError("the viewer needs viser: pip install 'mpimbs[view]'") from None
    return viser


class Page:
    """Serves a motion to browsers.

    Parameters
    ----------
    host, port : str, int
        Where; another port where that is taken.
    live : bool
        Show the newest sample as the run goes on.
    """

    def __init__(self, recording: Recording, host: str = "localhost", port: int = 8080, live: bool = False) -> None:
        viser = viser_module()
        self._recording, self._live = recording, live
        self._scene = Scene(recording.system, recording.path.parent, recording.seen(), recording.size())
        with contextlib.redirect_stdout(io.StringIO()):  # it greets in a frame of its own
            self._server: Any = viser.ViserServer(host, port, label=f"mpimbs: {recording.system.name}", verbose=False)
        self.url = f"http://{'localhost' if host in ('0.0.0.0', '127.0.0.1') else host}:{self._server.get_port()}"
        self.time = float(recording.t[-1] if live else recording.t[0])  # shown now (s)
        self._shown: tuple[Any, ...] = ()
        self._followed = np.zeros(3)  # where it was
        self._strongest = self._force_range()
        self._make_scene()
        self._make_controls()
        self._show()

    @property
    def missing(self) -> list[str]:
        """As of `Scene`."""
        return self._scene.missing

    def _force_range(self) -> float:
        forces = self._recording.forces
        return 0.0 if forces is None else float(np.nanmax(np.linalg.norm(forces, axis=2), initial=0.0))

    def _make_scene(self) -> None:
        low, high = self._recording.bounds()
        system, scene = self._recording.system, self._server.scene
        self._camera = Camera.facing(low, high, system.gravity, 5.0 * self._scene.thickness)
        first = self._server.initial_camera
        first.position, first.look_at, first.up = self._camera
        distance = float(np.linalg.norm(self._camera.position - self._camera.target))
        first.fov, first.near, first.far = FIELD, 1e-3 * distance, 1e2 * distance
        scene.set_up_direction(tuple(self._camera.up))
        scene.configure_default_lights(cast_shadow=False)
        poses, forces = self._recording.at(self.time)
        self._meshes = []
        for number, batch in enumerate(self._scene.batches):
            positions, quaternions = batch.placed(poses)
            self._meshes.append(
                scene.add_batched_meshes_simple(
                    f"/bodies/{number}",
                    batch.surface.vertices.astype(np.float32),
                    batch.surface.faces.astype(np.uint32),
                    quaternions.astype(np.float32),
                    positions.astype(np.float32),
                    batched_scales=batch.scale.astype(np.float32),
                    batched_colors=batch.color.astype(np.uint8),
                    lod="off",
                    cast_shadow=False,
                    receive_shadow=False,
                )
            )
        ties = self._scene.ties
        self._ties: Any = None
        if len(ties.bodies):
            colors = np.repeat(ties.color[:, None], 2, axis=1).astype(np.uint8)
            self._ties = scene.add_line_segments(
                "/ties", ties.placed(poses).astype(np.float32), colors, thickness=TIE, thickness_units="screen"
            )
        seen = self._recording.seen()
        thick = self._scene.thickness
        axes = {"axes_length": 4.0 * thick, "axes_radius": 0.25 * thick}
        self._frames = scene.add_batched_axes("/frames", poses[seen, 3:], poses[seen, :3], visible=False, **axes)
        self._arrows: Any = None
        if forces is not None:
            shape = {"shaft_radius": 0.3 * thick, "head_radius": 0.8 * thick, "head_length": 1.6 * thick}
            ends = np.zeros((len(seen), 2, 3), np.float32)
            self._arrows = scene.add_arrows("/loads", ends, (220, 40, 40), visible=False, **shape)

    def _make_controls(self) -> None:
        gui, recording = self._server.gui, self._recording
        gui.configure_theme(show_logo=False, show_share_button=False, control_width="small")
        self._told = gui.add_markdown("")
        self._play = gui.add_checkbox("play", not self._live)
        self._speed = gui.add_slider("speed", 0.05, 5.0, 0.05, 1.0)
        end = max(float(recording.t[-1]), 1e-9)
        self._slider = gui.add_slider("t (s)", 0.0, end, end / 1000.0, self.time)
        self._newest = gui.add_checkbox("newest sample", True, visible=self._live)
        names = [recording.system.name_of(k) for k in recording.seen()[:MOST_NAMES].tolist()]
        self._follow = gui.add_dropdown("follow", (NOBODY, *names), initial_value=NOBODY)
        self._with_frames = gui.add_checkbox("frames", False)
        there = recording.forces is not None
        hint = None if there else "needs loads in the output: run with --loads"
        self._with_loads = gui.add_checkbox("loads as arrows", False, disabled=not there, hint=hint)
        self._with_tension = gui.add_checkbox("tension as color", False, disabled=not there, hint=hint)
        self._slider.on_update(self._scrub)

    def _scrub(self, event: Any) -> None:
        if event.client is not None:  # not by us
            self.time = float(self._slider.value)
            self._newest.value = False

    def run(self, seconds: float = np.inf) -> None:
        """Serve for so long (s)."""
        began = last = time.monotonic()
        while (now := time.monotonic()) - began < seconds:
            self.advance(now - last)
            last = now
            time.sleep(max(0.0, 1.0 / RATE - (time.monotonic() - now)))

    def advance(self, passed: float) -> None:
        """Show what follows after so much time (s)."""
        recording = self._recording
        if self._live and recording.update():
            self._slider.max = max(float(recording.t[-1]), 1e-9)
            self._strongest = self._force_range()
        if self._live and self._newest.value:
            self.time = float(recording.t[-1])
        elif self._play.value:
            end = float(recording.t[-1])
            self.time += passed * self._speed.value
            if self.time > end:
                self.time = end if self._live else float(recording.t[0])
        self._show()

    def _show(self) -> None:
        wanted = (
            self.time, len(self._recording.t), self._with_frames.value, self._with_loads.value,
            self._with_tension.value, self._follow.value,
        )  # fmt: skip
        if wanted == self._shown:
            return
        before, self._shown = self._shown, wanted
        poses, forces = self._recording.at(self.time)
        with self._server.atomic():
            self._draw(poses, forces)
        self._go_along(poses, new=not before or before[5] != self._follow.value)
        self._slider.value = round(self.time, 9)
        status = self._recording.status if self._live else f"{len(self._recording.t)} samples"
        self._told.content = f"**{self._recording.system.name}** t = {self.time:.3f} s ({status})"

    def _draw(self, poses: Floats, forces: Floats | None) -> None:
        tensions, most = self._recording.tension_at(self.time), self._recording.most_tension
        tense = self._with_tension.value
        for mesh, batch in zip(self._meshes, self._scene.batches, strict=True):
            positions, quaternions = batch.placed(poses)
            mesh.batched_positions, mesh.batched_wxyzs = positions.astype(np.float32), quaternions.astype(np.float32)
            shades = tension_colors(tensions[batch.bodies], most) if tense and tensions is not None else batch.color
            colors = shades.astype(np.uint8)
            if not np.array_equal(mesh.batched_colors, colors):
                mesh.batched_colors = colors
        if self._ties is not None:
            self._ties.points = self._scene.ties.placed(poses).astype(np.float32)
        seen = self._recording.seen()
        self._frames.visible = self._with_frames.value
        if self._with_frames.value:
            self._frames.batched_positions, self._frames.batched_wxyzs = poses[seen, :3], poses[seen, 3:]
        if self._arrows is not None and forces is not None:
            self._arrows.visible = self._with_loads.value
            if self._with_loads.value:
                begins = poses[seen, :3]
                lengths = ARROW * self._recording.size() / max(self._strongest, 1e-300)
                ends = begins + lengths * np.nan_to_num(forces[seen])
                self._arrows.points = np.stack([begins, ends], axis=1).astype(np.float32)

    def _go_along(self, poses: Floats, new: bool) -> None:
        """Have the cameras follow a body."""
        if self._follow.value == NOBODY:
            return
        place = poses[self._recording.system.index_of(self._follow.value), :3]
        if not new:
            by = place - self._followed
            for client in self._server.get_clients().values():
                client.camera.position = client.camera.position + by
                client.camera.look_at = client.camera.look_at + by
        self._followed = place

    def close(self) -> None:
        """Serve no more."""
        self._server.stop()
