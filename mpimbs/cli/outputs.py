"""The commands that take what a run has written: `mpimbs plot | export`."""

from __future__ import annotations

from pathlib import Path

import click
from mpi4py import MPI

from mpimbs.cli.words import Command
from mpimbs.errors import InputError
from mpimbs.filesystem.places import check_new, replacing
from mpimbs.parallel.agreement import on_root


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

    QUANTITIES are q, u, load, pose, energy and violation; q:hip,knee is of two bodies, violation:pin of a loop. Of an
    ensemble they are needed.
    """

    def work() -> None:
        from mpimbs.study.axes import save
        from mpimbs.study.copies import draw_copies, kept_copies
        from mpimbs.study.pictures import draw_quantities, draw_run, motion_of, pictures_of

        copies = kept_copies(file)
        if copies is not None and not quantities:
            raise InputError(f"{file}: is the output of an ensemble: say what to draw of it, such as energy or q")
        if not quantities:
            if output is not None:
                raise InputError("-o: the pictures of a run go beside its file; name quantities, or leave -o out")
            motion_of(file)
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
        if copies is not None and copy is None:
            drawn = draw_copies(copies, quantities)
        else:
            drawn = draw_quantities(motion_of(file, copy), quantities)
        click.echo(f"drew {save(drawn, place)}")

    on_root(comm, work)


@click.command(cls=Command)
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
def export(
    comm: MPI.Comm, file: Path, quantities: tuple[str, ...], output: Path, copy: str | None, force: bool
) -> None:
    """Write a run's output FILE for other programs: ParaView, Blender, tables, numpy.

    Tables (.csv, .parquet) have all that was kept, or the QUANTITIES, named as for plot.
    """

    def work() -> None:
        from mpimbs.study.copies import kept_copies
        from mpimbs.study.pictures import motion_of
        from mpimbs.view.exports import export as written
        from mpimbs.view.exports import format_of

        format_of(output, quantities)
        motion = (kept_copies(file) if copy is None else None) or motion_of(file, copy)
        check_new(output, force)
        with replacing(output) as part:
            written(motion, output, part, quantities)
        click.echo(f"wrote {output}")

    on_root(comm, work)
