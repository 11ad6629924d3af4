"""The README and the pages of the documentation, and the indented blocks that stand in them."""

import re
from pathlib import Path

from mpi_helpers import ROOT

README = ROOT / "README.md"
PAGES = ROOT / "docs/pages"
DOCUMENTS = [README, *sorted(PAGES.rglob("*.md"))]


def below(page: Path, heading: str) -> str:
    """What stands below a heading, of any level."""
    text = page.read_text(encoding="utf-8")
    match = re.search(rf"^#+ {re.escape(heading)}\n", text, re.MULTILINE)
    assert match, f"{page} has no heading '{heading}'"
    return text[match.end() :]


def blocks(text: str) -> list[str]:
    """All indented blocks of a text; empty lines within one belong to it."""
    found = re.findall(r"(?:^ {4}.*\n(?:\n(?= {4}))?)+", text, re.MULTILINE)
    return [re.sub(r"^ {4}", "", block, flags=re.MULTILINE) for block in found]


def block(page: Path, heading: str) -> str:
    """The first indented block below a heading."""
    return blocks(below(page, heading))[0]
