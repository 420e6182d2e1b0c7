"""Expressions of a query over one table: filters, projections, sort keys. They are evaluated like join conditions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from dovetail.columns.batches import one_batch
from dovetail.condition import Column, Expression, evaluate, passing, read_sql
from dovetail.condition.bind import Binder
from dovetail.condition.dialect import spark_text
from dovetail.condition.expression import quoted_if_needed
from dovetail.condition.select import parse_order
from dovetail.core.rows import Side
from dovetail.errors import ConditionError, InputError
from dovetail.execution.ordered import Words, in_order, ranks_of
from dovetail.query.relations import numbers_in, with_columns

NOTHING = pa.schema([])
ColumnKey = tuple[int, str]
OUTPUT = -1
"""The relation number of columns of the result."""


@dataclass(frozen=True)
class Rows:
    """A table with columns of several relations, under new names."""

    table: pa.Table
    names: Mapping[ColumnKey, str]

    def text(self, tree: exp.Expr, alias: str = "l") -> str:
        """An expression over this table, as condition text."""

        def column(number: int, name: str) -> exp.Expr:
            if (number, name) not in self.names:
                raise ConditionError(f"{name} is neither grouped nor aggregated. Add it to GROUP BY, or aggregate it.")
            return exp.Var(this=f"{alias}.{quoted_if_needed(self.names[number, name])}")

        for unknown in tree.find_all(exp.Column):
            if not numbers_in(unknown):
                raise ConditionError(f"{unknown.sql()}: no such column.")
        return spark_text(with_columns(tree, column))

    def bound(self, tree: exp.Expr) -> Expression:
        schemas = (self.table.schema, NOTHING)
        return Binder(schemas).bind(read_sql(self.text(tree), schemas))

    def value(self, tree: exp.Expr) -> pa.ChunkedArray:
        """The value of an expression for each row. A plain column is returned as it is."""
        bound = self.bound(tree)
        if isinstance(bound, Column):
            return self.table.column(bound.name)
        batch = one_batch(self.table, self.table.schema)
        values = evaluate(bound, batch, None)
        return pa.chunked_array([values], values.type)

    def where(self, parts: Sequence[exp.Expr]) -> Rows:
        """The rows for which all parts are true."""
        if not parts:
            return self
        conditions = [self._condition(part) for part in parts]
        kept = passing(conditions, Side.LEFT, one_batch(self.table, self.table.schema))
        return self if kept is None else Rows(self.table.filter(pa.array(kept)), self.names)

    def _condition(self, part: exp.Expr) -> Expression:
        bound = self.bound(part)
        if bound.type is not None and not pa.types.is_boolean(bound.type) and not pa.types.is_null(bound.type):
            raise ConditionError(f"{self.text(part)} is not a condition: it is {bound.type}, not true or false.")
        return bound

    def sorted_by(self, keys: Sequence[exp.Expr]) -> pa.Array:
        """The row numbers in sort order."""
        return pa.array(in_order(self.ranks(keys)))

    def ranks(self, keys: Sequence[exp.Expr]) -> list[Words]:
        """The rank of each row by each key. Equal values have equal ranks."""
        texts = []
        for key in keys:
            value, words = key, ""
            if isinstance(key, exp.Ordered):
                value = key.this
                first = key.args.get("nulls_first")
                words = " DESC" if key.args.get("desc") else " ASC"
                words += "" if first is None else f" NULLS {'FIRST' if first else 'LAST'}"
            texts.append(self.text(value) + words)
        schema = self.table.schema
        parsed = parse_order(texts, schema, NOTHING)
        batch = one_batch(self.table, schema)
        return [ranks_of(key, batch).of_rows for key in parsed]


def whole_number(tree: exp.Expr | None, what: str) -> int | None:
    """The number of LIMIT or OFFSET."""
    if tree is None:
        return None
    value = tree.args.get("expression")
    if not isinstance(value, exp.Literal) or value.is_string or not value.name.isdigit():
        raise InputError(f"{what} takes a whole number here; got {tree.sql().strip()}.")
    return int(value.name)
