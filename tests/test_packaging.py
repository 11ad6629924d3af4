"""What is packed: the recipes of others name what the package's own metadata name."""

import re
import tomllib

import mpimbs
from documents import PAGES
from mpi_helpers import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CI = ROOT / ".ci"


def test_the_conda_recipe_needs_what_the_package_needs() -> None:
    needed = {
        re.sub(r"(>=)", r" \1", text).replace("matplotlib ", "matplotlib-base ") for text in PROJECT["dependencies"]
    }
    recipe = (CI / "conda/recipe.yaml").read_text()
    run = recipe.partition("  run:\n")[2].partition("\n\n")[0]
    assert {line.strip().removeprefix("- ") for line in run.splitlines()} == needed | {"petsc4py", "python >=3.11"}


def test_containers_ask_for_extras_that_there_are() -> None:
    for name in ("Dockerfile", "apptainer.def"):
        (extras,) = re.findall(r"EXTRAS=(\S+)", (CI / name).read_text())
        assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])


def test_the_version_is_one_of_three_numbers_or_of_commits_since() -> None:
    assert re.fullmatch(r"\d+\.\d+(\.\d+)?(\.dev\d+)?(\+\S+)?", mpimbs.__version__)
    assert "\n## " in (PAGES / "changelog.md").read_text()
