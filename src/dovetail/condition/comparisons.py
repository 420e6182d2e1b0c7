"""Compares two arrays row by row: null is unknown, NaN equals NaN and is the largest value, -0.0 equals 0.0."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dovetail.condition import types
from dovetail.condition.sort_keys import sort_keys
from dovetail.core.codes import order_codes

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


def compare(function: str, left: pa.Array, right: pa.Array) -> pa.Array:
    """One comparison; floats by order codes, since in Arrow NaN equals nothing; structs and lists by sort keys."""
    if pa.types.is_nested(left.type):
        left, right = sort_keys(left), sort_keys(right)
    if pa.types.is_null(left.type):
        return pa.nulls(len(left), types.BOOLEAN)
    if not pa.types.is_floating(left.type) or not (_has_nan(left) or _has_nan(right)):
        return ARROW_COMPARISONS[function](left, right)
    a, b = order_codes(left), order_codes(right)
    return _mask(CODE_COMPARISONS[function](a.values, b.values), _both(a.valid, b.valid))


def _has_nan(array: pa.Array) -> bool:
    return bool(pc.any(pc.is_nan(array)).as_py())


def _mask(values: NDArray[Any], valid: NDArray[np.bool_] | None) -> pa.Array:
    return pa.array(values, mask=None if valid is None else ~valid)


def _both(left: NDArray[np.bool_] | None, right: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
    if left is None or right is None:
        return right if left is None else left
    return left & right
