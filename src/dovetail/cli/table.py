"""Prints rows as a table that fits the terminal.

If it is too narrow for all columns, values are shortened first. Then columns are left out, alternating between the
inputs, so that some of each stay visible. Columns of the condition are left out last.

    id  price  …  id_right  name  …
     1   1.50  …         1  x     …
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, zip_longest
from typing import NamedTuple

import pyarrow as pa
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dovetail.visible import visible

WIDEST = (48, 24, 12)  # maximum characters of a value: the first width at which all columns fit is used
GAP = 2
LEFT_OUT = "…"


class ColumnOfResult(NamedTuple):
    """What is known about a column of the result."""

    of_right: bool
    is_key: bool  # the condition uses it


class _Shown(NamedTuple):
    """A column as text."""

    name: str
    values: list[str]
    is_number: bool

    def width(self, widest: int) -> int:
        """The width of the column. Digits are not truncated: that would be another number."""
        needed = max(map(_cells, (self.name, *self.values)))
        return needed if self.is_number else min(widest, needed)


def show_table(rows: pa.Table, console: Console, known: Sequence[ColumnOfResult]) -> str:
    """Print the rows. Returns a message if columns are left out."""
    columns = [_column(field, rows.column(number)) for number, field in enumerate(rows.schema)]
    shown, widest = list(range(len(columns))), WIDEST[0]
    if console.is_terminal:  # never truncate where the output cannot be widened
        shown, widest = _fit(columns, console.width, _by_importance(known))
    console.print(_draw(columns, rows.num_rows, shown, widest, console), crop=False)
    left_out = len(columns) - len(shown)
    return f"{left_out} of {len(columns)} columns are left out: --select shows those that you name" if left_out else ""


def _column(field: pa.Field, values: pa.ChunkedArray) -> _Shown:
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    words = list(map(_words, values.to_pylist()))
    return _Shown(visible(field.name, one_line=True), words, any(test(field.type) for test in tests))


def _by_importance(known: Sequence[ColumnOfResult]) -> list[int]:
    """The columns of the condition, then alternately one of the left and one of the right input."""

    def turns(keys: bool) -> list[int]:
        sides = (
            [place for place, column in enumerate(known) if column == (of_right, keys)] for of_right in (False, True)
        )
        return [place for place in chain(*zip_longest(*sides)) if place is not None]

    return turns(True) + turns(False)


def _fit(columns: Sequence[_Shown], width: int, order: Sequence[int]) -> tuple[list[int], int]:
    """The positions of the columns that fit in the width, and the maximum characters of a value."""
    for widest in WIDEST:
        widths = [column.width(widest) for column in columns]
        if sum(widths) + GAP * len(widths) <= width:
            return list(range(len(columns))), widest
    most_gaps = 3  # between the inputs, within one, at the end
    free, found = width - most_gaps * (len(LEFT_OUT) + GAP), list(order[:1])
    for place in order[1:]:
        if sum(widths[each] + GAP for each in (*found, place)) <= free:
            found.append(place)
    return sorted(found), WIDEST[-1]


def _draw(columns: Sequence[_Shown], rows: int, shown: Sequence[int], widest: int, console: Console) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    cells, last = [], -1
    for place in shown:
        if place != last + 1:
            cells.append(_gap(table, rows))
        column, last = columns[place], place
        most = column.width(widest)
        name = Text(_shorten(column.name, most))
        table.add_column(name, justify="right" if column.is_number else "left", no_wrap=console.is_terminal)
        cells.append([_cell(words, most) for words in column.values])
    if last + 1 < len(columns):
        cells.append(_gap(table, rows))
    for row in zip(*cells, strict=True):
        table.add_row(*row)
    if not console.is_terminal:
        table.width = console.measure(table, options=console.options.update(width=1 << 14)).maximum
    return table


def _gap(table: Table, rows: int) -> list[Text]:
    """The column that stands for those left out."""
    table.add_column(Text(LEFT_OUT, "dim"))
    return [Text(LEFT_OUT, "dim")] * rows


NULL = "\0"
"""Marks a null among texts. No visible text contains it."""


def _words(value: object) -> str:
    return NULL if value is None else visible(str(value).replace("\n", "⏎"), one_line=True)


def _cells(words: str) -> int:
    """The number of terminal cells of a text; some characters are two cells wide."""
    return 4 if words == NULL else Text(words).cell_len


def _cell(words: str, widest: int) -> Text:
    return Text("null", "dim") if words == NULL else Text(_shorten(words, widest))


def _shorten(words: str, widest: int) -> str:
    return words if len(words) <= widest else words[: widest - 1] + LEFT_OUT
