"""Bound expressions evaluated in process, row by row aligned, over Arrow columns.

null never matches (three-valued logic). NaN equals NaN and is larger than everything, -0.0 equals 0.0. Integer
overflow is an error. Division by zero gives null (Spark in ANSI mode stops the query instead).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.condition import casts, literals, types
from dovetail.condition.condition import Condition
from dovetail.condition.expression import Call, Column, Expression, Literal, Opaque, columns_of
from dovetail.condition.functions import FUNCTION_TABLE
from dovetail.condition.render import text_of
from dovetail.core.rows import Rows, Side
from dovetail.errors import ConditionError


def evaluate(expression: Expression, left: pa.RecordBatch | None, right: pa.RecordBatch | None) -> pa.Array:
    """One value per row of the given batches (which have equally many rows); one row if there are none."""
    rows = next((batch.num_rows for batch in (left, right) if batch is not None), 1)
    return _value(expression, (left, right), rows)


def _value(expression: Expression, batches: tuple[pa.RecordBatch | None, pa.RecordBatch | None], rows: int) -> pa.Array:
    match expression:
        case Column(side, name):
            batch = batches[side]
            assert batch is not None, f"no batch for {side.alias}.{name}"
            return batch.column(name)
        case Literal():
            return pa.repeat(literals.scalar(expression), rows)
        case Opaque(sql):
            raise ConditionError(
                f"{sql} can be evaluated by Spark only. Use Spark DataFrames, or rewrite the condition."
            )
        case Call(function, args):
            try:
                values = [_value(arg, batches, rows) for arg in args]
                return FUNCTION_TABLE[function](expression, values)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise ConditionError(_failure(expression, error)) from error


def _failure(call: Call, error: Exception) -> str:
    if "overflow" in str(error) or "precision" in str(error):
        return f"{text_of(call)}: a value does not fit in {call.type}. Cast an operand to a wider type."
    return f"{text_of(call)}: {error}"


def matching(
    conjuncts: Sequence[Expression],
    left: pa.RecordBatch,
    left_rows: Rows,
    right: pa.RecordBatch,
    right_rows: Rows,
) -> NDArray[np.bool_]:
    """Which of the pairs (left_rows[i], right_rows[i]) satisfy every conjunct.

    Each conjunct looks only at the columns it reads, and only at the pairs that the ones before it left over.
    """
    survivors = np.arange(len(left_rows))
    for conjunct in conjuncts:
        if not len(survivors):
            break
        rows = (left_rows[survivors], right_rows[survivors])
        taken = [
            _take_columns(conjunct, side, batch, rows[side]) for side, batch in ((Side.LEFT, left), (Side.RIGHT, right))
        ]
        survivors = survivors[_truth(evaluate(conjunct, taken[0], taken[1]))]
    result = np.zeros(len(left_rows), np.bool_)
    result[survivors] = True
    return result


def _take_columns(conjunct: Expression, side: Side, batch: pa.RecordBatch, rows: Rows) -> pa.RecordBatch:
    names = sorted({column.name for column in columns_of(conjunct) if column.side is side})
    if not names:
        return batch.select(names).take(pa.array(rows))
    return pa.record_batch([_takeable(batch.column(name)).take(pa.array(rows)) for name in names], names)


def _takeable(array: pa.Array) -> pa.Array:
    """Arrow cannot pick rows of views and of run-end encoded columns yet."""
    is_fixed = not (
        pa.types.is_string_view(array.type)
        or pa.types.is_binary_view(array.type)
        or pa.types.is_run_end_encoded(array.type)
    )
    return array if is_fixed else casts.cast(array, types.plain(array.type))


def _truth(array: pa.Array) -> NDArray[np.bool_]:
    """True where the value is true: neither false nor null."""
    filled = array.fill_null(False) if array.null_count else array
    return np.asarray(filled)


def passing(filters: Sequence[Expression], side: Side, batch: pa.RecordBatch) -> NDArray[np.bool_] | None:
    """Which rows of one side pass its filters. None: there are none, so all do."""
    if not filters:
        return None
    result = np.ones(batch.num_rows, np.bool_)
    for filter_ in filters:
        # Only rows that are still in: a later filter may rely on an earlier one, as in `l.x != 0 AND 1 / l.x > 2`.
        rows = np.flatnonzero(result)
        if not len(rows):
            break
        taken = _take_columns(filter_, side, batch, rows)
        value = evaluate(filter_, taken, None) if side is Side.LEFT else evaluate(filter_, None, taken)
        result[rows] = _truth(value)
    return result


def keyed_rows(
    condition: Condition, side: Side, batch: pa.RecordBatch, keys: Sequence[Expression]
) -> tuple[Rows | None, list[pa.Array]]:
    """Rows of one side that can match at all (None: all of them), with their keys: filters pass and no key is null."""
    sides = (batch, None) if side is Side.LEFT else (None, batch)
    columns = [evaluate(key, *sides) for key in keys]
    alive = passing(condition.filters[side], side, batch)
    for column in columns:
        if column.null_count:
            valid = np.asarray(column.is_valid())
            alive = valid if alive is None else alive & valid
    if alive is None:
        return None, columns
    rows = np.flatnonzero(alive)
    return rows, [column.take(pa.array(rows)) for column in columns]
