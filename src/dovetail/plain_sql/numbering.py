"""ROW_NUMBER, RANK and DENSE_RANK over tables in this process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sqlglot import exp

from dovetail.plain_sql.expressions import OUTPUT, ColumnKey, Rows
from dovetail.query.ranking import is_rank
from dovetail.query.relations import MARK
from dovetail.query.select import Tail
from dovetail.query.text import name_of

Words = NDArray[np.int64]


def without_windows(tail: Tail) -> tuple[Tail, dict[str, exp.Window]]:
    """The rest of the query with columns instead of window functions, and the window functions by column."""
    windows: dict[str, exp.Window] = {}

    def replaced(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Window) or not is_rank(node):
            return node
        known = next((name for name, window in windows.items() if window == node), f"number{len(windows)}")
        windows[known] = node
        return exp.Column(this=name_of(known), table=name_of(f"{MARK}{OUTPUT}"))

    projections = [tree.copy().transform(replaced) for tree in tail.projections]
    others = {key: tree.copy().transform(replaced) for key, tree in tail.others.items()}
    return replace(tail, projections=projections, others=others), windows


def with_numbers(rows: Rows, windows: Mapping[str, exp.Window]) -> Rows:
    """The rows with a column for each window function."""
    table = rows.table
    names: dict[ColumnKey, str] = dict(rows.names)
    for name, window in windows.items():
        column = f"row {name}"
        table = table.append_column(column, pa.array(_numbers(rows, window), pa.int32()))
        names[OUTPUT, name] = column
    return Rows(table, names)


def _numbers(rows: Rows, window: exp.Window) -> Words:
    """The value of a window function for each row."""
    order = window.args.get("order")
    groups = _ranks(rows, list(window.args.get("partition_by") or ()))
    keys = _ranks(rows, [] if order is None else order.expressions)
    count = rows.table.num_rows
    places = np.arange(count)
    sorted_ = np.lexsort([*keys[::-1], *groups[::-1]]) if groups or keys else places
    first = _changes(groups, sorted_)
    other = first | _changes(keys, sorted_)
    start = np.maximum.accumulate(np.where(first, places, 0))
    match window.this.name.lower():
        case "row_number":
            found = places - start
        case "rank":
            found = np.maximum.accumulate(np.where(other, places, 0)) - start
        case _:
            distinct = np.cumsum(other)
            found = distinct - distinct[start] if count else distinct
    numbers = np.empty(count, np.int64)
    numbers[sorted_] = found + 1
    return numbers


def _ranks(rows: Rows, keys: list[exp.Expr]) -> list[Words]:
    return rows.ranks(keys) if keys else []


def _changes(keys: list[Words], order: Words) -> NDArray[np.bool_]:
    """Which rows, in this order, differ from the previous one in some key. The first row does."""
    changed = np.zeros(len(order), np.bool_)
    changed[:1] = True
    for key in keys:
        in_order = key[order]
        changed[1:] |= in_order[1:] != in_order[:-1]
    return changed
