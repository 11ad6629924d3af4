"""The command that shows a motion."""

from __future__ import annotations

from pathlib import Path

import click
from mpi4py import MPI

from mpimbs.cli.words import Command
from mpimbs.errors import InputError
from mpimbs.filesystem.places import check_new
from mpimbs.parallel.agreement import on_root


@click.command(cls=Command)
@click.argument("output", type=Path)
@click.option("--live", is_flag=True, help="Show the newest sample of a run that goes on.")
@click.option("--port", type=click.IntRange(1, 65535), default=8080, help="Where the browser finds it; else the next.")
@click.option("--host", default="localhost", help="Who may look: 0.0.0.0 stands for all machines.")
@click.option("--film", type=Path, help="Write a .gif or .mp4 file instead, without a browser.")
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
        from mpimbs.view.recording import Recording

        if film is not None:
            from mpimbs.view.film import Film, check_format

            dots = _dots(size)
            check_format(film)
            check_new(film, force, "film")
            if not (0.0 < speed < 1e6 and 0.0 < rate <= 240.0):
                raise InputError(f"--speed {speed:g}, --rate {rate:g}: give a positive speed, and a rate up to 240")
            made = Film(Recording(output, copy), dots, tension, follow)
            _tell_missing(made.missing)
            count = made.write(film, rate, speed, force)
            click.echo(f"wrote {film}: {count} pictures")
            return
        from mpimbs.view.page import Page, viser_module

        viser_module()
        page = Page(Recording(output, copy), host, port, live)
        _tell_missing(page.missing)
        click.echo(f"{output}: look at {page.url}; end with Ctrl-C")
        try:
            page.run()
        except KeyboardInterrupt:
            page.close()

    on_root(comm, show)


def _dots(size: str) -> tuple[int, int]:
    width, _, height = size.partition("x")
    if not (width.isdecimal() and height.isdecimal() and 16 <= min(int(width), int(height)) <= 8192):
        raise InputError(f"--size {size}: give width and height in dots, such as 640x480")
    return 2 * (int(width) // 2), 2 * (int(height) // 2)  # what films can have


def _tell_missing(files: list[str]) -> None:
    if files:
        more = f" and {len(files) - 3} more" if len(files) > 3 else ""
        click.echo(f"note: meshes that can't be read, drawn as capsules: {', '.join(files[:3])}{more}", err=True)
