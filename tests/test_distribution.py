"""The distribution: its name, its extras, and the conda recipe, which must agree with pyproject.toml."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from tools import spark_matrix

import dovetail
from dovetail.cli import doctor

ROOT = Path(__file__).parents[1]
RECIPE = (ROOT / "recipe" / "meta.yaml").read_text()
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def items(section: str) -> dict[str, SpecifierSet]:
    """A list of requirements in the recipe."""
    (found,) = re.findall(rf"^  {section}:\n((?:    - .+\n)+)", RECIPE, re.MULTILINE)
    pairs = (line.removeprefix("    - ").partition(" ") for line in found.splitlines())
    return {name: SpecifierSet(versions) for name, _, versions in pairs}


def needed(texts: list[str]) -> dict[str, SpecifierSet]:
    return {requirement.name: requirement.specifier for requirement in map(Requirement, texts)}


def test_the_recipe_names_the_same_project() -> None:
    values = dict(re.findall(r'{% set (\w+) = "([^"]+)" %}', RECIPE))
    assert values == {"name": PROJECT["name"], "version": dovetail.__version__}
    assert f'summary: "{PROJECT["description"]}"' in RECIPE
    assert f"license: {PROJECT['license']}\n" in RECIPE
    for command in PROJECT["scripts"].items():
        assert "    - {} = {}\n".format(*command) in RECIPE


def test_the_recipe_needs_the_same_packages() -> None:
    python = {"python": SpecifierSet(PROJECT["requires-python"])}
    assert items("run") == python | needed(PROJECT["dependencies"])
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert items("host") == python | {"pip": SpecifierSet()} | needed(build)


def test_the_recipe_constrains_what_extras_bring() -> None:
    extras = needed([text for name in ("spark", "postgres") for text in PROJECT["optional-dependencies"][name]])
    constrained = items("run_constrained")
    assert constrained == {name: extras[name] for name in constrained}
    assert {"pandas", "pyspark", "psycopg"} == constrained.keys()


@pytest.mark.parametrize("version", ["3.5.6", "4.0.0", "4.1.2", "4.3.0", "4.4.0"])
def test_the_versions_of_spark(version: str) -> None:
    """The versions tested by tools/spark_matrix.py, and accepted by `dovetail doctor`."""
    allowed = needed(PROJECT["optional-dependencies"]["spark"])["pyspark"]
    assert (version in allowed) == ("4.0" <= version < "4.4")
    oldest, newest = (".".join(map(str, numbers)) for numbers in (doctor.OLDEST_SPARK, doctor.TESTED_SPARK))
    assert f"{oldest}.0" in allowed
    assert f"{newest}.0" in allowed


@pytest.mark.parametrize("test", [*spark_matrix.TESTS, spark_matrix.NEWER, spark_matrix.OLDER])
def test_what_is_tried_with_each_version_is_there(test: str) -> None:
    file, _, name = test.partition("::")
    assert f"def {name}" in (ROOT / file).read_text()


def test_pages_name_the_distribution() -> None:
    """Installation commands, and files with its name."""
    pages = [ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]
    wheels = {name for page in pages for name in re.findall(r"\bdovetail[\w-]*-\d[\w.-]*\.whl", page.read_text())}
    assert wheels == {f"{PROJECT['name'].replace('-', '_')}-{dovetail.__version__}-py3-none-any.whl"}
    for page in pages:
        assert not re.search(r"pip install '?dovetail[^-_]", page.read_text()), page
