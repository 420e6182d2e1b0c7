"""Checks `validate="1:m"`, before anything is joined: whether the keys of a join are unique on a side.

A key consists of the values that the condition compares for equality. Rows with a null in the key match nothing and are
ignored, and so are rows that fail the filters of the condition.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dovetail.columns.batches import empty_batch, one_batch
from dovetail.condition import Condition, Equal, Expression, columns_of, evaluate, passing, text_of
from dovetail.core.rows import Side
from dovetail.errors import InputError, PlanError
from dovetail.sources.protocol import Scan

UNIQUE = {
    "1:1": tuple(Side),
    "1:m": (Side.LEFT,),
    "m:1": (Side.RIGHT,),
    "m:m": (),
    "one_to_one": tuple(Side),
    "one_to_many": (Side.LEFT,),
    "many_to_one": (Side.RIGHT,),
    "many_to_many": (),
}
"""The sides whose keys must be unique, by the names that pandas and Polars use."""


def keys_of(condition: Condition) -> tuple[Sequence[Expression], Sequence[Expression]]:
    """The keys of both sides. A condition with more than equalities has no keys that could be unique."""
    equalities = [predicate for predicate in condition.predicates if isinstance(predicate, Equal)]
    if condition.residual or condition.alternatives or not equalities or len(equalities) < len(condition.predicates):
        raise PlanError(
            f"validate= is for joins on equalities, such as on='id'; the condition is {condition.text}. Leave it out, "
            "or count partners with dovetail.aggregate."
        )
    return [one.left for one in equalities], [one.right for one in equalities]


def check_unique(validate: str | None, condition: Condition, scans: tuple[Scan, Scan]) -> None:
    """Raise an error if a key repeats on a side where it must be unique."""
    for side in UNIQUE[validate] if validate is not None else ():
        keys = keys_of(condition)[side]
        filters = condition.filters[side]
        names = {column.name for part in (*keys, *filters) for column in columns_of(part)}
        table = scans[side].to_table([name for name in condition.schemas[side].names if name in names])
        rows = one_batch(table, table.schema)
        sides = (
            (rows, empty_batch(condition.schemas[1]))
            if side is Side.LEFT
            else (empty_batch(condition.schemas[0]), rows)
        )
        columns = [evaluate(key, *sides) for key in keys]
        found = pa.table([_comparable(column) for column in columns], names=[str(n) for n in range(len(keys))])
        if (mask := passing(filters, side, rows)) is not None:
            found = found.filter(pa.array(mask))
        counts = found.drop_null().group_by(found.column_names).aggregate([([], "count_all")])
        again = counts.filter(pc.field("count_all") > 1).slice(0, 1).to_pylist()
        if again:
            raise not_unique(validate, side, keys, [again[0][str(n)] for n in range(len(keys))], again[0]["count_all"])


def not_unique(
    validate: str | None, side: Side, keys: Sequence[Expression], values: Sequence[Any], times: int
) -> InputError:
    told = ", ".join(f"{text_of(key)} = {value!r}" for key, value in zip(keys, values, strict=True))
    return InputError(
        f"validate={validate!r}: keys of the {side.name.lower()} input are not unique: {told} comes {times:,} times. "
        "Remove what is there twice, or validate='m:m'."
    )


def _comparable(column: Any) -> Any:
    """Values in a type that Arrow can group by."""
    type_ = column.type
    if isinstance(type_, pa.BaseExtensionType):
        return _comparable(column.storage if isinstance(column, pa.Array) else column.cast(type_.storage_type))
    return column.dictionary_decode() if pa.types.is_dictionary(type_) else column
