"""Figures as files, all as JSON and their rows as a table of tab-separated values, and what they were measured on."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from mpimbs.base.places import check_folder, replacing


def write_tables(
    folder: Path, stem: str, found: dict[str, Any], rows: Iterable[dict[str, Any]], columns: Sequence[str]
) -> list[Path]:
    """Write STEM.json and STEM.tsv in a folder, which is made, each whole or not at all; give their paths.

    Parameters
    ----------
    found : dict
        What JSON gets.
    rows : iterable of dict
        Lines of the table; a column that a row does not have stays empty.
    columns : sequence of str

    Raises
    ------
    InputError
        The folder can't be written to.
    """
    lines = ["\t".join(columns), *("\t".join(_cell(row.get(name)) for name in columns) for row in rows)]
    texts = {"json": json.dumps(found, indent=1), "tsv": "\n".join(lines)}
    paths = [folder / f"{stem}.{kind}" for kind in texts]
    check_folder(folder, [path.name for path in paths], force=True)
    for path, text in zip(paths, texts.values(), strict=True):
        with replacing(path) as part:
            part.write_text(text + "\n", encoding="utf-8")
    return paths


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """Write rows with the same keys as a table, numbers to four digits."""
    lines = [f"| {' | '.join(rows[0])} |", f"|{'---|' * len(rows[0])}"]
    for row in rows:
        cells = (f"{value:.4g}" if isinstance(value, float) else _cell(value) for value in row.values())
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(value: Any) -> str:
    return "" if value is None else str(value)


def cpu_name() -> str:
    """Name of the processor, as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def host() -> dict[str, Any]:
    """Processor, cores, operating system."""
    return {"cpu": cpu_name(), "cores": os.cpu_count(), "system": platform.platform()}
