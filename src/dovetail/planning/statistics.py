"""Statistics from a sample: the expected number of pairs and the range of values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.columns.batches import one_batch, put_together
from dovetail.columns.taking import take_rows
from dovetail.condition import Condition, Less, Strategy, columns_of, keyed_rows
from dovetail.core.codes import Words, is_fixed, numbers, rough_codes
from dovetail.core.rows import Side
from dovetail.kernels import boxes
from dovetail.matching import build_matcher

SAMPLE = 4096  # rows per side
CROSS = 1024  # rows per side, if every pair of them has to be compared
ZONES = 32, 256  # boxes per batch, at least and at most
PER_ZONE = 1024, 16  # rows per box, and how many of them are sampled to cut it
ORDERED = ("one_inequality", "two_inequalities", "overlap", "rectangles")  # classes whose blocks are pruned by boxes

LENGTHS = np.concatenate([[0.0], 2.0 ** np.arange(-16, 111)])


@dataclass(frozen=True, slots=True)
class Reach:
    """The range of the keys of all rows of a side. The sum over parts is the reach of the whole."""

    boxes: NDArray[np.int64]  # (box, key, 0: least and 1: greatest) rough codes; every row is in one of the boxes
    longest: tuple[float, ...] = ()  # the longest intervals, in units of their numbers; one entry per kind of interval
    by_length: tuple[NDArray[np.int64], ...] = ()  # counts of intervals by length, in the classes of LENGTHS

    def __add__(self, other: Reach) -> Reach:
        return Reach(
            np.concatenate([self.boxes, other.boxes]),
            tuple(map(max, self.longest, other.longest)),
            tuple(map(np.add, self.by_length, other.by_length)),
        )


@dataclass(frozen=True, slots=True)
class Sample:
    """A random sample of the rows of a side, and what is known of all rows."""

    rows: int  # in total
    batch: pa.RecordBatch  # with the columns that the condition reads
    reach: Reach | None = None  # None: unknown

    @property
    def weight(self) -> float:
        """The number of rows of the side per row of the sample."""
        return self.rows / max(1, int(self.batch.num_rows))

    def thin(self, rows: int, side: Side) -> Sample:
        if self.batch.num_rows <= rows:
            return self
        chosen = np.random.default_rng(side).choice(self.batch.num_rows, rows, replace=False)
        return replace(self, batch=take_rows(self.batch, np.sort(chosen)))


Samples = tuple[Sample, Sample]


def read_columns(condition: Condition, side: Side) -> list[str]:
    """The columns of a side that the condition reads, in the order of the schema."""
    expressions = (*condition.conjuncts, *condition.filters[0], *condition.filters[1])
    read = {column.name for e in expressions for column in columns_of(e) if column.side is side}
    return [name for name in condition.schema(side).names if name in read]


def sampled_columns(condition: Condition, side: Side) -> list[str]:
    """The columns that the condition reads of a side; if there are none, a column for counting rows."""
    return read_columns(condition, side) or condition.schema(side).names[:1]


def sample_table(condition: Condition, side: Side, table: pa.Table) -> Sample:
    """A sample of a table in memory."""
    rows = _sampled_rows(side, table.num_rows)
    read = table.select(sampled_columns(condition, side))
    if not read.num_columns:
        return Sample(table.num_rows, put_together([], read.schema, len(rows)))
    chosen = read.take(pa.array(rows)).combine_chunks()
    return Sample(table.num_rows, one_batch(chosen, chosen.schema))


def sample_batches(condition: Condition, side: Side, rows: int, batches: Iterable[pa.RecordBatch]) -> Sample:
    """A sample of rows that arrive in batches, with the range of the keys of all rows."""
    wanted = _sampled_rows(side, rows)
    found: list[pa.RecordBatch] = []
    reach: Reach | None = None
    position = 0
    for batch in batches:
        low, high = np.searchsorted(wanted, [position, position + batch.num_rows])
        found.append(take_rows(batch, wanted[low:high] - position))
        position += batch.num_rows
        more = measure(condition, side, batch)
        reach = more if reach is None else reach if more is None else reach + more
    names = sampled_columns(condition, side)
    schema = found[0].schema if found else pa.schema([condition.schema(side).field(name) for name in names])
    return Sample(rows, one_batch(found, schema), reach)


def _sampled_rows(side: Side, rows: int) -> NDArray[np.int64]:
    if rows <= SAMPLE:
        return np.arange(rows)
    # Different seeds: samples of one table for both sides must not be the same rows.
    return np.sort(np.random.default_rng(side).choice(rows, SAMPLE, replace=False))


def measure(condition: Condition, side: Side, batch: pa.RecordBatch) -> Reach | None:
    """The range of the keys of a batch; None if there are none, or if it is not needed."""
    strategy = condition.strategy
    if strategy.kind not in ORDERED:
        return None
    _, columns = keyed_rows(condition, side, batch, [pair[side] for pair in strategy.ordered_keys])
    if not len(columns[0]):
        return None
    lengths = _lengths(strategy, side, columns)
    longest = tuple(float(np.max(each, initial=0.0)) for each in lengths)
    by_length = tuple(_count_by_length(each) for each in lengths)
    if strategy.equal:  # rows are routed by equal keys, which needs no boxes
        return Reach(np.empty((0, len(columns), 2), np.int64), longest, by_length)
    return Reach(_boxes([rough_codes(column) for column in columns]), longest, by_length)


def _boxes(codes: list[Words]) -> NDArray[np.int64]:
    """Boxes around rows that are adjacent in the order of the first key."""
    zones = int(np.clip(len(codes[0]) // PER_ZONE[0], *ZONES))
    some = np.sort(codes[0][:: max(1, len(codes[0]) // (zones * PER_ZONE[1]))])
    cuts = np.unique(some[np.arange(1, zones) * len(some) // zones])
    return boxes.around(np.stack(codes), cuts)


def _lengths(strategy: Strategy, side: Side, columns: list[pa.Array]) -> list[NDArray[np.float64]]:
    """The lengths of intervals: those of overlaps, and those between two inequalities that bound a value."""
    if len({c.type for c in columns}) > 1 or not is_fixed(columns[0].type):
        return []
    with np.errstate(invalid="ignore", over="ignore"):
        found = [numbers(high) - numbers(low) for low, high in _borders(strategy, side, columns)]
    return [np.where(np.isnan(lengths), np.inf, lengths) for lengths in found]


def _count_by_length(lengths: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.bincount(np.searchsorted(LENGTHS[1:], lengths, side="right"), minlength=len(LENGTHS))


def _borders(strategy: Strategy, side: Side, columns: list[pa.Array]) -> list[tuple[pa.Array, pa.Array]]:
    """The pairs of ordered keys in an overlap: (l.low, r.high), (l.high, r.low)."""
    if strategy.kind in ("overlap", "rectangles"):
        pairs = list(zip(columns[::2], columns[1::2], strict=True))
        return pairs if side is Side.LEFT else [(low, high) for high, low in pairs]
    keys = strategy.ordered_keys
    if strategy.kind != "two_inequalities" or len(keys) != 2 or keys[0][side.other] != keys[1][side.other]:
        return []
    first = strategy.predicates[0]
    assert isinstance(first, Less)
    is_low = first.operator.startswith("<") == (side is Side.LEFT)  # the low bound of the value in between
    return [(columns[0], columns[1])] if is_low else [(columns[1], columns[0])]


def estimated_pairs(condition: Condition, samples: Samples) -> float:
    """The estimated number of matching pairs."""
    if not all(sample.batch.num_rows for sample in samples):
        return 0.0
    if not condition.finds_candidates:
        samples = (samples[0].thin(CROSS, Side.LEFT), samples[1].thin(CROSS, Side.RIGHT))
    found = build_matcher(condition, samples[0].batch, samples[1].batch).count()
    return found * samples[0].weight * samples[1].weight
