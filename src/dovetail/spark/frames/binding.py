"""Binds a condition to two DataFrames: which parts run in the cells, and which Spark evaluates before or after.

l.k = r.k                      a typed predicate, in the cells
upper(l.name) = r.name         a function of our table: workers evaluate it as Spark does
upper(l.name) = 'ADA'          over one input: Spark filters before rows are sent to workers
soundex(l.name) = r.code       not in the table: Spark computes soundex(name) as an extra column; then as above
levenshtein(l.a, r.b) < 3      needs both rows: Spark filters the joined rows
l.s = r.s, with a collation    compared by Spark's rules: Spark filters the joined rows
l.window = r.window            streams, windows of event time: Spark computes window.end, which has their watermark
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, YearMonthIntervalType
from sqlglot import exp

from dovetail.condition import (
    Call,
    Column,
    Condition,
    Expression,
    Literal,
    Opaque,
    columns_of,
    conjuncts_of,
    is_opaque,
    parse,
    read_sql,
    sides_of,
    spark_sql,
    text_of,
)
from dovetail.condition.expression import SIMPLE
from dovetail.condition.functions import FUNCTIONS, Kind
from dovetail.condition.names import candidates
from dovetail.condition.sql import parse_text
from dovetail.condition.types import is_lossless
from dovetail.core.rows import Side
from dovetail.planning.statistics import read_columns
from dovetail.spark.frames.column_names import OWN_ALIASES, Names
from dovetail.spark.frames.renaming import by_position, joined_names, position_name, renamed
from dovetail.spark.frames.schemas import (
    CHAR_TYPE,
    DELAY_MS,
    arrow_schema,
    encodings,
    is_window,
    only_spark_compares,
    session_zone,
)


def expression_of(on: SparkColumn, left: DataFrame, right: DataFrame) -> Expression:
    """The condition that a Column expresses. It was created by code, so it may call any function."""
    return read_sql(_text(on, Names(left, right)), (arrow_schema(left), arrow_schema(right)), trusted=True)


def _text(on: Any, names: Names) -> str:
    if type(on).__module__.startswith("pyspark.sql.connect."):
        from dovetail.spark.frames.column_connect import ConnectReader  # needs grpc, which classic sessions do not

        return ConnectReader(names).read(on._expr).text
    from dovetail.spark.frames.column_classic import ClassicReader

    return ClassicReader(names).read(on._jc.node()).text


GUESSED_WIDTH = 40  # bytes of a string or nested value


@dataclass(frozen=True, slots=True)
class Bound:
    """A condition and the DataFrames it reads.

    Columns of the frames are named by position (c0, c1, …), because Spark cannot address every name that it accepts.
    """

    condition: Condition
    frames: tuple[DataFrame, DataFrame]  # columns that Spark computes for the condition come last
    extra: tuple[int, int]  # number of these columns
    after: tuple[Expression, ...]  # conjuncts that Spark evaluates on joined rows
    written: tuple[Expression, ...]  # all conjuncts, as given
    window_ends: tuple[str | None, str | None]  # computed columns with the ends of event-time windows

    def visible(self, side: Side) -> pa.Schema:
        """The user's columns of a side."""
        schema = self.condition.schema(side)
        return pa.schema(list(schema)[: len(schema) - self.extra[side]])

    def passing(self, side: Side) -> DataFrame:
        """The rows of a side that pass its filters, as far as Spark evaluates the filters before workers do."""
        frame, schema = self.frames[side], self.condition.schema(side)
        filters = [part for part in self.condition.filters[side] if never_fails(part)]
        if not filters or arrow_schema(frame).types != schema.types:  # different types: columns that Arrow cannot hold
            return frame
        called = dict(zip(schema.names, frame.columns, strict=True))
        return frame.where(" AND ".join(f"({spark_sql(part, lambda c: called[c.name])})" for part in filters))

    def with_columns(self, names: tuple[Iterable[str], Iterable[str]]) -> Bound:
        """The same with only these columns of each side. None of them is dropped after the join."""
        frames, schemas = [], []
        for side in Side:
            schema, wanted = self.condition.schema(side), set(names[side])
            positions = [i for i, name in enumerate(schema.names) if name in wanted] or [0]
            frames.append(self.frames[side].select(*(self.frames[side].columns[i] for i in positions)))
            schemas.append(pa.schema([schema.field(i) for i in positions]))
        condition = replace(self.condition, schemas=(schemas[0], schemas[1]))
        return replace(self, condition=condition, frames=(frames[0], frames[1]), extra=(0, 0))

    def only_read(self) -> Bound:
        """The same with the columns that the condition reads."""
        return self.with_columns((read_columns(self.condition, Side.LEFT), read_columns(self.condition, Side.RIGHT)))

    def row_bytes(self, side: Side) -> int:
        """The estimated size of a row, from its types."""
        return sum(value_bytes(field.type) for field in self.condition.schema(side))


def bind_frames(on: Any, left: DataFrame, right: DataFrame, trusted: bool = False) -> Bound:
    """Parse the condition against two DataFrames. Runs no Spark job. `trusted` text may call any function."""
    schemas = (arrow_schema(left), arrow_schema(right))
    return bind_conjuncts(tuple(_split(_expressions(on, left, right, schemas, trusted))), left, right)


def bind_conjuncts(written: tuple[Expression, ...], left: DataFrame, right: DataFrame) -> Bound:
    """The same for a parsed condition, on DataFrames that have the columns it reads."""
    schemas = (arrow_schema(left), arrow_schema(right))
    windows = (_event_window(left), _event_window(right))
    lifted = _Lifted((left, right), schemas, windows)
    inside: list[Expression] = []
    after: list[Expression] = []
    for conjunct in written:
        for part in (*_by_spark(conjunct, (left, right)), *_equal_ends(conjunct, windows)):
            known = None if _needs_both(part) else lifted.lift(lifted.over_ends(part))
            if known is None:
                after.append(part)
            else:
                inside.append(known)
    whole = Call("and", tuple(inside)) if len(inside) > 1 else inside[0] if inside else Literal(True)
    condition = parse(whole, lifted.schema(Side.LEFT), lifted.schema(Side.RIGHT), zone=session_zone(left))
    texts = [condition.text] if inside else []
    condition = replace(condition, text=" AND ".join([*texts, *(text_of(part) for part in after)]))
    ends = (lifted.window_ends.get(Side.LEFT), lifted.window_ends.get(Side.RIGHT))
    return Bound(condition, lifted.carried(), lifted.added, tuple(after), written, ends)


def after_join(result: DataFrame, bound: Bound, fields: list[StructField]) -> DataFrame:
    """Restore the types of encoded columns, and apply the filters that only Spark can evaluate."""
    if not bound.after and not any(encodings(fields)):
        return result
    flat = decoded(result, fields)
    names = joined_names(bound.visible(Side.LEFT).names, bound.visible(Side.RIGHT).names)
    for conjunct in bound.after:
        flat = flat.where(F.expr(spark_sql(conjunct, names)))
    return renamed(flat, result.columns)


def decoded(result: DataFrame, fields: list[StructField]) -> DataFrame:
    """Columns named c0, c1, …, with the types of the fields."""
    flat = by_position(result)
    for position, made in enumerate(encodings(fields)):
        if made is not None:
            flat = flat.withColumn(position_name(position), F.expr(made[1].format(position_name(position))))
    return flat


def never_fails(expression: Expression) -> bool:
    """Whether no value raises an error in ANSI mode. Filters have no order: 1 / x > 2 may fail, even after x != 0."""
    match expression:
        case Call("cast", (inner,), target):
            return (
                inner.type is not None and target is not None and is_lossless(inner.type, target) and never_fails(inner)
            )
        case Call("like", (value, pattern)):
            return isinstance(pattern, Literal) and "\\" not in str(pattern.value) and never_fails(value)
        case Call(function, args):
            known = FUNCTIONS.get(function)
            fits = function in SIMPLE if known is None else not {Kind.NUMBER, Kind.AMOUNT} & set(known.takes)
            return fits and all(map(never_fails, args))
    return not isinstance(expression, Opaque)


def value_bytes(type_: pa.DataType) -> int:
    """The estimated size of a value."""
    return type_.bit_width // 8 + 1 if pa.types.is_primitive(type_) else GUESSED_WIDTH


def _expressions(
    on: Any, left: DataFrame, right: DataFrame, schemas: tuple[pa.Schema, pa.Schema], trusted: bool
) -> list[Expression]:
    """The conjuncts of the condition, with Columns translated."""
    if isinstance(on, SparkColumn):
        return [expression_of(on, left, right)]
    if isinstance(on, list | tuple):
        on = [expression_of(part, left, right) if isinstance(part, SparkColumn) else part for part in on]
        on = [_with_sides(part, left, right, schemas) if isinstance(part, str) else part for part in on]
    if isinstance(on, str):
        on = _with_sides(on, left, right, schemas)
    return conjuncts_of(on, schemas, trusted)


def _with_sides(text: str, left: DataFrame, right: DataFrame, schemas: tuple[pa.Schema, pa.Schema]) -> str:
    """SQL text with aliases of the DataFrames replaced by l and r: `t.x` after `left.alias("t")`."""
    if any(text in schema.names for schema in schemas):
        return text
    aliased = [
        column
        for column in parse_text(text).find_all(exp.Column)
        if column.table and not any(candidates(schema, column.parts[0].name) for schema in schemas)
    ]
    names, places = Names(left, right), []
    for column in aliased:
        parts = [part.name for part in column.parts]
        if parts[0].lower() not in OWN_ALIASES:
            marks = [part.meta for part in column.parts]
            places.append((marks[0]["start"], marks[-1]["end"] + 1, names.anywhere(parts).text))
    for start, end, spelled in sorted(places, reverse=True):
        text = text[:start] + spelled + text[end:]
    return text


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


# Windows of event time.


def _event_window(frame: DataFrame) -> str | None:
    """The column that `groupBy(window(…))` creates from the event time of a stream."""
    fields = frame.schema.fields if frame.isStreaming else []
    return next((field.name for field in fields if DELAY_MS in field.metadata and is_window(field)), None)


def _equal_ends(conjunct: Expression, windows: tuple[str | None, str | None]) -> Iterator[Expression]:
    """Equal windows have equal ends."""
    match conjunct:
        case Call("=", (Column() as one, Column() as other)) if one.side is not other.side:
            if all(column.name == windows[column.side] for column in (one, other)):
                yield Call("=", tuple(Call("field", (column, Literal("end"))) for column in (one, other)))


# Columns that Spark compares by its own rules.


def _by_spark(conjunct: Expression, frames: tuple[DataFrame, DataFrame]) -> Iterator[Expression]:
    """The conjunct. It is made opaque if only Spark can compare its columns."""
    fields = {column: frames[column.side].schema[column.name] for column in columns_of(conjunct)}
    if not any(only_spark_compares(field) for field in fields.values()) or _same_char(conjunct, fields):
        yield conjunct
        return
    yield Opaque(spark_sql(conjunct), tuple(fields), pa.bool_())
    match conjunct:
        case Call("=", (Column() as one, Column() as other)) if one.side is not other.side:
            # Equal values have equal keys, so rows can still be routed by hash.
            keys = [_key(column, fields[column]) for column in (one, other)]
            if keys[0] is not None and keys[1] is not None and keys[0].type == keys[1].type:
                yield Call("=", (keys[0], keys[1]))


def _same_char(conjunct: Expression, fields: dict[Column, StructField]) -> bool:
    """Equality of two columns declared as the same char(n). Both are padded alike, so a byte comparison is correct."""
    match conjunct:
        case Call("=", (Column() as one, Column() as other)):
            declared = {fields[column].metadata.get(CHAR_TYPE) for column in (one, other)}
            return len(declared) == 1 and None not in declared
    return False


def _key(column: Column, field: StructField) -> Opaque | None:
    match field.dataType:
        case YearMonthIntervalType():
            return Opaque(f"CAST(CAST({spark_sql(column)} AS INTERVAL MONTH) AS INT)", (column,), pa.int32())
        case StringType() if field.dataType.isUTF8BinaryCollation():
            return Opaque(f"RTRIM({spark_sql(column)})", (column,), pa.string())
    return None


# Parts that Spark evaluates before the join.


class _Lifted:
    """Replaces parts over one side that only Spark can evaluate by columns that it computes before the join."""

    def __init__(
        self,
        frames: tuple[DataFrame, DataFrame],
        schemas: tuple[pa.Schema, pa.Schema],
        windows: tuple[str | None, str | None],
    ) -> None:
        self._windows = windows  # of event time
        self.window_ends: dict[Side, str] = {}  # the columns with their ends
        self._frames = [by_position(frame) for frame in frames]
        self._schemas = schemas
        self._columns: tuple[dict[str, Column], dict[str, Column]] = ({}, {})  # by the SQL that makes them

    @property
    def added(self) -> tuple[int, int]:
        return len(self._columns[0]), len(self._columns[1])

    def schema(self, side: Side) -> pa.Schema:
        """The Arrow schema of a side, including the added columns."""
        if not self._columns[side]:
            return self._schemas[side]
        computed = list(arrow_schema(self._frames[side]))[len(self._schemas[side]) :]
        named = [f.with_name(c.name) for f, c in zip(computed, self._columns[side].values(), strict=True)]
        return pa.schema([*self._schemas[side], *named])

    def carried(self) -> tuple[DataFrame, DataFrame]:
        """The frames with columns that Arrow cannot hold encoded."""
        left, right = (encoded(frame) for frame in self._frames)
        return left, right

    def over_ends(self, expression: Expression) -> Expression:
        """The expression, with windows replaced by computed columns of their ends."""
        match expression:
            case Call("field", (Column(side, name), Literal("end"))) if name == self._windows[side]:
                end = self._compute(side, self._sql(side, expression), f"{name}_end")
                assert end is not None, "timestamps are compared in the cells"
                self.window_ends[side] = end.name
                return end
            case Call(function, args, type_):
                return Call(function, tuple(map(self.over_ends, args)), type_)
        return expression

    def lift(self, expression: Expression) -> Expression | None:
        """The expression over computed columns. None if it compares such columns by rules that only Spark has."""
        if not is_opaque(expression):
            return expression
        sides = sides_of(expression)
        if len(sides) < 2:  # no side: a constant such as current_date()
            return self._column(next(iter(sides), Side.LEFT), expression)
        assert isinstance(expression, Call)
        args = [self.lift(arg) for arg in expression.args]
        known = tuple(arg for arg in args if arg is not None)
        return Call(expression.function, known, expression.type) if len(known) == len(args) else None

    def _column(self, side: Side, expression: Expression) -> Column | None:
        # Named like its text: the name is shown by explain, and distinguishes the states of joins.
        return self._compute(side, self._sql(side, expression), spark_sql(expression, lambda column: column.name))

    def _compute(self, side: Side, sql: str, name: str) -> Column | None:
        """The column with the value of the SQL. None if only Spark can compare its values."""
        names, known = self._schemas[side].names, self._columns[side]
        if sql not in known:
            while name in names or any(name == column.name for column in known.values()):
                name += "'"
            frame = self._frames[side]
            frame = frame.withColumn(position_name(len(frame.columns)), F.expr(sql))
            if only_spark_compares(frame.schema[-1]):
                return None
            self._frames[side] = frame
            known[sql] = Column(side, name)
        return known[sql]

    def _sql(self, side: Side, expression: Expression) -> str:
        names = self._schemas[side].names
        return spark_sql(expression, lambda column: position_name(names.index(column.name)))


def encoded(frame: DataFrame) -> DataFrame:
    """The frame with columns that Arrow cannot hold encoded as text."""
    fields = frame.schema.fields
    for field, made in zip(fields, encodings(fields), strict=True):
        if made is not None:
            frame = frame.withColumn(field.name, F.expr(made[0].format(field.name)))
    return frame
