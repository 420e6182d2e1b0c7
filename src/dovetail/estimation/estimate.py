"""Estimates the number of results, with reliable bounds, from blocks of rows that were joined completely.

    block b    |L_b| left rows, |R_b| right rows, all |L_b||R_b| pairs compared, m_b of them results

If rows arrive in random order, every block is a fair sample of the cross product, and y = sum m_b / sum |L_b||R_b|
estimates the selectivity (PMJ, section 3.5, eq. 3). Of the T pairs of both inputs, n have been compared. There are two
intervals around T y:

    printed     T (y ± z V sqrt((1 - n/T) / n)), V² = n/(n-1) y (1-y)       eq. 4: as if pairs were drawn independently
    blocks      T (y ± sqrt(t² r s²/k + z² (1 - n/T - r) W²/n)), s² the variance between the k blocks, W² a part of V²

Pairs that share a row are not independent: with keys of Zipf 1, the printed 95 % interval contains the truth in only a
third of all cases. Blocks share no rows, so the variance between them is reliable for any keys. It has two parts: some
rows have more partners than others, and the rest (W²) is chance, by which rows end up in one block. In the first part,
only the share r due to rows that have not arrived is uncertain; in the second, only what is due to pairs not compared.
So the interval by blocks is Student's while most rows are still to come, and no wider than that of eq. 4 once all have
arrived. It is the default, and needs two blocks. W. Hoeffding, A class of statistics with asymptotically normal
distribution, Annals of Mathematical Statistics 19(3), 1948.

All of this relies on random order, of each side and of the two relative to each other. Blocks can show whether it
holds: histograms of their keys must look alike (a chi-squared test of homogeneity), and rows of a block must not match
each other more or less often than rows of different blocks. So can the positions of matches (order.py). If the order is
not random, the pairs compared say nothing about the others, and only rows drawn at random from all (drawn_sample.py)
give an estimate; without them there is none. If there are both, they must agree; if they hardly do, the interval covers
both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dovetail.core.metrics import Estimate
from dovetail.estimation.drawn_sample import UNSEEN, DrawnSample
from dovetail.estimation.order import PlacedMatches

Words = NDArray[np.int64]
Interval = Literal["blocks", "printed"]

CONFIDENCE = 0.95
SAMPLES = 4  # parts of the latest rows of a growing block
MOST_KEYS = 4096  # keys of a block that are tested
BINS = 16  # bins of the histogram of keys
ENOUGH = 5  # blocks, from which parts of the growing block are not needed
FEWEST_MATCHES = 10  # fewer matches are too few to estimate their rate
UNASKED = "the order has not been tested"
DOUBT_OF_BLOCKS = 0.05  # the probability that blocks differ even more than assumed
DOUBT = 1e-6  # blocks less likely than this under random order are rejected; the test is repeated with every block
ALIKE, DIFFERENT = 2.0, 3.5  # standard errors between two estimates that agree, and that contradict each other
TOGETHER = 5.0  # standard errors by which matches within blocks differ from those between blocks
ELSEWHERE = 0.1  # the minimal share of known pairs outside of blocks, to compare the two
DEPENDENT = (
    "the orders of the two inputs depend on each other: matching rows are at like places, as in tables that were "
    "filled together. Shuffle one of the inputs to get an estimate."
)


@dataclass(frozen=True, slots=True)
class SampleBlock:
    """Rows of both sides that have all been joined with each other, and their number of matches."""

    left_rows: int
    right_rows: int
    matches: int
    sums: Mapping[str, float] = field(default_factory=dict)  # sums of values over the matching pairs

    @property
    def pairs(self) -> int:
        return self.left_rows * self.right_rows


class _Region(NamedTuple):
    """Pairs that have been compared: disjoint rectangles of rows that were joined completely."""

    pairs: int = 0
    matches: int = 0
    left_squares: int = 0  # sum over left rows of the squared number of their pairs here
    right_squares: int = 0

    @classmethod
    def from_rows(cls, left_rows: int, right_rows: int, matches: int = 0) -> _Region:
        pairs = left_rows * right_rows
        return cls(pairs, matches, pairs * right_rows, pairs * left_rows)

    def plus(self, other: _Region) -> _Region:
        return _Region(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def minus(self, other: _Region) -> _Region:
        return _Region(*(mine - theirs for mine, theirs in zip(self, other, strict=True)))

    @property
    def unseen(self) -> float:
        """The minimal relative error of a total: the share of rows that are unlike all known rows."""
        return UNSEEN * (self.left_squares + self.right_squares) / self.pairs**2

    @property
    def variance(self) -> float:
        """The variance of one pair drawn independently."""
        share = self.matches / self.pairs
        return self.pairs / (self.pairs - 1) * share * (1 - share)


class _Spread(NamedTuple):
    """How much blocks differ."""

    error: float  # squared error of their mean value per pair, for infinitely many rows
    freedom: int
    region: _Region  # the pairs of these blocks

    def to_come(self, known: _Region, left_rows: int, right_rows: int) -> float:
        """The share of this error, as far as it is due to rows, that comes from rows not known yet."""
        shares = (
            (mine / known.pairs**2 - 1 / rows) / (theirs / self.region.pairs**2)
            for mine, theirs, rows in (
                (known.left_squares, self.region.left_squares, left_rows),
                (known.right_squares, self.region.right_squares, right_rows),
            )
        )
        return max(0.0, *shares)

    @property
    def most_error(self) -> float:
        """An upper bound of the squared error, since few blocks say little."""
        return self.error * self.freedom / chi_squared_quantile(DOUBT_OF_BLOCKS, self.freedom)

    def due_to_rows(self, variance: float) -> float:
        """A lower bound of the part of a pair's variance that is due to its rows; at most half."""
        pairs = self.region.pairs
        each = max(self.region.left_squares, self.region.right_squares) / pairs**2 - 1 / pairs
        least = self.error * self.freedom / chi_squared_quantile(1 - DOUBT_OF_BLOCKS, self.freedom)
        return min(max(0.0, least - variance / pairs) / each, variance / 2) if each > 0 else 0.0


class Estimator:
    """Estimates from blocks. Blocks share no rows; those with an empty side carry no information and are ignored.

    Any operator that joins rows in blocks can report them, and so can the waves of a join on Spark.
    """

    def __init__(self) -> None:
        self.blocks: list[SampleBlock] = []
        self._known = _Region()  # all pairs compared so far: blocks, and what was merged since
        self._growing = _Region()
        self._parts: list[SampleBlock] = []  # parts of the first block
        self._keys: tuple[_Histogram, _Histogram] = (_Histogram(), _Histogram())
        self._objection: str | None = UNASKED  # until blocks arrive, the computed value is kept
        self._spread: _Spread | None = None
        self._drawn: DrawnSample | None = None  # drawn from all rows, whatever their order
        self._depends = False  # whether the orders of the two sides depend on each other

    def add(
        self,
        left_rows: int,
        right_rows: int,
        matches: int,
        *,
        sums: Mapping[str, float] | None = None,
        keys: tuple[Words, Words] | None = None,
        looked_at: bool = True,
    ) -> None:
        """Add a complete block. `keys`, codes of its rows, are used to test the order.

        `looked_at`: its pairs are not yet known otherwise.
        """
        self._growing = _Region()
        self._forget()
        if keys is not None:
            for histogram, codes in zip(self._keys, keys, strict=True):
                histogram.add(codes)
        if left_rows and right_rows:
            self.blocks.append(SampleBlock(left_rows, right_rows, matches, sums or {}))
            if looked_at:
                self._known = self._known.plus(_Region.from_rows(left_rows, right_rows, matches))

    def grow(
        self,
        left_rows: int,
        right_rows: int,
        matches: int,
        *,
        diagonal: Sequence[int],
        chunk: int,
        keys: tuple[Words, Words] | None = None,
    ) -> None:
        """Report a growing block: this number of its rows have been joined; `keys` are those of the latest.

        `diagonal`: the number of matches of the first `chunk` rows of both sides with each other, then of the next
        ones, and so on. They replace blocks while there are few of these, with a rather wide interval.
        """
        self._parts = [SampleBlock(chunk, chunk, count) for count in diagonal]
        self._growing = _Region.from_rows(left_rows, right_rows, matches)
        self._forget()
        if keys is not None:
            for histogram, codes in zip(self._keys, keys, strict=True):
                for part in np.array_split(codes, SAMPLES):
                    histogram.add(part)

    def merge(self, groups: Sequence[tuple[int, int]], matches: int) -> None:
        """Record that groups of rows were joined with each other: their sizes and the number of matches."""
        for left_rows, right_rows in groups:
            self._known = self._known.minus(_Region.from_rows(left_rows, right_rows))
        lefts, rights = zip(*groups, strict=True)
        self._known = self._known.plus(_Region.from_rows(sum(lefts), sum(rights), matches))

    def know(self, left_rows: int, right_rows: int, matches: int) -> None:
        """Record that this number of rows have all been joined."""
        self._known = _Region.from_rows(left_rows, right_rows, matches)

    def compare(self, found: PlacedMatches) -> None:
        """Test the positions of some matches: they may show that the orders of the inputs depend on each other."""
        self._depends = self._depends or found.depend

    def draw(self, sample: DrawnSample) -> None:
        """Use rows that were drawn at random from all rows of both sides."""
        self._drawn = sample
        self.compare(sample.found)

    def _forget(self) -> None:
        self._objection = UNASKED
        self._spread = None

    def to_json(self) -> dict[str, Any]:
        return {
            "blocks": [[b.left_rows, b.right_rows, b.matches, dict(b.sums)] for b in self.blocks],
            "parts": [[b.left_rows, b.right_rows, b.matches] for b in self._parts],
            "known": list(self._known),
            "keys": [histogram.to_json() for histogram in self._keys],
            "depends": self._depends,
        }

    def restore(self, fields: Mapping[str, Any]) -> None:
        """Resume from another estimator's state; its growing block will be reported again."""
        self.blocks = [SampleBlock(*block) for block in fields["blocks"]]
        self._parts = [SampleBlock(*block) for block in fields["parts"]]
        self._known = _Region(*fields["known"]) if "found" not in fields else self._read_first_release(fields)
        self._depends = fields.get("depends", False)
        self._forget()
        for histogram, state in zip(self._keys, fields["keys"], strict=True):
            histogram.restore(state)

    def _read_first_release(self, fields: Mapping[str, Any]) -> _Region:
        """State of 0.1.0 has only pairs and matches; the rest is filled in as if only blocks had been compared."""
        known = _Region()
        for block in self.blocks:
            known = known.plus(_Region.from_rows(block.left_rows, block.right_rows, block.matches))
        return known._replace(pairs=fields["known"], matches=fields["found"])

    @property
    def objection(self) -> str | None:
        """Why the rows joined so far do not allow a reliable estimate, or None."""
        if self._objection == UNASKED:
            self._objection = self._test_order()
        return DEPENDENT if self._objection is None and self._depends else self._objection

    def _test_order(self) -> str | None:
        for name, histogram in zip(("left", "right"), self._keys, strict=True):
            if histogram.probability < DOUBT:
                return (
                    f"the {name} rows do not arrive in random order: their keys differ from block to block. "
                    "Shuffle the input to get an estimate."
                )
        return None

    def estimate(
        self, left_rows: int, right_rows: int, confidence: float = CONFIDENCE, interval: Interval = "blocks"
    ) -> Estimate | None:
        """Estimate the number of results for the given sizes of the inputs. None while it would not be reliable."""
        size, known = left_rows * right_rows, self._known.plus(self._growing)
        if known.pairs >= size:
            return Estimate(known.matches, known.matches, known.matches, confidence)
        own, error = self._extrapolate(known, left_rows, right_rows, confidence, interval)
        if self._drawn is not None:
            own = self._reconcile(own, error, self._drawn, confidence)
        if own is None or own.high <= known.matches:
            return None
        most = known.matches + size - known.pairs
        low, high = max(known.matches, own.low), min(most, own.high)
        return Estimate(min(max(own.total, low), high), low, high, confidence) if low < high else None

    def _reconcile(self, own: Estimate | None, error: float, sample: DrawnSample, confidence: float) -> Estimate | None:
        """The narrower of two estimates that agree; one that covers both if they hardly do; else the sample's."""
        drawn = sample.estimate(confidence)
        if own is None:
            return drawn
        apart = sample.errors_from(own.total, error)
        if apart > DIFFERENT:
            self._depends = True
            return drawn
        if drawn is None:
            return own
        if apart > ALIKE:
            return own._replace(low=min(own.low, drawn.low), high=max(own.high, drawn.high))
        return _narrower(own, drawn)

    def _extrapolate(
        self, known: _Region, left_rows: int, right_rows: int, confidence: float, interval: Interval
    ) -> tuple[Estimate | None, float]:
        """Extrapolate from the known pairs to all; also returns the standard error."""
        size, spread = left_rows * right_rows, self._spread_of_matches()
        if not known.pairs or spread is None or self.objection is not None:
            return None, 0.0
        if self._match_together(known, spread):
            self._depends = True
            return None, 0.0
        z = NormalDist().inv_cdf((1 + confidence) / 2)
        to_come = 1 / known.pairs - 1 / size
        if interval == "printed":
            error = z * math.sqrt(to_come * known.variance)
        else:
            share = spread.to_come(known, left_rows, right_rows)
            variance = known.variance - spread.due_to_rows(known.variance)
            by_chance = max(0.0, to_come - share / spread.region.pairs) * variance
            by_rows = share * spread.error
            error = math.hypot(z * math.sqrt(by_chance), student_t(spread.freedom, confidence) * math.sqrt(by_rows))
        total = size * known.matches / known.pairs
        margin = max(size * error, known.unseen * (total - known.matches), 1.0)
        return Estimate(total, total - margin, total + margin, confidence), margin / z

    def _match_together(self, known: _Region, spread: _Spread) -> bool:
        """Whether rows of a block match each other more or less often than rows of different blocks."""
        blocks = spread.region
        elsewhere = 1 - blocks.pairs / known.pairs
        if elsewhere < ELSEWHERE:
            return False
        share = known.matches / known.pairs
        by_chance = share * (1 - share) * blocks.pairs * elsewhere
        by_rows = spread.most_error * blocks.pairs**2
        return abs(blocks.matches - share * blocks.pairs) > TOGETHER * math.sqrt(max(by_chance, by_rows))

    def sum(self, name: str, left_rows: int, right_rows: int, confidence: float = CONFIDENCE) -> Estimate | None:
        """Estimate the sum of `name` over all results."""
        drawn = None if self._drawn is None else self._drawn.sum(name, confidence)
        return _narrower(self._sum_by_blocks(name, left_rows, right_rows, confidence), drawn)

    def average(self, name: str, values: str | None = None, confidence: float = CONFIDENCE) -> Estimate | None:
        """Estimate the average of `name` over all results.

        `values`: the sum that counts the values, if not every result has one.
        """
        drawn = None if self._drawn is None else self._drawn.average(name, values, confidence)
        return _narrower(self._average_by_blocks(name, values, confidence), drawn)

    def _sum_by_blocks(self, name: str, left_rows: int, right_rows: int, confidence: float) -> Estimate | None:
        size = left_rows * right_rows
        values = [block.sums.get(name, 0.0) for block in self.blocks]
        spread = self._spread_of(self.blocks, values)
        if spread is None:
            return None
        total = size * sum(values) / spread.region.pairs
        rest = max(0.0, 1 - spread.region.pairs / size)  # the share of the cross product that was not compared
        margin = size * student_t(spread.freedom, confidence) * math.sqrt(rest * spread.error)
        margin = max(margin, rest * spread.region.unseen * abs(total))
        return Estimate(total, total - margin, total + margin, confidence) if margin or not rest else None

    def _average_by_blocks(self, name: str, values: str | None, confidence: float) -> Estimate | None:
        """A ratio, with the error of its residuals in each block."""
        counts = [block.matches if values is None else block.sums.get(values, 0.0) for block in self.blocks]
        sums = [block.sums.get(name, 0.0) for block in self.blocks]
        matches = sum(counts)
        if matches < FEWEST_MATCHES or (spread := self._spread_of(self.blocks, sums)) is None:
            return None
        average = sum(sums) / matches
        left_over = sum((total - average * number) ** 2 for total, number in zip(sums, counts, strict=True))
        count = len(self.blocks)
        margin = student_t(count - 1, confidence) * math.sqrt(count / (count - 1) * left_over) / matches
        margin = max(margin, spread.region.unseen * abs(average))
        return Estimate(average, average - margin, average + margin, confidence) if margin else None

    def _spread_of_matches(self) -> _Spread | None:
        if self._spread is None:
            blocks = self.blocks if len(self.blocks) >= min(ENOUGH, len(self._parts)) else self._parts
            self._spread = self._spread_of(blocks, [block.matches for block in blocks])
        return self._spread

    def _spread_of(self, blocks: Sequence[SampleBlock], values: Sequence[float]) -> _Spread | None:
        """None while it would not be reliable. Blocks of different sizes are weighted by their pairs."""
        count, region = len(blocks), _Region()
        for block in blocks:
            region = region.plus(_Region.from_rows(block.left_rows, block.right_rows, block.matches))
        if count < 2 or region.matches < FEWEST_MATCHES or self.objection is not None:
            return None
        mean = sum(values) / region.pairs
        squares = sum((value - mean * block.pairs) ** 2 for value, block in zip(values, blocks, strict=True))
        return _Spread(count / (count - 1) * squares / region.pairs**2, count - 1, region)


def _narrower(one: Estimate | None, other: Estimate | None) -> Estimate | None:
    """The narrower of the two, or the only one."""
    return min((e for e in (one, other) if e is not None), key=lambda e: e.high - e.low, default=None)


class _Histogram:
    """Tests whether keys are distributed alike in all blocks. The first block determines the bins."""

    def __init__(self) -> None:
        self._cuts: Words | None = None
        self._counts: list[Words] = []

    def add(self, codes: Words) -> None:
        if not len(codes):
            return
        codes = codes[:: -(-len(codes) // MOST_KEYS)]
        if self._cuts is None:
            places = np.linspace(0, len(codes) - 1, BINS + 1).astype(np.int64)[1:-1]
            self._cuts = np.unique(np.sort(codes)[places])
        bins = np.searchsorted(self._cuts, codes, side="left")
        self._counts.append(np.bincount(bins, minlength=len(self._cuts) + 1))

    def to_json(self) -> dict[str, Any]:
        cuts = None if self._cuts is None else self._cuts.tolist()
        return {"cuts": cuts, "counts": [counts.tolist() for counts in self._counts]}

    def restore(self, fields: Mapping[str, Any]) -> None:
        self._cuts = None if fields["cuts"] is None else np.array(fields["cuts"], np.int64)
        self._counts = [np.array(counts) for counts in fields["counts"]]

    @property
    def probability(self) -> float:
        """The probability, under random order, that counts differ at least this much between blocks."""
        if len(self._counts) < 2:
            return 1.0
        table = np.array(self._counts, np.float64)
        table = table[:, table.sum(axis=0) > 0]
        expected = table.sum(axis=1, keepdims=True) * table.sum(axis=0) / table.sum()
        freedom = (table.shape[0] - 1) * (table.shape[1] - 1)
        if not freedom or expected.mean() < 5:
            return 1.0
        return chi_squared_tail(float(((table - expected) ** 2 / expected).sum()), freedom)


def chi_squared_tail(value: float, freedom: int) -> float:
    """The probability of more than `value`, by Wilson and Hilferty's cube root."""
    if value <= 0:
        return 1.0
    spread = 2 / (9 * freedom)
    return 1 - NormalDist().cdf(((value / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread))


def chi_squared_quantile(share: float, freedom: int) -> float:
    """The value that the sum of squares does not exceed with this probability; the inverse of `chi_squared_tail`."""
    spread = 2 / (9 * freedom)
    return freedom * (1 - spread + NormalDist().inv_cdf(share) * math.sqrt(spread)) ** 3


def student_t(freedom: int, confidence: float) -> float:
    """The number of standard errors on both sides that contain this share (Hill, Algorithm 396, CACM 1970)."""
    tail = 1 - confidence
    if freedom == 1:
        return 1 / math.tan(tail * math.pi / 2)
    if freedom == 2:
        return math.sqrt(2 / (tail * (2 - tail)) - 2)
    n = freedom
    a = 1 / (n - 0.5)
    b = 48 / a**2
    c = ((20700 * a / b - 98) * a - 16) * a + 96.36
    d = ((94.5 / (b + c) - 3) / b + 1) * math.sqrt(a * math.pi / 2) * n
    y = (d * tail) ** (2 / n)
    if y > 0.05 + a:
        x = NormalDist().inv_cdf(tail / 2)
        y = x * x
        if n < 5:
            c += 0.3 * (n - 4.5) * (x + 0.6)
        c = (((0.05 * d * x - 5) * x - 7) * x - 2) * x + b + c
        y = (((((0.4 * y + 6.3) * y + 36) * y + 94.5) / c - y - 3) / b + 1) * x
        y = a * y * y
        y = math.expm1(y)
    else:
        inverse = 1 / (((n + 6) / (n * y) - 0.089 * d - 0.822) * (n + 2) * 3)
        y = ((inverse + 0.5 / (n + 4)) * y - 1) * (n + 1) / (n + 2) + 1 / y
    return math.sqrt(n * y)
