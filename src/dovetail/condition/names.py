"""Resolves column names: exact spelling first, then, as in Spark, any case if that is unambiguous."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Any

import pyarrow as pa

from dovetail.condition import types
from dovetail.condition.expression import Column
from dovetail.core.rows import Side
from dovetail.errors import ConditionError

Schemas = tuple[pa.Schema, pa.Schema]

SIDE_NAMES = {Side.LEFT: "left", Side.RIGHT: "right"}
SHOWN_COLUMNS = 20  # in an error message


def candidates(schema: pa.Schema, name: str) -> list[str]:
    """The columns that `name` could refer to."""
    exact = [n for n in schema.names if n == name]
    return exact or [n for n in schema.names if n.casefold() == name.casefold()]


def resolve(side: Side, name: str, schemas: Schemas) -> Column:
    """The column `name` of one side, with its type."""
    schema = schemas[side]
    found = candidates(schema, name)
    if not found:
        raise ConditionError(_unknown(side, name, schema))
    if len(found) > 1:
        raise ConditionError(
            f"{side.alias}.{name} is ambiguous: the {SIDE_NAMES[side]} input has {list_names(found)}. "
            "Rename one of them, or spell the name exactly."
        )
    type_ = schema.field(found[0]).type
    if isinstance(type_, pa.BaseExtensionType) and not types.is_period(type_):
        type_ = type_.storage_type  # the storage type is compared. A type defined in Python cannot even be hashed
    return Column(side, found[0], type_)


def resolve_unqualified(name: str, schemas: Schemas) -> Column:
    """A column written without l. or r.: allowed if only one side has it."""
    sides = [side for side in Side if candidates(schemas[side], name)]
    if len(sides) == 2:
        raise ConditionError(f"{name} is on both sides: write l.{name} or r.{name}.")
    if not sides:
        close = close_name(name, [*schemas[Side.LEFT].names, *schemas[Side.RIGHT].names])
        hint = f"; did you mean {close}?" if close else "."
        raise ConditionError(
            f"{name}: no such column on either side{hint} "
            f"The left input has: {list_names(schemas[Side.LEFT].names)}. "
            f"The right input has: {list_names(schemas[Side.RIGHT].names)}."
        )
    return resolve(sides[0], name, schemas)


def names_column(on: str, schemas: Schemas) -> bool:
    """Whether the text is the name of a column of both sides, not a condition."""
    if all(on in schema.names for schema in schemas):
        return True
    return all(candidates(schema, on) for schema in schemas) and re.fullmatch(r"\w+", on) is not None


def is_text(item: str, schemas: Schemas) -> bool:
    """Whether a list item is a condition, not a name: it has an alias, an operator or a space in it, and no column is
    called that."""
    if any(item in schema.names for schema in schemas):
        return False
    return not item or re.search(r"^[lr]\.|[=<>()\s]", item, re.IGNORECASE) is not None


def is_pair(item: Any) -> bool:
    """Whether a list item is a pair of a left and a right column that must be equal."""
    return isinstance(item, tuple) and [*map(type, item)] == [str, str]


def shared_columns(on: Any, schemas: Schemas) -> tuple[tuple[int, int], ...]:
    """The columns that a condition gives by one name for both sides: their positions on the left and on the right. The
    result has such a column once, as with USING in SQL."""
    if isinstance(on, str):
        on = [on] if names_column(on, schemas) else []
    found = []
    for item in on if isinstance(on, list | tuple) else ():
        if is_pair(item):
            names = item if item[0] == item[1] else None
        else:
            names = (item, item) if isinstance(item, str) and not is_text(item, schemas) else None
        if names is not None:
            found.append(tuple(schemas[side].names.index(resolve(side, names[side], schemas).name) for side in Side))
    return tuple(dict.fromkeys((left, right) for left, right in found))


def _unknown(side: Side, name: str, schema: pa.Schema) -> str:
    close = close_name(name, schema.names)
    hint = f"; did you mean {side.alias}.{close}?" if close else "."
    return f"{side.alias}.{name}: no such column{hint} The {SIDE_NAMES[side]} input has: {list_names(schema.names)}."


def close_name(name: str, names: list[str]) -> str | None:
    by_lower = {n.casefold(): n for n in names}
    close = get_close_matches(name.casefold(), list(by_lower), n=1)
    return by_lower[close[0]] if close else None


def list_names(names: list[str]) -> str:
    if not names:
        return "no columns"
    more = f", … ({len(names)} columns)" if len(names) > SHOWN_COLUMNS else ""
    return ", ".join(names[:SHOWN_COLUMNS]) + more
