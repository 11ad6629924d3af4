"""The JSON schema of model files, for editors: from the tables that read them, and what their docstrings say."""

from __future__ import annotations

import inspect
import re
from typing import Any

from pydantic.json_schema import models_json_schema

from mpimbs.model.joints import JOINT_NAMES
from mpimbs.model.text.files import TABLES, Model
from mpimbs.model.text.table import CheckedTable, Unit
from mpimbs.model.text.values import OVER_TIME

_NUMBER = {"type": ["number", "string"]}  # a text is an expression
_NUMBERS = {"anyOf": [_NUMBER, {"type": "array", "items": {"$ref": "#/$defs/numbers"}}]}
_LAGGED = {
    "type": "object",
    "properties": {"rows": {"$ref": "#/$defs/numbers"}, "lag": _NUMBER, "begin": {"$ref": "#/$defs/numbers"}},
    "required": ["rows", "lag"],
    "additionalProperties": False,
}
_LAGGING = {"anyOf": [{"$ref": "#/$defs/numbers"}, _LAGGED]}
_REFERENCES = "#/$defs/{model}"
_ANY_JOINT = {"type": "free"}  # by which a table says of all keys that may hold numbers that they do


def schema_of_models() -> dict[str, Any]:
    """Return the schema of a model file."""
    asked = [(table, "validation") for table in (*TABLES.values(), Model)]
    _, found = models_json_schema(asked, ref_template=_REFERENCES)  # type: ignore[arg-type]
    tables = {table.__name__: table for table in _all_tables()}
    defs = found["$defs"] | {"numbers": _NUMBERS}
    for name, table in tables.items():
        _fill(defs[name], table)
    for key, table in TABLES.items():
        lists = {"type": "array", "items": {"$ref": _REFERENCES.format(model=table.__name__)}}
        defs["Model"]["properties"][key] = lists | {"description": _first_line(table)}
    repeat, body = defs["Repeat"], defs["Body"]
    for key in ("wrench", "geometry"):  # one table or a list of them
        said = body["properties"][key]
        said["anyOf"] = [said["items"], {"type": said.pop("type"), "items": said.pop("items")}]
    repeat["properties"]["body"] = defs["Model"]["properties"]["body"]
    repeat["properties"] |= {key: value for key, value in body["properties"].items() if key not in repeat["properties"]}
    repeat["required"] = ["count"]
    for joint in ("Joint", "Loop"):
        defs[joint]["properties"]["type"]["enum"] = list(JOINT_NAMES)
    model = defs.pop("Model")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **model, "title": "mpimbs model", "$defs": defs}


def _all_tables() -> set[type[CheckedTable]]:
    found: set[type[CheckedTable]] = {Model, *TABLES.values()}
    while more := {inner for table in found for inner in table.tables_within().values()} - found:
        found |= more
    return found


def _fill(definition: dict[str, Any], table: type[CheckedTable]) -> None:
    """Say of the keys of a table what pydantic doesn't know of them: numbers, units, and what they mean."""
    words, units = _described(table), table.units_of(_ANY_JOINT)
    definition["description"] = _first_line(table)
    for key, said in definition["properties"].items():
        said.pop("title", None)
        note = next((note for note in table.model_fields[key].metadata if isinstance(note, Unit)), Unit(""))
        if said.get("type") == "integer":
            said["type"] = ["integer", "string"]
        elif key in units:
            said |= _LAGGING if key in OVER_TIME else _numeric(note)
        if key in words:
            said["description"] = words[key]
        if said.get("default", "") is None:
            del said["default"]


def _numeric(unit: Unit) -> dict[str, Any]:
    if unit.count is None:
        return {"$ref": "#/$defs/numbers"}
    return {"type": "array", "items": _NUMBER, "minItems": unit.count, "maxItems": unit.count}


def _first_line(table: type) -> str:
    return (inspect.getdoc(table) or "").partition("\n")[0]


def _described(table: type) -> dict[str, str]:
    """Give the docstrings of a table's keys, and of those that it is made from."""
    found: dict[str, str] = {}
    for kind in reversed(table.__mro__):
        _, _, text = (inspect.cleandoc(kind.__doc__ or "")).partition("Attributes\n----------\n")
        for names, words in re.findall(r"^(\w[^\n]*?)(?: : [^\n]*)?\n((?: {4}[^\n]*\n?)+)", text, re.MULTILINE):
            found |= dict.fromkeys(names.split(", "), " ".join(words.split()))
    return found
