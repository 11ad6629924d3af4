"""The tables that compiled code reads: all declarations of the package against all places where it reads them."""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mpimbs
from mpimbs.kernels.memory import FloatItem, IntegerItem, NumberItem, RowItem

PACKAGE = Path(mpimbs.__file__).parent
ITEMS = FloatItem, IntegerItem, NumberItem, RowItem


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text()
        if "kernels.memory" in text or path.name == "memory.py":
            name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
            yield name, ast.parse(text)


def declared() -> dict[tuple[str, str], Any]:
    """Places of every table, by the module and the name that has them."""
    found = {}
    for name, tree in modules():
        for node in tree.body:
            value = node.value if isinstance(node, ast.Assign) else None
            value = value.value if isinstance(value, ast.Attribute) else value
            if isinstance(value, ast.Call) and getattr(value.func, "id", "") == "schema":
                target = node.targets[0]  # type: ignore[attr-defined]
                found[name, target.id] = getattr(importlib.import_module(name), target.id)
    return found


def flat(place: Any, name: str) -> dict[str, int]:
    if isinstance(place, ITEMS):
        return {name: place.at}
    return {k: v for field in place._fields for k, v in flat(getattr(place, field), f"{name}.{field}").items()}


DECLARED = declared()


def test_there_are_tables() -> None:
    assert len(DECLARED) >= 12, sorted(DECLARED)


@pytest.mark.parametrize("place", DECLARED.values(), ids=["-".join(key) for key in DECLARED])
def test_no_two_items_share_a_place(place: Any) -> None:
    at = sorted(flat(place, "").values())
    assert at == list(range(at[0], at[0] + 2 * len(at), 2))


def test_what_is_read_is_declared_and_what_is_declared_is_read() -> None:
    """Every `read(table, PLACES.item)` names an item of the table that the module imports, and none is left unread."""
    read: set[tuple[str, str]] = set()  # class that declares, and its field
    for name, tree in modules():
        known = vars(importlib.import_module(name))
        opened: dict[str, Any] = {}  # local names of what was read whole
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "read" and len(node.args) == 2):
                continue
            chain, place = [], node.args[1]
            while isinstance(place, ast.Attribute):
                chain.append(place.attr)
                place = place.value
            if not (isinstance(place, ast.Name) and place.id in known):
                continue  # an argument
            found = known[place.id]
            for field in reversed(chain):
                assert hasattr(found, field), f"{name}: {place.id} has no item {field}"
                read.add((type(found).__name__, field))
                found = getattr(found, field)
            if not isinstance(found, ITEMS):
                opened[place.id] = found
        for whole in opened.values():  # a tuple that was read whole: by its attributes, or unpacked
            attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
            unpacked = not attributes & set(whole._fields)
            read |= {(type(whole).__name__, field) for field in whole._fields if unpacked or field in attributes}
    own = {(type(place).__name__, field) for place in DECLARED.values() for field in getattr(place, "_fields", ())}
    own = {(kind, field) for kind, field in own if kind not in {item.__name__ for item in ITEMS}}
    assert own <= read, f"declared and never read: {sorted(own - read)}"
