"""`dovetail state`: shows what streaming joins keep in a directory, and removes what is no longer needed."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from datetime import timedelta

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dovetail.core.addresses import redacted
from dovetail.errors import InputError
from dovetail.monitoring.formatting import format_bytes
from dovetail.storage.stored_state import StoredCell, removable_query, stored_joins
from dovetail.visible import visible

YOUNG_S = 3600  # a query that wrote state within this time may still be running
WIDE = 200  # columns, where nothing is truncated
JOIN_COLUMNS = ("cells", "rows", "skew", "bytes", "segments", "written")
CELL_COLUMNS = ("cell", "rows", "bytes", "segments", "written")


def show_state(state_dir: str, query: str | None, by_cell: bool, console: Console) -> None:
    """Print a table of all joins, or of all cells."""
    joins = stored_joins(state_dir, query)
    table = Table(box=None, pad_edge=False)
    for name in ("query", "join", "algorithm"):
        table.add_column(name, no_wrap=True)
    for name in CELL_COLUMNS if by_cell else JOIN_COLUMNS:
        table.add_column(name, justify="right", no_wrap=True)
    for join in joins:
        cells = join.cells()
        for line in map(_cell_line, cells) if by_cell else [_join_line(cells)]:
            names = (Text(visible(name, one_line=True)) for name in (join.query, join.name, join.algorithm))
            table.add_row(*names, *line)
    if not joins:
        _say(console, f"{redacted(state_dir)}: no join of streams keeps state here.")
        return
    wide = console if console.is_terminal else Console(file=console.file, width=WIDE)
    wide.print(table, highlight=False)


def _cell_line(cell: StoredCell) -> Sequence[str]:
    return str(cell.number), f"{cell.rows:,}", format_bytes(cell.nbytes), f"{cell.segments:,}", _ago(cell.written)


def _join_line(cells: Sequence[StoredCell]) -> Sequence[str]:
    rows = [cell.rows for cell in cells]
    if not sum(rows):
        return f"{len(cells):,}", "0", "-", "-", "-", "-"
    nbytes, segments = sum(cell.nbytes for cell in cells), sum(cell.segments for cell in cells)
    skew = max(rows) * len(rows) / sum(rows)
    written = max(cell.written for cell in cells)
    return f"{len(cells):,}", f"{sum(rows):,}", f"{skew:.2f}", format_bytes(nbytes), f"{segments:,}", _ago(written)


def _ago(written: float) -> str:
    return f"{timedelta(seconds=max(0, int(time.time() - written)))} ago"


def clean_state(state_dir: str, query: str, yes: bool, console: Console) -> None:
    """Remove all state of a query, if its directory contains nothing else. Without `yes` it asks first."""
    found = removable_query(state_dir, query)
    what = f"{found.directory}: {format_bytes(found.nbytes)}, written {_ago(found.written)}"
    if not yes:
        if time.time() - found.written < YOUNG_S:
            raise InputError(f"{what}: the query may be running. Stop it; to remove its state then, add --yes.")
        if not sys.stdin.isatty():
            raise InputError(f"{what}. To remove it without being asked, add --yes.")
        question = f"{what}. Its query cannot be started again without it. Remove it? [y/N] "
        if console.input(visible(question), markup=False).lower() != "y":
            _say(console, "nothing was removed")
            return
    found.remove()
    _say(console, f"removed {what}")


def _say(console: Console, words: str) -> None:
    console.print(visible(words), highlight=False, markup=False, soft_wrap=True)
