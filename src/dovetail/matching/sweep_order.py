"""Turns a condition into a sweep: rows become intervals on one line, and intervals of matching rows overlap.

    condition              left row            right row                   u is evicted when the sweep reaches v
    l.k = r.k              [k, k]              [k, k]                      u.k < v.k
    low <= l - r <= high   [l, l]              [r + low, r + high]         the band ends before v
    overlap, rectangles    [low, high] in x    [low, high] in x            u.high < v.low
    l.x < r.y              [x, end of line]    [y, y]                      never, for left rows
    distance               cells of a cube     cells of a cube             v is in no cell of u (`Cubes`)

The sweep advances by the start of intervals; a row is evicted when its interval ends before the sweep (P_rm in PMJ's
Table 1). So no row is evicted that can still match, and evicted rows never return: conditions (1) and (2) of section
3.2 hold for every class at once. Codes need not be exact, but intervals must never be too narrow: candidates are
checked with the condition.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dovetail.columns.batches import concatenate, empty_batch
from dovetail.columns.taking import take_rows
from dovetail.condition import (
    Band,
    Condition,
    Distance,
    Less,
    Literal,
    Overlap,
    Predicate,
    Rectangles,
    closed_bounds,
    columns_of,
    keyed_rows,
    text_of,
    types,
)
from dovetail.condition.expression import Expression, type_of
from dovetail.core.codes import MOST, add_saturating, float_codes, is_fixed, list_lengths, numbers, rough_codes
from dovetail.core.rows import Rows, Side
from dovetail.kernels.z_order import (
    Cells,
    Corners,
    Halvings,
    enclosing_cells,
    halvings_of,
    meet_here,
    no_halvings,
    point_codes,
)
from dovetail.matching.equal_keys import equal_codes
from dovetail.matching.kernel_pairs import Flags

Floats = NDArray[np.float64]
Words = NDArray[np.int64]
Column = NDArray[Any]

NO_WORDS, NO_SOURCES = np.empty(0, np.int64), np.empty(0, np.int16)

MOST_BITS = 62  # bits of a code
COPIES = 4  # cells per cube
DOUBLE, SINGLE = 2.0**-48, 2.0**-20  # relative errors, with a margin


@dataclass(slots=True, eq=False)
class Items:
    """Rows of one side with their sweep intervals."""

    batch: pa.RecordBatch
    starts: Words
    ends: Words
    numbers: Words = field(default_factory=lambda: NO_WORDS)  # row numbers on their side, if the join type needs them
    sources: Column = field(default_factory=lambda: NO_SOURCES)  # the runs they come from, if runs are merged
    _nbytes: int = field(default=-1, init=False)

    @property
    def size(self) -> int:
        return len(self.starts)

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.starts, self.ends, self.numbers, self.sources

    @property
    def nbytes(self) -> int:
        if self._nbytes < 0:  # cached: computing it in Arrow takes time
            self._nbytes = int(self.batch.nbytes) + sum(column.nbytes for column in self.columns)
        return self._nbytes

    def slice(self, start: int, stop: int) -> Items:
        columns = [column[start:stop] for column in self.columns]
        return Items(self.batch.slice(start, stop - start), *columns)

    def rest(self, start: int) -> Items:
        """All rows from a position on, assumed to be as wide as the others."""
        rest = self.slice(start, self.size)
        rest._nbytes = self.nbytes * rest.size // self.size
        return rest

    def take_until(self, place: int) -> Items:
        """The rows that start no later than this."""
        rows = np.flatnonzero(self.starts <= place)
        return self if len(rows) == self.size else self.take(rows)

    def take(self, rows: Rows) -> Items:
        columns = [column.take(rows) if len(column) else column for column in self.columns]
        return Items(take_rows(self.batch, rows), *columns)


def concat_items(parts: list[Items]) -> Items:
    """All rows of the parts, concatenated."""
    if len(parts) == 1:
        return parts[0]
    columns = [np.concatenate(column) for column in zip(*(part.columns for part in parts), strict=True)]
    return Items(concatenate([part.batch for part in parts]), *columns)


def nothing(schema: pa.Schema) -> Items:
    return Items(empty_batch(schema), NO_WORDS, NO_WORDS)


class Cubes:
    def __init__(self, distance: Distance, copies: int = COPIES) -> None:
        assert isinstance(distance.radius, Literal)
        self._distance = distance
        self._radius = float(distance.radius.value)
        self._copies = copies
        self._origin: Floats | None = None  # None: no rows sampled yet
        self._scale = np.empty(0)  # cells per unit
        self._bits = np.empty(0, np.int64)
        self._halvings: Halvings = no_halvings()
        read = [type_of(column) for source in distance.source for column in columns_of(source)]
        is_single = any(pa.types.is_float32(t) or pa.types.is_float16(t) or types.is_list(t) for t in read)
        self._slack = SINGLE if is_single else DOUBLE

    def keys(self, side: Side) -> list[Expression]:
        return list(self._distance.left if side is Side.LEFT else self._distance.right)

    def learn(self, columns: tuple[list[pa.Array], list[pa.Array]]) -> None:
        """Fit the grid to these rows of both sides."""
        if self._origin is not None:
            return
        both = [_points(side, None) for side in columns]
        width = max(points.shape[1] for points in both)
        points = np.concatenate([np.pad(p, ((0, 0), (0, width - p.shape[1]))) for p in both])
        points = points[np.isfinite(points).all(axis=1)]
        if not len(points):
            return
        low, high = points.min(axis=0), points.max(axis=0)
        with np.errstate(over="ignore", divide="ignore"):
            cells = (high - low) / max(self._radius, np.finfo(np.float64).tiny)
        bits = np.floor(np.log2(np.clip(cells, 1, 2.0**30))).astype(np.int64)
        while bits.sum() > MOST_BITS:
            bits[bits.argmax()] -= 1
        extent = np.where(high > low, high - low, 1.0)
        self._lay(low, 2.0**bits / extent, bits)

    def _lay(self, origin: Floats, scale: Floats, bits: Words) -> None:
        self._origin, self._scale, self._bits = origin, scale, bits
        self._halvings = halvings_of(bits)

    def cells(self, columns: list[pa.Array]) -> Cells:
        points = self._read(columns)
        reach = self._reach(points)
        return enclosing_cells(self._grid(points - reach), self._grid(points + reach), self._halvings, self._copies)

    def lows(self, columns: list[pa.Array]) -> Words:
        """The lowest corners of the cubes, as cells of the grid."""
        points = self._read(columns)
        return self._grid(points - self._reach(points))

    def codes(self, columns: list[pa.Array]) -> Words:
        """One position on the curve per row."""
        return point_codes(self.lows(columns), self._halvings)

    def meet_here(self, left: Corners, right: Corners, left_rows: Any, right_rows: Any) -> NDArray[np.bool_]:
        """Which pairs belong to the two cells in which they were found, so that no pair is reported twice."""
        return meet_here(left, right, left_rows, right_rows, self._halvings)

    def to_json(self) -> Any:
        return None if self._origin is None else [self._origin.tolist(), self._scale.tolist(), self._bits.tolist()]

    def restore(self, fields: Any) -> None:
        if fields is not None:
            self._lay(np.array(fields[0]), np.array(fields[1]), np.array(fields[2], np.int64))

    def _read(self, columns: list[pa.Array]) -> Floats:
        return _points(columns, len(self._bits))

    def _reach(self, points: Floats) -> Floats:
        """Half of the radius, and slightly more: distances may have been rounded down."""
        with np.errstate(invalid="ignore"):
            return self._radius / 2 * (1 + SINGLE) + self._slack * np.abs(points)

    def _grid(self, points: Floats) -> Words:
        """Rounding is monotone, so corners keep their order. NaN matches nothing, so its cell does not matter."""
        with np.errstate(invalid="ignore", over="ignore"):
            places = (points - self._origin) * self._scale if self._origin is not None else points
        inside = np.clip(np.nan_to_num(places, nan=0.0, posinf=2.0**40, neginf=-1.0), 0, 2.0**self._bits - 1)
        return np.floor(inside).astype(np.int64)


def _points(columns: list[pa.Array], width: int | None) -> Floats:
    """One row per point. Lists are cut or padded with zeros: only lists of equal length can match."""
    if not types.is_list(columns[0].type):
        points = np.stack([numbers(column) for column in columns], axis=1)
        return points if width is None else points[:, :width]
    lists = columns[0]
    lengths = list_lengths(lists)
    longest = int(lengths.max(initial=0))
    points = np.zeros((len(lists), longest))
    elements = pc.fill_null(lists.flatten().cast(pa.float64()), np.nan)
    points[np.arange(longest) < lengths[:, None]] = np.asarray(elements)
    if width is None or width == longest:
        return points
    return np.pad(points, ((0, 0), (0, max(0, width - longest))))[:, :width]


class Lines(NamedTuple):
    """Rows that can match (None: all of them) and their intervals; no start is after its end.

    A row may have several intervals. `codes` has one entry per row.
    """

    rows: Rows | None
    starts: Words
    ends: Words
    codes: Words


class _Class(Protocol):
    def keys(self, side: Side) -> list[Expression]: ...
    def intervals(self, side: Side, columns: list[pa.Array]) -> tuple[Words, Words]: ...


@dataclass(frozen=True, slots=True)
class _Equal:
    pairs: tuple[tuple[Expression, Expression], ...]

    def keys(self, side: Side) -> list[Expression]:
        return [pair[side] for pair in self.pairs]

    def intervals(self, side: Side, columns: list[pa.Array]) -> tuple[Words, Words]:
        codes = equal_codes(columns)
        return codes, codes


@dataclass(frozen=True, slots=True)
class _Band:
    band: Band

    def keys(self, side: Side) -> list[Expression]:
        return [self.band.left if side is Side.LEFT else self.band.right]

    def intervals(self, side: Side, columns: list[pa.Array]) -> tuple[Words, Words]:
        low, high = closed_bounds(self.band)
        exact = is_fixed(columns[0].type) and isinstance(low, int) and isinstance(high, int)
        if exact:
            codes = rough_codes(columns[0])
            if side is Side.LEFT:
                return codes, codes
            starts, ends = add_saturating(codes, int(low)), add_saturating(codes, int(high))
            return np.minimum(starts, ends), ends
        values = numbers(columns[0])
        if side is Side.LEFT:
            codes = float_codes(values)
            return codes, codes
        with np.errstate(invalid="ignore", over="ignore"):
            starts = float_codes(values + float(low) - self._slack * (np.abs(values) + abs(float(low))))
            ends = float_codes(values + float(high) + self._slack * (np.abs(values) + abs(float(high))))
        return np.minimum(starts, ends), ends  # infinities and NaN are in no band

    @property
    def _slack(self) -> float:
        read = [type_of(column) for source in self.band.source for column in columns_of(source)]
        return SINGLE if any(pa.types.is_float32(t) or pa.types.is_float16(t) for t in read) else DOUBLE


@dataclass(frozen=True, slots=True)
class _Overlap:
    overlap: Overlap

    def keys(self, side: Side) -> list[Expression]:
        interval = self.overlap.left if side is Side.LEFT else self.overlap.right
        return [interval.low, interval.high]

    def intervals(self, side: Side, columns: list[pa.Array]) -> tuple[Words, Words]:
        """One that ends before it starts can still match: it is swept from the smaller to the larger end."""
        low, high = (rough_codes(column) for column in columns)
        return np.minimum(low, high), np.maximum(low, high)


@dataclass(frozen=True, slots=True)
class _Less:
    pair: tuple[Expression, Expression]
    waiting: Side  # the side with the smaller values: its rows stay

    def keys(self, side: Side) -> list[Expression]:
        return [self.pair[side]]

    def intervals(self, side: Side, columns: list[pa.Array]) -> tuple[Words, Words]:
        codes = rough_codes(columns[0])
        return codes, np.full_like(codes, MOST) if side is self.waiting else codes


class SweepOrder:
    """The sweep of a condition, to place batches of either side on the line."""

    def __init__(self, condition: Condition, copies: int = COPIES) -> None:
        found = _class(condition, copies)
        assert found is not None
        self._condition = condition
        self._class, self.predicates = found  # they find candidates; the other predicates are checked

    @staticmethod
    def exists(condition: Condition) -> bool:
        return _class(condition, COPIES) is not None

    @property
    def text(self) -> str:
        """The expressions that order the sweep."""
        left, right = (", ".join(text_of(key) for key in self._class.keys(side)) for side in Side)
        match self._class:
            case Cubes():
                return f"sweeps along the Z-order of ({left}) and ({right})"
            case _Less(_, waiting):
                return f"sweeps along {left} and {right}; rows of {waiting.alias} are kept to the end"
            case _Equal() if not self.keeps_order:
                return f"sweeps along hashes of {left} and {right}"
        return f"sweeps along {left} and {right}"

    @property
    def keeps_order(self) -> bool:
        """Whether the line has the order of a key; hashes and cells do not keep it."""
        match self._class:
            case _Equal(pairs):
                return len(pairs) == 1 and is_fixed(type_of(pairs[0][0]))
        return not isinstance(self._class, Cubes)

    @property
    def has_points(self) -> bool:
        """Whether matching rows start at the same place, as for equal keys."""
        return isinstance(self._class, _Equal)

    def learn(self, left: pa.RecordBatch, right: pa.RecordBatch) -> None:
        """Fit the order to the first rows; it does not change afterwards."""
        if isinstance(self._class, Cubes):
            self._class.learn((self._keyed(Side.LEFT, left)[1], self._keyed(Side.RIGHT, right)[1]))

    @property
    def index_bytes(self) -> int:
        """Bytes per row for sorting: its interval, which is a single number for equal keys, and its position."""
        return 12 if isinstance(self._class, _Equal) else 20

    def lines(self, side: Side, batch: pa.RecordBatch) -> Lines:
        rows, columns = self._keyed(side, batch)
        if isinstance(self._class, Cubes):
            cells = self._class.cells(columns)
            owners = cells.rows if rows is None else rows[cells.rows]
            return Lines(owners, cells.starts, cells.ends, self._class.codes(columns))
        starts, ends = self._class.intervals(side, columns)
        return Lines(rows, starts, ends, starts)

    def belongs(self, left: Items, right: Items, left_rows: Rows, right_rows: Rows) -> Flags | None:
        """Which pairs belong to the intervals in which they were found, if rows have several; None: all."""
        if not isinstance(self._class, Cubes):
            return None
        mine, theirs = (
            Corners(self._class.lows(self._keyed(side, items.batch)[1]), items.starts, items.ends)
            for side, items in ((Side.LEFT, left), (Side.RIGHT, right))
        )
        return self._class.meet_here(mine, theirs, left_rows, right_rows)

    def to_json(self) -> Any:
        return self._class.to_json() if isinstance(self._class, Cubes) else None

    def restore(self, fields: Any) -> None:
        if isinstance(self._class, Cubes):
            self._class.restore(fields)

    def _keyed(self, side: Side, batch: pa.RecordBatch) -> tuple[Rows | None, list[pa.Array]]:
        return keyed_rows(self._condition, side, batch, self._class.keys(side))


def _class(condition: Condition, copies: int) -> tuple[_Class | Cubes, tuple[Predicate, ...]] | None:
    """How rows are placed on the line, and the predicates that this uses."""
    strategy = condition.strategy
    if strategy.equal:
        return _Equal(tuple(strategy.equal_keys)), strategy.equal
    chosen = strategy.predicates[:1]
    match strategy.predicates:
        case [Rectangles(x), *_]:
            return _Overlap(x), chosen
        case [Distance() as distance, *_]:
            return Cubes(distance, copies), chosen
        case [Overlap() as overlap, *_]:
            borders = (overlap.left.low, overlap.left.high, overlap.right.low, overlap.right.high)
            if len({type_of(border) for border in borders}) == 1:
                return _Overlap(overlap), chosen
            return _Less((overlap.left.low, overlap.right.high), Side.LEFT), chosen
        case [Band() as band, *_]:
            return _Band(band), chosen
        case [Less(left, operator, right), *_]:
            return _Less((left, right), Side.LEFT if operator in ("<", "<=") else Side.RIGHT), chosen
    return None
