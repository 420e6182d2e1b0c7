"""The notebooks in examples/ run as stored, and their stored outputs are current."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from tests.patience import PATIENCE_S

NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples").glob("*.ipynb"))


def outputs(notebook: Any) -> list[list[set[str]]]:
    """The content types of each output of each code cell."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [[set(output.get("data", {})) for output in cell.outputs] for cell in cells]


def charts(notebook: Any) -> int:
    found = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return sum("<svg" in output.get("data", {}).get("text/html", "") for output in found)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_it_is_stored_with_its_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert all(cell.execution_count for cell in notebook.cells if cell.cell_type == "code")
    assert charts(notebook) == 2  # a plan, and one chart that was updated in place
    told = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert {output.output_type for output in told} == {"display_data", "execute_result"}


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_it_runs(path: Path, tmp_path: Path) -> None:
    stored = nbformat.read(path, as_version=4)
    again = nbformat.read(path, as_version=4)
    NotebookClient(
        again, timeout=PATIENCE_S, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    assert outputs(again) == outputs(stored)
    assert charts(again) == charts(stored)
