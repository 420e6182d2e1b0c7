"""The columns of a result as requested: shared columns once, suffixes for clashing names, an indicator.

    joined     id  note | id_right  note_right        operators give the left columns, then the right ones
    result     id  note_x  note_y  _merge             on="id", suffixes=("_x", "_y"), indicator=True

A shared column is one that the condition names for both inputs: on="id", on=["id", "day"]. It takes the position of the
left column. Its values come from the preserved side, and after a full join from either side, as with USING in SQL. If
none of this is requested, batches pass unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from dovetail.columns.batches import put_together
from dovetail.condition import shared_columns, types
from dovetail.core.join_types import JoinType
from dovetail.core.pandas_frames import joined_notes
from dovetail.core.rows import Side
from dovetail.errors import ConditionError, InputError
from dovetail.execution.chosen_columns import find_names
from dovetail.execution.in_process import ProgressiveJoin
from dovetail.execution.output import output_schema
from dovetail.execution.steps import Step
from dovetail.request import Request
from dovetail.sources.protocol import Place, Scan

MARK = "__dovetail_{}_came"
"""The column that is true in real rows of a side, and null in rows that an outer join has padded."""
INDICATOR = "_merge"
LEFT_ONLY, RIGHT_ONLY, BOTH = range(3)
ORIGINS = pa.array(["left_only", "right_only", "both"])
INDICATOR_TYPE = pa.dictionary(pa.int8(), pa.string())


class Part(NamedTuple):
    """A column of the result: its position among the columns of either input, or of both."""

    name: str
    left: int | None
    right: int | None

    @property
    def is_shared(self) -> bool:
        return self.left is not None and self.right is not None

    def at(self, side: Side) -> int:
        position = self.left if side is Side.LEFT else self.right
        assert position is not None  # it is a column of that side
        return position


@dataclass(frozen=True)
class ResultColumns:
    """Turns joined rows (left columns, then right ones named with `suffix`) into rows of the result."""

    schemas: tuple[pa.Schema, pa.Schema]  # of the inputs, without marks
    how: JoinType
    suffix: str
    parts: tuple[Part, ...]
    indicator: str | None = None
    is_plain: bool = False  # joined rows are the result as they are
    kept: tuple[int, ...] | None = None  # positions of the joined columns that are there; None: all
    names: tuple[str, ...] | None = None  # of the result, in its order, if they were chosen

    @classmethod
    def of(cls, request: Request, left: pa.Schema, right: pa.Schema, *, fold_case: bool = False) -> ResultColumns:
        """With `fold_case`, names that differ only in case are the same name."""
        how = JoinType.read(request.how)
        left, right = _without_mark(left), _without_mark(right)
        shared = dict(shared_columns(request.on, (left, right)))
        indicator = INDICATOR if request.indicator is True else request.indicator or None
        if not shared and request.suffixes is None and indicator is None and request.columns is None:
            return cls.plain((left, right), how, request.suffix)
        fold: Callable[[str], str] = str.casefold if fold_case else str
        parts = _parts(left.names, right.names, shared, _suffixes(request), how, fold)
        names = [*(part.name for part in parts), *([] if indicator is None else [indicator])]
        _refuse_twice(names, fold)
        suffix = _joined_suffix(request.suffix, left.names, right.names, fold)
        everything = cls((left, right), how, suffix, parts, indicator)
        if request.columns is None:
            return everything
        return everything.choose(find_names(request.columns, names, fold_case=fold_case))

    def choose(self, names: tuple[str, ...]) -> ResultColumns:
        """Some columns of the result."""
        by_name = {part.name: part for part in self.parts}
        parts = tuple(by_name[name] for name in names if name in by_name)
        chosen = replace(self, parts=parts, indicator=self.indicator if self.indicator in names else None, names=names)
        places = {chosen.place(side, part.at(side)) for part in parts for side in self.source(part)}
        places |= {chosen.mark(side) for side in chosen.marked}
        return replace(chosen, kept=tuple(sorted(places)))

    @property
    def joined_names(self) -> tuple[str, ...] | None:
        """The names of the joined columns that are needed. None: all of them."""
        if self.kept is None:
            return None
        sides = [
            schema.append(pa.field(MARK.format(side.name.lower()), pa.bool_())) if side in self.marked else schema
            for side, schema in zip(Side, self.schemas, strict=True)
        ]
        joined = output_schema(sides[0], sides[1], self.suffix, self.how)
        return tuple(joined.names[place] for place in self.kept)

    @classmethod
    def plain(cls, schemas: tuple[pa.Schema, pa.Schema], how: JoinType, suffix: str) -> ResultColumns:
        """Joined rows, unchanged."""
        return cls(schemas, how, suffix, (), is_plain=True)

    @property
    def marked(self) -> tuple[Side, ...]:
        """The sides whose rows have to be marked, to recognise padded rows."""
        return () if self.indicator is None else tuple(side.other for side in self.how.padded)

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of the result."""
        joined = output_schema(*self.schemas, self.suffix, self.how)
        if self.is_plain:
            return joined
        fields = [self._field(part, joined) for part in self.parts]
        if self.indicator is not None:
            fields.append(pa.field(self.indicator, INDICATOR_TYPE, nullable=False))
        if self.names is not None:
            by_name = {field.name: field for field in fields}
            fields = [by_name[name] for name in self.names]
        return pa.schema(fields, joined_notes([self._note(part) for part in self.parts]))

    def of_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Turn joined rows into rows of the result."""
        if self.is_plain:
            return batch
        schema = self.schema
        columns = {part.name: self._column(part, batch, schema.field(part.name).type) for part in self.parts}
        if self.indicator is not None:
            columns[self.indicator] = self._origin(batch)
        return put_together([columns[name] for name in schema.names], schema, batch.num_rows)

    def of_table(self, batches: Iterator[pa.RecordBatch]) -> pa.Table:
        return pa.Table.from_batches(map(self.of_batch, batches), self.schema)

    def of_steps(self, steps: Iterator[Step]) -> Iterator[Step]:
        if self.is_plain:
            return steps

        def shaped(inner: Iterator[Step]) -> Generator[Step, None, None]:
            for step in inner:
                yield replace(step, batch=self.of_batch(step.batch))

        return steps.wrapped(shaped) if isinstance(steps, ProgressiveJoin) else shaped(steps)

    def places_of(self, side: Side) -> list[tuple[int, int]]:
        """The columns of an input that the result has: their positions in the input, and in the result."""
        if self.is_plain:
            start = len(self.schemas[0]) * side
            return [(n, start + n) for n in range(len(self.schemas[side]))] if self.how.only in (None, side) else []
        own = [(part.left if side is Side.LEFT else part.right) for part in self.parts]
        return [(position, n) for n, position in enumerate(own) if position is not None]

    def place(self, side: Side, position: int) -> int:
        """The position of an input's column among the joined columns."""
        place = position if side is Side.LEFT else len(self.schemas[0]) + (Side.LEFT in self.marked) + position
        return place if self.kept is None else self.kept.index(place)

    def mark(self, side: Side) -> int:
        """The position of a side's mark among the joined columns."""
        return self.place(side, len(self.schemas[side]))

    def source(self, part: Part) -> tuple[Side, ...]:
        """The sides that a column takes its values from. With two, the first value that is not null."""
        if not part.is_shared:
            return (Side.RIGHT,) if part.left is None else (Side.LEFT,)
        return {JoinType.RIGHT: (Side.RIGHT,), JoinType.FULL: tuple(Side)}.get(self.how, (Side.LEFT,))

    def _field(self, part: Part, joined: pa.Schema) -> pa.Field:
        sides = self.source(part)
        kept = joined.field(len(self.schemas[0]) * sides[0] + part.at(sides[0])).with_name(part.name)
        if not part.is_shared:
            return kept
        own = [self.schemas[side].field(part.at(side)) for side in sides]
        type_ = own[0].type if own[0].type == own[-1].type else _one_type(part.name, own)
        return kept.with_type(type_).with_nullable(any(field.nullable for field in own))

    def _note(self, part: Part) -> tuple[pa.Schema, Sequence[str], bool]:
        """The pandas metadata of a DataFrame, which `to_pandas` restores."""
        side = self.source(part)[0]
        schema = pa.schema([self.schemas[side].field(part.at(side))], self.schemas[side].metadata)
        return schema, [part.name], not part.is_shared and side.other in self.how.padded

    def _column(self, part: Part, batch: pa.RecordBatch, type_: pa.DataType) -> pa.Array:
        columns = [batch.column(self.place(side, part.at(side))) for side in self.source(part)]
        return columns[0] if len(columns) == 1 else _first_valid(columns[0], columns[1], type_)

    def _origin(self, batch: pa.RecordBatch) -> pa.Array:
        """Whether each row has values from the left side only, from the right one only, or from both."""
        if self.how in (JoinType.LEFT_ANTI, JoinType.LEFT_SEMI):
            codes = pa.repeat(pa.scalar(BOTH if self.how is JoinType.LEFT_SEMI else LEFT_ONLY, pa.int8()), len(batch))
        else:
            codes = pa.repeat(pa.scalar(BOTH, pa.int8()), len(batch))
            for side in self.marked:
                only = pa.scalar(RIGHT_ONLY if side is Side.LEFT else LEFT_ONLY, pa.int8())
                codes = pc.if_else(batch.column(self.mark(side)).is_valid(), codes, only)
        return pa.DictionaryArray.from_arrays(codes, ORIGINS)


def _without_mark(schema: pa.Schema) -> pa.Schema:
    marks = {MARK.format(side.name.lower()) for side in Side}
    return schema.remove(len(schema) - 1) if schema.names and schema.names[-1] in marks else schema


def _suffixes(request: Request) -> tuple[str, str]:
    given = request.suffixes
    if given is None:
        return "", request.suffix
    if (
        not isinstance(given, list | tuple)
        or len(given) != 2
        or not all(s is None or isinstance(s, str) for s in given)
    ):
        raise InputError(f"suffixes= is a pair of texts, such as suffixes=('_x', '_y'); got {given!r}.")
    return given[0] or "", given[1] or ""


def _parts(
    left: Sequence[str],
    right: Sequence[str],
    shared: dict[int, int],
    suffixes: tuple[str, str],
    how: JoinType,
    fold: Callable[[str], str],
) -> tuple[Part, ...]:
    if how.only is Side.LEFT:
        return tuple(Part(name, number, None) for number, name in enumerate(left))
    once = set(shared.values())
    others = [(number, name) for number, name in enumerate(right) if number not in once]
    taken = {fold(name) for name in left}
    clash = taken & {fold(name) for _, name in others}
    renamed = clash - {fold(left[number]) for number in shared}
    parts = [
        Part(name + suffixes[0] if fold(name) in renamed else name, number, shared.get(number))
        for number, name in enumerate(left)
    ]
    parts += [Part(name + suffixes[1] if fold(name) in clash else name, None, number) for number, name in others]
    return tuple(parts)


def _refuse_twice(names: Sequence[str], fold: Callable[[str], str]) -> None:
    seen: set[str] = set()
    for name in names:
        if fold(name) in seen:
            raise InputError(
                f"the result would have two columns called {name!r}: choose other suffixes, such as "
                "suffixes=('_x', '_y'), or rename a column."
            )
        seen.add(fold(name))


def _joined_suffix(suffix: str, left: Sequence[str], right: Sequence[str], fold: Callable[[str], str]) -> str:
    """A suffix that makes all joined column names distinct: the given one, or a longer one."""
    taken = {fold(name) for name in left}
    while True:
        names = [fold(name + suffix if fold(name) in taken else name) for name in right]
        if len(taken | set(names)) == len(left) + len(right):
            return suffix
        suffix += "_"


def _one_type(name: str, fields: Sequence[pa.Field]) -> pa.DataType:
    left, right = (types.plain(field.type) for field in fields)
    type_ = types.common(left, right)
    if type_ is None:
        raise ConditionError(
            f"{name} is {fields[0].type} on the left and {fields[1].type} on the right: one column cannot hold both. "
            f"Write on='l.{name} = r.{name}', which gives two, or cast one of them."
        )
    return type_


def _first_valid(left: pa.Array, right: pa.Array, type_: pa.DataType) -> pa.Array:
    """The left values, with the right ones where these are null."""
    left, right = (column if column.type == type_ else column.cast(type_) for column in (left, right))
    if not left.null_count:
        return left
    rows = pa.array(range(len(left)), pa.int64())
    places = pc.if_else(left.is_valid(), rows, pc.add(rows, len(left)))
    both = pa.chunked_array([left, right]).unify_dictionaries()
    return both.take(places).combine_chunks() if len(left) else left


class _Marked:
    """A scan with an additional column that is true in every row."""

    def __init__(self, scan: Scan, side: Side) -> None:
        self.name, self.rows = scan.name, scan.rows
        self._scan = scan
        self._mark = MARK.format(side.name.lower())
        self.schema: pa.Schema = scan.schema.append(pa.field(self._mark, pa.bool_(), nullable=False))

    def total_bytes(self) -> int:
        return self._scan.total_bytes() + self.rows // 8

    def places(self, most_rows: int, columns: Sequence[str] | None = None, start: int = 0) -> Iterator[Place]:
        for position, batch in self._scan.places(most_rows, self._own(columns), start):
            if columns is None or self._mark in columns:
                arrays = [*batch.columns, pa.repeat(pa.scalar(True), batch.num_rows)]
                schema = batch.schema.append(self.schema.field(self._mark))
                yield Place(position, put_together(arrays, schema, batch.num_rows))
            else:
                yield Place(position, batch)
            del batch  # freed before the next one is read

    def to_table(self, columns: Sequence[str] | None = None) -> pa.Table:
        table = self._scan.to_table(self._own(columns))
        if columns is None or self._mark in columns:
            table = table.append_column(self.schema.field(self._mark), pa.repeat(pa.scalar(True), self.rows))
        return table

    def _own(self, columns: Sequence[str] | None) -> list[str] | None:
        return None if columns is None else [name for name in columns if name != self._mark]


def mark_rows(request: Request, scans: tuple[Scan, Scan], columns: ResultColumns) -> Request:
    """The request with marked inputs, if the indicator needs them."""
    marked = tuple(_Marked(scans[side], side) if side in columns.marked else scans[side] for side in Side)
    return replace(request, inputs=marked)
