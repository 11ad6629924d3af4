"""For mkdocs: what pages have from elsewhere, the features from the README, the rooms from the package."""

import ast
import re
import tomllib
from pathlib import Path
from typing import Any

import click

ROOT = Path(__file__).resolve().parents[1]


def features() -> str:
    """The README's first list, with links as pages have them."""
    readme = ROOT / "README.md"
    found = re.search(r"(?:^- .*\n(?:  .*\n)*)+", readme.read_text(encoding="utf-8"), re.MULTILINE)
    assert found, f"{readme} has no list"
    return found[0].replace("](docs/pages/", "](")


def rooms() -> str:
    """The rooms of the package, the lowest first, with what their docstrings say in the first paragraph."""
    rows = ["| room | what lives there |", "|---|---|"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for room in reversed(project["tool"]["importlinter"]["contracts"][0]["layers"]):
        text = ast.get_docstring(ast.parse((ROOT / "mpimbs" / room / "__init__.py").read_text(encoding="utf-8"))) or ""
        rows.append(f"| `mpimbs/{room}/` | {' '.join(text.split(chr(10) * 2)[0].split())} |")
    return "\n".join(rows)


def commands() -> str:
    """The help of all commands, by section, from the program."""
    from mpimbs.cli.commands import SECTIONS, cli

    whole = click.Context(cli, info_name="mpimbs", **cli.context_settings, terminal_width=100, max_content_width=100)
    parts = []
    for title, names in SECTIONS.items():
        parts.append(f"## {title}")
        for name in names:
            command = cli.get_command(whole, name)
            if command is not None and not command.hidden:
                told = command.get_help(click.Context(command, whole, name, **cli.context_settings))
                parts += [f"### {name}", f"```text\n{told}\n```"]
    return "\n\n".join(parts)


PLACES = {
    "<!-- the commands -->": commands,
    "<!-- the features of the README -->": features,
    "<!-- the rooms of the package -->": rooms,
}


def first_lines() -> list[str]:
    """The first line of each docstring of the package, with what it is of: to be read in one go."""
    found = []
    for path in sorted((ROOT / "mpimbs").rglob("*.py")):
        waiting: list[tuple[str, ast.AST]] = [(str(path.relative_to(ROOT)), ast.parse(path.read_bytes()))]
        while waiting:
            name, node = waiting.pop()
            if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                continue
            if text := ast.get_docstring(node):
                found.append(f"{name}: {text.splitlines()[0]}")
            waiting += [(f"{name} {getattr(child, 'name', '')}", child) for child in reversed(node.body)]
    return found


def on_post_build(config: Any, **_: Any) -> None:
    """Write all first lines beside the site."""
    path, lines = Path(config["site_dir"]) / "first-lines.txt", first_lines()
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(lines)} first lines of docstrings: {path}")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put what is written elsewhere in its place."""
    for place, written in PLACES.items():
        if place in markdown:
            markdown = markdown.replace(place, written())
    return markdown
