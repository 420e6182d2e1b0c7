"""What each function of a condition computes: comparisons, logic and choices here, the rest in two neighbours.

Every function takes the call and its evaluated arguments: arrays of equal length, of the types that binding chose.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from functools import lru_cache, reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dovetail.condition import casts, number_functions, text_functions, types
from dovetail.condition.expression import Call, Literal, type_of
from dovetail.condition.sort_keys import sort_keys
from dovetail.core.codes import order_codes

Function = Callable[[Call, list[pa.Array]], pa.Array]

ARROW_COMPARISONS: dict[str, Callable[..., pa.Array]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
CODE_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
LONG_LIST = 8  # from here on, IN is a set lookup


def compare(function: str, left: pa.Array, right: pa.Array) -> pa.Array:
    """One comparison; NaN through order codes, because Arrow says that it equals nothing; structs and lists by keys."""
    if pa.types.is_nested(left.type):
        left, right = sort_keys(left), sort_keys(right)
    if not pa.types.is_floating(left.type) or not (_has_nan(left) or _has_nan(right)):
        return ARROW_COMPARISONS[function](left, right)
    a, b = order_codes(left), order_codes(right)
    return mask_array(CODE_COMPARISONS[function](a.values, b.values), _both(a.valid, b.valid))


def _has_nan(array: pa.Array) -> bool:
    return bool(pc.any(pc.is_nan(array)).as_py())


def mask_array(values: NDArray[Any], valid: NDArray[np.bool_] | None) -> pa.Array:
    return pa.array(values, mask=None if valid is None else ~valid)


def _both(left: NDArray[np.bool_] | None, right: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
    if left is None or right is None:
        return right if left is None else left
    return left & right


def _compare(call: Call, args: list[pa.Array]) -> pa.Array:
    return compare(call.function, *args)


def _same(call: Call, args: list[pa.Array]) -> pa.Array:
    """Equal, where null equals null and the answer is never null."""
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


def _isnan(call: Call, args: list[pa.Array]) -> pa.Array:
    return pc.fill_null(pc.is_nan(args[0]), False)


def _in(call: Call, args: list[pa.Array]) -> pa.Array:
    items = call.args[1:]
    constants = [item.value for item in items if isinstance(item, Literal)]
    value = args[0]
    if len(constants) < max(len(items), LONG_LIST) or pa.types.is_floating(value.type):
        return reduce(pc.or_kleene, (compare("=", value, item) for item in args[1:]))
    found = pc.is_in(value, pa.array([c for c in constants if c is not None], value.type))
    # Unknown rather than false: for a null, and for a value that a null in the list might have been.
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


def _coalesce(call: Call, args: list[pa.Array]) -> pa.Array:
    return pc.coalesce(*args)


def _case(call: Call, args: list[pa.Array]) -> pa.Array:
    """condition, value, condition, value, …, default: the last condition first, so that earlier ones win."""
    result = args[-1]
    for condition, value in reversed(list(zip(args[:-1:2], args[1:-1:2], strict=True))):
        result = pc.if_else(pc.fill_null(condition, False), value, result)
    return result


def _extreme(call: Call, args: list[pa.Array]) -> pa.Array:
    """greatest and least skip nulls, as in Spark."""
    better = ">" if call.function == "greatest" else "<"

    def pick(best: pa.Array, other: pa.Array) -> pa.Array:
        replace = pc.or_(pc.is_null(best), pc.fill_null(compare(better, other, best), False))
        return pc.if_else(replace, other, best)

    return reduce(pick, args)


def _cast(call: Call, args: list[pa.Array]) -> pa.Array:
    return casts.cast(args[0], type_of(call))


def _field(call: Call, args: list[pa.Array]) -> pa.Array:
    name = call.args[1]
    assert isinstance(name, Literal)
    return pc.struct_field(args[0], [name.value])


def _sort_key(call: Call, args: list[pa.Array]) -> pa.Array:
    return sort_keys(args[0])


def _overlaps(call: Call, args: list[pa.Array]) -> pa.Array:
    start, end, other_start, other_end = args
    return pc.and_kleene(compare("<", start, other_end), compare(">", end, other_start))


FUNCTION_TABLE: dict[str, Function] = {
    **dict.fromkeys(ARROW_COMPARISONS, _compare),
    "<=>": _same,
    "and": _and,
    "or": _or,
    "not": _not,
    "is_null": _is_null,
    "isnan": _isnan,
    "in": _in,
    "like": _like,
    "coalesce": _coalesce,
    "case": _case,
    "greatest": _extreme,
    "least": _extreme,
    "cast": _cast,
    "field": _field,
    "sort_key": _sort_key,
    "overlaps": _overlaps,
    **number_functions.TABLE,
    **text_functions.TABLE,
}
