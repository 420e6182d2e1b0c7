"""Evaluates bound expressions in process, row by row, over Arrow columns.

null never matches (three-valued logic). NaN equals NaN and is larger than everything, -0.0 equals 0.0. Integer
overflow is an error. Division by zero gives null (Spark in ANSI mode stops the query instead).

Functions with their own syntax are computed here and in `arithmetic.py`, all others by their entries in `functions.py`.
Arguments are arrays of equal length, of the types that binding chose.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache, partial, reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dovetail.condition import arithmetic, casts, functions, literals, types
from dovetail.condition.comparisons import ARROW_COMPARISONS, compare
from dovetail.condition.expression import Call, Column, Expression, Literal, Opaque, columns_of, type_of
from dovetail.condition.predicates import Condition
from dovetail.condition.render import text_of
from dovetail.condition.sort_keys import sort_keys
from dovetail.core.rows import Rows, Side
from dovetail.errors import ConditionError

LONG_LIST = 8  # from this length, IN is a set lookup


def evaluate(expression: Expression, left: pa.RecordBatch | None, right: pa.RecordBatch | None) -> pa.Array:
    """One value per row of the given batches, which have the same number of rows; a single row if no batch is given."""
    batch = right if left is None else left
    return _value(expression, (left, right), 1 if batch is None else batch.num_rows)


def _value(expression: Expression, batches: tuple[pa.RecordBatch | None, pa.RecordBatch | None], rows: int) -> pa.Array:
    match expression:
        case Column(side, name):
            batch = batches[side]
            assert batch is not None, f"no batch for {side.alias}.{name}"
            column = batch.column(name)
            return column.storage if isinstance(column.type, pa.BaseExtensionType) else column
        case Literal():
            return pa.repeat(literals.scalar(expression), rows)
        case Opaque(sql):
            raise ConditionError(
                f"{sql} can be evaluated by Spark only. Use Spark DataFrames, or rewrite the condition."
            )
        case Call(function, args):
            try:
                values = [_value(arg, batches, rows) for arg in (args[:1] if function == "place" else args)]
                return COMPUTED[function](expression, values)
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

    Each conjunct reads only the columns it needs, and only the pairs that passed the ones before.
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
    """Arrow cannot take rows from views and run-end encoded columns yet."""
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
    """Which rows of one side pass its filters. None: there are no filters, so all rows pass."""
    if not filters:
        return None
    result = np.ones(batch.num_rows, np.bool_)
    for filter_ in filters:
        # Only rows that passed so far: a later filter may rely on an earlier one, as in `l.x != 0 AND 1 / l.x > 2`.
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
    """Rows of one side that can match (None: all of them), with their keys: filters pass and no key is null."""
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


def _compare(call: Call, args: list[pa.Array]) -> pa.Array:
    return compare(call.function, *args)


def _same(call: Call, args: list[pa.Array]) -> pa.Array:
    """Equality where null equals null and the answer is never null."""
    left, right = args
    both_null = pc.and_(pc.is_null(left), pc.is_null(right))
    return pc.or_(both_null, pc.fill_null(compare("=", left, right), False))


def _and(call: Call, args: list[pa.Array]) -> pa.Array:
    return reduce(pc.and_kleene, args)


def _or(call: Call, args: list[pa.Array]) -> pa.Array:
    return reduce(pc.or_kleene, args)


def _not(call: Call, args: list[pa.Array]) -> pa.Array:
    return pc.invert(args[0])


def _is_null(call: Call, args: list[pa.Array]) -> pa.Array:
    return pc.is_null(args[0])


def _in(call: Call, args: list[pa.Array]) -> pa.Array:
    items = call.args[1:]
    constants = [item.value for item in items if isinstance(item, Literal)]
    value = args[0]
    if len(constants) < max(len(items), LONG_LIST) or pa.types.is_floating(value.type):
        return reduce(pc.or_kleene, (compare("=", value, item) for item in args[1:]))
    found = pc.is_in(value, pa.array([c for c in constants if c is not None], value.type))
    # Null rather than false: for a null value, and if a null in the list might have been equal.
    unknown = pc.and_(pc.invert(found), pc.is_null(value) if None not in constants else True)
    return pc.if_else(unknown, pa.scalar(None, types.BOOLEAN), found)


def _like(call: Call, args: list[pa.Array]) -> pa.Array:
    pattern = call.args[1]
    if isinstance(pattern, Literal) and pattern.value is not None:
        return pc.match_like(args[0], pattern.value)
    rows = zip(args[0].to_pylist(), args[1].to_pylist(), strict=True)
    return pa.array([None if v is None or p is None else bool(_regex(p).fullmatch(v)) for v, p in rows], types.BOOLEAN)


@lru_cache(maxsize=1024)
def _regex(pattern: str) -> re.Pattern[str]:
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    wild = {"%": ".*", "_": "."}
    return re.compile("".join(wild.get(p, re.escape(p[-1])) for p in parts), re.DOTALL)


def _case(call: Call, args: list[pa.Array]) -> pa.Array:
    """condition, value, condition, value, …, default: evaluated from the last condition, so that earlier ones win."""
    result = args[-1]
    for condition, value in reversed(list(zip(args[:-1:2], args[1:-1:2], strict=True))):
        result = pc.if_else(pc.fill_null(condition, False), value, result)
    return result


def _cast(call: Call, args: list[pa.Array]) -> pa.Array:
    return casts.cast(args[0], type_of(call))


def _field(call: Call, args: list[pa.Array]) -> pa.Array:
    name = call.args[1]
    assert isinstance(name, Literal)
    return pc.struct_field(args[0], [name.value])


def _sort_key(call: Call, args: list[pa.Array]) -> pa.Array:
    return sort_keys(args[0])


def _place(call: Call, args: list[pa.Array]) -> pa.Array:
    order = [literal.value for literal in call.args[1:] if isinstance(literal, Literal)]
    return pc.index_in(args[0], pa.array(order, args[0].type))


def _overlaps(call: Call, args: list[pa.Array]) -> pa.Array:
    start, end, other_start, other_end = args
    return pc.and_kleene(compare("<", start, other_end), compare(">", end, other_start))


def _plain(function: functions.Function, call: Call, args: list[pa.Array]) -> pa.Array:
    constants = [kind in functions.CONSTANTS for kind in function.kinds(len(args))]
    parts = zip(call.args, args, constants, strict=True)
    values = [arg.value if constant and isinstance(arg, Literal) else array for arg, array, constant in parts]
    result = function.compute(*values)
    return result if result.type == call.type else casts.cast(result, type_of(call))


COMPUTED: dict[str, Callable[[Call, list[pa.Array]], pa.Array]] = {
    **dict.fromkeys(ARROW_COMPARISONS, _compare),
    "<=>": _same,
    "and": _and,
    "or": _or,
    "not": _not,
    "is_null": _is_null,
    "in": _in,
    "like": _like,
    "case": _case,
    "cast": _cast,
    "field": _field,
    "sort_key": _sort_key,
    "place": _place,
    "overlaps": _overlaps,
    "neg": arithmetic.negate,
    "distance": arithmetic.distance,
    **arithmetic.BINARY,
    **{name: partial(_plain, function) for name, function in functions.FUNCTIONS.items()},
}
