"""The commands that take what a run has written: `mpimbs view | plot | export`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mpimbs.base.errors import InputError
from mpimbs.base.places import check_new, replacing
from mpimbs.cli.words import Command, said_on_root, told_when_long

if TYPE_CHECKING:
    from mpi4py import MPI

    from mpimbs.view.recording import Recording


@click.command(cls=Command)
@click.argument("file", type=Path)
@click.argument("quantities", nargs=-1)
@click.option("-o", "--output", type=Path, help="PNG file of the quantities.  [default: beside FILE]")
@click.option("--copy", help="Name of the copy, of an ensemble.  [default: all of them, each a curve]")
@click.option("--force", is_flag=True, help="Replace existing pictures.")
@click.pass_obj
def plot(
    comm: MPI.Comm, file: Path, quantities: tuple[str, ...], output: Path | None, copy: str | None, force: bool
) -> None:
    """Draw QUANTITIES of a run's output FILE over time, or without any the useful pictures and a page with all of them.

    QUANTITIES are q, u, pose, load, power, tension, moment, energy, work, violation and others that were kept;
    q:hip,knee is of two bodies, violation:pin of a loop. Of an ensemble they are needed.
    """

    def work() -> None:
        from mpimbs.plots.curves import save
        from mpimbs.plots.pictures import draw_quantities, draw_run, motion_of, pictures_of

        motion = motion_of(file)
        if motion.names and not quantities:
            raise InputError(f"{file}: is the output of an ensemble: say what to draw of it, such as energy or q")
        if not quantities:
            if output is not None:
                raise InputError("-o: the pictures of a run go beside its file; name quantities, or leave -o out")
            for picture in pictures_of(file).values():
                check_new(picture, force)
            for picture in draw_run(file):
                click.echo(f"drew {picture}")
            return
        named = "_".join(text.partition(":")[0] for text in quantities)
        place = output or file.with_name(f"{file.stem}_{named}.png")
        if place.suffix.lower() != ".png":
            raise InputError(f"-o {place}: what is drawn is a PNG file; give a name that ends with .png")
        check_new(place, force)
        drawn = draw_quantities(motion if copy is None else motion.one(copy), quantities)
        click.echo(f"drew {save(drawn, place)}")

    said_on_root(comm, work)


@click.command("export", cls=Command)
@click.argument("file", type=Path)
@click.argument("quantities", nargs=-1)
@click.option(
    "-o",
    "--output",
    type=Path,
    required=True,
    help="File to write: .vtkhdf, .shapes.vtkhdf, .usd, .csv, .parquet or .npz by its suffix.",
)
@click.option("--copy", help="Name of the copy, of an ensemble.  [default: all of them: .csv, .parquet and .npz]")
@click.option("--force", is_flag=True, help="Replace an existing file.")
@click.pass_obj
def export_command(
    comm: MPI.Comm, file: Path, quantities: tuple[str, ...], output: Path, copy: str | None, force: bool
) -> None:
    """Write a run's output FILE for other programs: ParaView, Blender, tables, numpy.

    Tables (.csv, .parquet) have all that was kept, or the QUANTITIES, named as for plot.
    """

    def work() -> None:
        from mpimbs.export.exports import export, format_of
        from mpimbs.plots.pictures import motion_of

        format_of(output, quantities)
        motion = motion_of(file)
        motion = motion if copy is None else motion.one(copy)
        check_new(output, force)
        with replacing(output) as part:
            export(motion, output, part, quantities)
        click.echo(f"wrote {output}")

    said_on_root(comm, work)


@click.command(cls=Command)
@click.argument("output", type=Path)
@click.option("--live", is_flag=True, help="Show the newest sample of a run that goes on.")
@click.option("--port", type=click.IntRange(1, 65535), default=8080, help="Where the browser finds it; else the next.")
@click.option("--host", default="localhost", help="Who may look: 0.0.0.0 stands for all machines.")
@click.option("-o", "--film", type=Path, help="Write a .gif or .mp4 file instead, without a browser.")
@click.option("--speed", type=float, default=1.0, help="Simulated seconds in a second of the film.")
@click.option("--rate", type=float, default=25.0, help="Pictures in a second of the film.")
@click.option("--size", default="640x480", help="Of the film, in dots.")
@click.option("--tension", is_flag=True, help="Color the film by joint loads.")
@click.option("--follow", help="Body that stays in the middle of the film.")
@click.option("--copy", help="Name of the copy, of an ensemble.")
@click.option("--force", is_flag=True, help="Replace an existing film.")
@click.pass_obj
def view(
    comm: MPI.Comm,
    output: Path,
    live: bool,
    port: int,
    host: str,
    film: Path | None,
    speed: float,
    rate: float,
    size: str,
    tension: bool,
    follow: str | None,
    copy: str | None,
    force: bool,
) -> None:
    """Show the motion in OUTPUT in a browser, or write it as a film."""

    def show() -> None:
        if film is not None:
            from mpimbs.view.film import Film, check_format

            dots = _dots(size)
            check_format(film)
            check_new(film, force, "film")
            if not (0.0 < speed < 1e6 and 0.0 < rate <= 240.0):
                raise InputError(f"--speed {speed:g}, --rate {rate:g}: give a positive speed, and a rate up to 240")
            made = Film(_recording(output, copy), dots, tension, follow)
            _tell_missing(made.missing)
            with told_when_long("drawing the pictures of the film"):
                count = made.write(film, rate, speed, force)
            click.echo(f"wrote {film}: {count} pictures")
            return
        from mpimbs.view.page import Page, viser_module

        viser_module()
        recording = _recording(output, copy)
        with told_when_long(f"making a scene of {recording.system.n_bodies} bodies in {len(recording.t)} samples"):
            page = Page(recording, host, port, live)
        _tell_missing(page.missing)
        click.echo(f"{output}: look at {page.url}; end with Ctrl-C")
        try:
            page.run()
        except KeyboardInterrupt:
            page.close()

    said_on_root(comm, show)


def _recording(output: Path, copy: str | None) -> Recording:
    from mpimbs.view.recording import Recording

    with told_when_long(f"reading what moved from {output}, and its poses"):
        return Recording(output, copy)


def _dots(size: str) -> tuple[int, int]:
    width, _, height = size.partition("x")
    if not (width.isdecimal() and height.isdecimal() and 16 <= min(int(width), int(height)) <= 8192):
        raise InputError(f"--size {size}: give width and height in dots, such as 640x480")
    return 2 * (int(width) // 2), 2 * (int(height) // 2)  # what films can have


def _tell_missing(files: list[str]) -> None:
    if files:
        more = f" and {len(files) - 3} more" if len(files) > 3 else ""
        click.echo(f"note: meshes that can't be read, drawn as capsules: {', '.join(files[:3])}{more}", err=True)
