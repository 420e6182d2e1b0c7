"""A condition on two DataFrames: what runs in the cells, and what Spark evaluates before and after them.

l.k = r.k                      a typed predicate, in the cells
soundex(l.name) = r.code       Spark computes soundex(name) as an extra column; then as above
levenshtein(l.a, r.b) < 3      needs both rows: Spark filters the joined rows
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  everybody's name for it

from dovetail.batch import Side
from dovetail.condition import (
    Call,
    Column,
    Condition,
    Expression,
    Literal,
    Opaque,
    conjuncts_of,
    is_opaque,
    parse,
    quoted,
    sides_of,
    spark_sql,
)
from dovetail.spark.columns import expression_of
from dovetail.spark.schemas import arrow_schema, session_zone

GUESSED_WIDTH = 40  # bytes of a string or nested value

KEY = "__dovetail_key_"  # names of columns that Spark computes for the join


@dataclass(frozen=True, slots=True)
class Bound:
    condition: Condition
    frames: tuple[DataFrame, DataFrame]  # with the extra columns at the end
    extra: tuple[int, int]  # how many there are
    after: tuple[Expression, ...]  # conjuncts that Spark evaluates on joined rows

    def visible(self, side: Side) -> pa.Schema:
        """The user's columns of a side."""
        schema = self.condition.schema(side)
        return pa.schema(list(schema)[: len(schema) - self.extra[side]])

    def row_bytes(self, side: Side) -> int:
        """A guess at the size of a row, by its types."""
        return sum(_width(field.type) for field in self.condition.schema(side))


def bind_frames(on: Any, left: DataFrame, right: DataFrame) -> Bound:
    """Read the condition against two DataFrames. Runs no Spark job."""
    schemas = (arrow_schema(left), arrow_schema(right))
    lifted = _Lifted([left, right])
    inside: list[Expression] = []
    after: list[Expression] = []
    for conjunct in _split(_expressions(on, left, right, schemas)):
        if _needs_both(conjunct):
            after.append(conjunct)
        else:
            inside.append(lifted.lift(conjunct))
    frames = (lifted.frames[0], lifted.frames[1])
    whole = Call("and", tuple(inside)) if len(inside) > 1 else inside[0] if inside else Literal(True)
    condition = parse(whole, arrow_schema(frames[0]), arrow_schema(frames[1]), zone=session_zone(left))
    return Bound(condition, frames, (lifted.added[0], lifted.added[1]), tuple(after))


def after_join(result: DataFrame, bound: Bound, names: Sequence[str], left_columns: int) -> DataFrame:
    """Filter joined rows by what Spark alone can evaluate."""
    sides = (bound.condition.schemas[0].names, bound.condition.schemas[1].names)

    def spelled(column: Column) -> str:
        position = sides[column.side].index(column.name)
        return quoted(names[position + (left_columns if column.side is Side.RIGHT else 0)])

    for conjunct in bound.after:
        result = result.where(F.expr(spark_sql(conjunct, spelled)))
    return result


def _width(type_: pa.DataType) -> int:
    return type_.bit_width // 8 + 1 if pa.types.is_primitive(type_) else GUESSED_WIDTH


def _expressions(on: Any, left: DataFrame, right: DataFrame, schemas: tuple[pa.Schema, pa.Schema]) -> list[Expression]:
    """The condition's parts, with Columns translated."""
    if isinstance(on, SparkColumn):
        return [expression_of(on, left, right)]
    if isinstance(on, list | tuple):
        on = [expression_of(part, left, right) if isinstance(part, SparkColumn) else part for part in on]
    return conjuncts_of(on, schemas)


def _split(expressions: Sequence[Expression]) -> Iterator[Expression]:
    for expression in expressions:
        if isinstance(expression, Call) and expression.function == "and":
            yield from _split(expression.args)
        else:
            yield expression


def _needs_both(expression: Expression) -> bool:
    """Whether a part that only Spark can evaluate reads both sides."""
    match expression:
        case Opaque():
            return len(sides_of(expression)) == 2
        case Call(_, args):
            return any(_needs_both(arg) for arg in args)
    return False


class _Lifted:
    """Replaces one-sided parts that only Spark can evaluate by columns that it computes before the join."""

    def __init__(self, frames: list[DataFrame]) -> None:
        self.frames = frames
        self.added = [0, 0]

    def lift(self, expression: Expression) -> Expression:
        if not is_opaque(expression):
            return expression
        sides = sides_of(expression)
        if len(sides) == 1:
            return self._column(next(iter(sides)), expression)
        assert isinstance(expression, Call)
        return Call(expression.function, tuple(self.lift(arg) for arg in expression.args), expression.type)

    def _column(self, side: Side, expression: Expression) -> Column:
        name = f"{KEY}{self.added[side]}"
        computed = F.expr(spark_sql(expression, lambda column: quoted(column.name)))
        self.frames[side] = self.frames[side].withColumn(name, computed)
        self.added[side] += 1
        return Column(side, name)
