"""Rows as a readable table: as wide as the terminal, with columns of both inputs."""

from __future__ import annotations

import io

import pyarrow as pa
import pytest
from rich.console import Console

from dovetail.cli.table import ColumnOfResult, show_table

NAMES = ["order_id", "customer", "ordered_at", "amount", "note", "payment_id", "paid", "payer", "remark"]
TEXT = {"customer", "note", "payer", "remark"}
ROWS = pa.table({name: ["a rather long text, which goes on"] * 2 if name in TEXT else [1, 20] for name in NAMES})
KNOWN = [ColumnOfResult(name in NAMES[5:], name in ("amount", "paid")) for name in NAMES]


def shown(rows: pa.Table, width: int, known: list[ColumnOfResult], *, terminal: bool = True) -> tuple[list[str], str]:
    console = Console(file=io.StringIO(), width=width, force_terminal=terminal, color_system=None)
    said = show_table(rows, console, known)
    return console.file.getvalue().splitlines(), said  # type: ignore[attr-defined]


def test_all_columns_where_there_is_room() -> None:
    lines, said = shown(ROWS, 240, KNOWN)
    assert (lines[0].split(), said) == (NAMES, "")
    assert "a rather long text, which goes on" in lines[1]


def test_values_are_shortened_first() -> None:
    lines, said = shown(ROWS, 120, KNOWN)
    assert (lines[0].split(), said) == (NAMES, "")
    assert "a rather lo…" in lines[1]


@pytest.mark.parametrize("width", [45, 60, 80, 100])
def test_a_narrow_terminal_shows_both_inputs(width: int) -> None:
    lines, said = shown(ROWS, width, KNOWN)
    assert max(map(len, lines)) <= width
    header = lines[0].split()
    assert {"amount", "paid"} <= set(header)  # used in the condition
    left_out = sum(name not in header for name in NAMES)
    assert said.startswith(f"{left_out} of 9 columns are left out: --select")
    places = [NAMES.index(name) for name in header if name != "…"]
    assert places == sorted(places)
    assert "…" in header


def test_numbers_are_never_cut_off() -> None:
    rows = pa.table({"n": [12345678901234567], "text": ["x" * 60], "m": [0.12345678901234]})
    known = [ColumnOfResult(False, True), ColumnOfResult(False, False), ColumnOfResult(True, True)]
    lines, _ = shown(rows, 60, known)
    assert "12345678901234567" in lines[1]
    assert "0.12345678901234" in lines[1]


def test_no_column_is_left_out_of_a_file() -> None:
    lines, said = shown(ROWS, 40, KNOWN, terminal=False)
    assert (lines[0].split(), said) == (NAMES, "")
    assert len(lines) == 3


def test_nulls_names_and_no_rows() -> None:
    rows = pa.table({"a\x1b[31m": pa.array([None], pa.int64()), "b": ["null"]})
    lines, _ = shown(rows, 40, [ColumnOfResult(False, True), ColumnOfResult(True, True)])
    assert lines[0].split() == ["a\\x1b[31m", "b"]
    assert lines[1].split() == ["null", "null"]
    assert (
        shown(rows.slice(0, 0), 40, [ColumnOfResult(False, True), ColumnOfResult(True, True)])[0][0].split()
        == lines[0].split()
    )
