"""The modules of the package: no circles, none reaches into another, one name for one thing. Rooms: `make lint`."""

import ast
import graphlib
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from driver_modules import driver
from mpi_helpers import ROOT


def modules(package: Path) -> dict[str, Path]:
    """The modules of a package by their dotted names; of folders too, without `__init__`."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        *folders, name = path.relative_to(package.parent).with_suffix("").parts
        found[".".join((*folders, name) if name != "__init__" else folders)] = path
    return found


def imported(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports of a module, within functions too; without those for type checkers alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            yield from imported(ast.Module(node.orelse, []))
        else:
            yield from imported(node)


def graph(package: Path) -> dict[str, set[str]]:
    """What of the package each of its modules imports."""
    found = modules(package)
    graph: dict[str, set[str]] = {}
    for name, path in found.items():
        graph[name] = set()
        for node in imported(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                graph[name] |= {alias.name for alias in node.names} & set(found)
            elif node.module in found:
                inner = {f"{node.module}.{alias.name}" for alias in node.names}
                graph[name] |= inner & set(found)
                if inner - set(found):
                    graph[name].add(node.module)
    return graph


def test_no_circle_of_modules() -> None:
    inner = graph(ROOT / "mpimbs")
    inner.pop("mpimbs.__main__")
    tuple(graphlib.TopologicalSorter(inner).static_order())  # raises for a circle, and names it


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def reaching(package: Path) -> list[str]:
    """Uses of a private name of the package in a module that does not define it, as sentences."""
    trees = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in modules(package).items()}
    defined: dict[str, set[str]] = {}
    for name, tree in trees.items():
        nodes = list(ast.walk(tree))
        made = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        made |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        made |= {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
        defined[name] = set(filter(private, made))
    anywhere = set().union(*defined.values())
    found = []
    for name, tree in trees.items():
        for node in ast.walk(tree):
            of_others = []
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == package.name:
                of_others = [alias.name for alias in node.names if private(alias.name)]
            elif isinstance(node, ast.Attribute) and ast.unparse(node.value) not in ("self", "cls"):
                of_others = [node.attr] if node.attr in anywhere - defined[name] else []
            found += [f"{name}, line {node.lineno}: {other}" for other in of_others]
    return found


def test_no_module_reaches_into_another() -> None:
    assert not reaching(ROOT / "mpimbs")


def test_no_two_classes_have_one_name() -> None:
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in modules(ROOT / "mpimbs").values())
    names = Counter(node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef))
    assert not [name for name, times in names.items() if times > 1 and not private(name)]


def shared_constants(package: Path) -> dict[str, set[str]]:
    """Names of constants that are used outside of their modules, and the modules that define them."""
    trees = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in modules(package).items()}
    defined = {
        name: {
            node.id
            for statement in tree.body
            for node in ast.walk(statement)
            if isinstance(statement, ast.Assign | ast.AnnAssign)
            and isinstance(node, ast.Name)
            and isinstance(node.ctx, ast.Store)
            and node.id.isupper()
        }
        for name, tree in trees.items()
    }
    found: dict[str, set[str]] = {}
    for tree in trees.values():
        whole: dict[str, str] = {}  # modules that are imported whole, by their names here
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module in trees:
                for alias in node.names:
                    if alias.name in defined[node.module]:
                        found.setdefault(alias.name, set()).add(node.module)
                    whole[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                module = whole.get(node.value.id, "")
                if node.attr in defined.get(module, ()):
                    found.setdefault(node.attr, set()).add(module)
    return found


def test_no_two_constants_have_one_name() -> None:
    """Where other modules use them: in one module a name may be another's too."""
    found = shared_constants(ROOT / "mpimbs")
    assert len(found) > 100
    assert not {name: where for name, where in found.items() if len(where) > 1}


@pytest.mark.parametrize("page", ["where", "design", "contributing"])
def test_files_that_pages_name_are_there(page: str) -> None:
    text = (ROOT / "docs/pages" / f"{page}.md").read_text(encoding="utf-8")
    rooms = "|".join(sorted(path.parent.name for path in (ROOT / "mpimbs").glob("*/__init__.py")))
    named = set(re.findall(rf"`(?:mpimbs/)?((?:{rooms})/[\w/]*(?:\.py)?)`", text))
    assert named or page == "contributing"
    assert not [name for name in sorted(named) if not (ROOT / "mpimbs" / name).exists()]


def test_places_that_sources_name_are_there() -> None:
    """`room.module.name`, in docstrings and comments: renamed and moved things leave no names behind."""
    package = ROOT / "mpimbs"
    sources = {
        name.removeprefix("mpimbs."): path.read_text(encoding="utf-8") for name, path in modules(package).items()
    }
    rooms = {name.partition(".")[0] for name in sources}
    lost = []
    for name, source in sources.items():
        for place in re.findall(r"`([a-z_]+\.[\w.]+)`", source):
            parts = place.split(".")
            if parts[0] not in rooms or parts[1] == "py":
                continue
            k = max(k for k in range(1, len(parts) + 1) if ".".join(parts[:k]) in sources)
            if k < len(parts) and not re.search(rf"\b{parts[k]}\b", sources[".".join(parts[:k])]):
                lost.append(f"{name}: {place}")
    assert not lost


def test_a_room_says_what_lives_there_and_where_to_begin() -> None:
    for path in (ROOT / "mpimbs").glob("*/__init__.py"):
        told = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        begin = re.findall(r"`([\w/]+\.py)`", told.partition("Begin with ")[2])
        assert begin and all((path.parent / name).is_file() for name in begin), path


UNIT = r"(?:m|kg|s|N|J|Hz|m/s|rad/s|1/s|kg m\^2|m/s\^2|rad/s\^2)"
IN_UNITS = re.compile(rf"^([A-Z_][A-Z0-9_, ]*) = [^#]*\d[^#]*#\s*(?:of )?{UNIT}(?: or [\w/^ ]+?)?[,:]")
EXAMPLES = ("model/examples", "bench", "plots", "view", "export")  # what is a number of metres there is one of a model
WHY = {  # what can't be relative
    "SLOWEST": "smaller than any speed in any units, where nothing else says what is slow",
    "SMALLEST": "smaller than any number in any units; of motions, by how much other loads move an axis that is held",
    "_NOTHING": "what rounding leaves where loads vanish: smaller than any in any units",
    "HELD": "larger than any inertia in any units",
    "NO_LIMITS": "PETSc's own, to turn its limits off",
    "NEARBY": "all times, one after the other",
    "STOP_TIME": "the time constant of MuJoCo's limits, documented; files say their own",
    "RELAXATION": "of friction, documented; files say theirs by its speed",
    "PATIENCE": "of a clock on the wall",
    "_WATCHED": "of the clock, in which cycles are counted",
    "QUIET": "of a clock on the wall",
    "_LEAST": "of robot files, which are in SI: what they write for a mass of nothing",
    "_GYRATION": "of robot files, which are in SI: the rounding of a point mass",
}


def numbers_in_units(package: Path) -> dict[str, str]:
    """Constants that are numbers of metres, kilograms, seconds or newtons by their comments: what is relative says of
    what. With the modules where they are."""
    found = {}
    for name, path in modules(package).items():
        if not str(path.relative_to(package)).startswith(EXAMPLES):
            for line in path.read_text(encoding="utf-8").splitlines():
                if matched := IN_UNITS.match(line):
                    found |= {constant.strip(): name for constant in matched[1].split(",")}
    return found


def test_no_threshold_is_a_number_of_metres() -> None:
    """Lengths, masses and times are compared with those of the system: `mpimbs.parts.scales`."""
    found = numbers_in_units(ROOT / "mpimbs")
    assert not set(found) - set(WHY), {name: where for name, where in found.items() if name not in WHY}
    assert "HELD" in found and "SLOWEST" in found


def test_all_mutants_can_be_made() -> None:
    """Of the faults that `make mutants` seeds: their texts occur once, their tests exist, and each has a name of its
    own."""
    mutants = driver("mutants").read_mutants()
    assert len({mutant.name for mutant in mutants}) == len(mutants) >= 40
    for mutant in mutants:
        files = [Path(test.split("::")[0]) for test in mutant.tests if test.startswith("tests/")]
        assert files and all((ROOT / file).exists() for file in files), mutant.name
