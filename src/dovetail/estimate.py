"""How many results there will be, from blocks of rows that have met completely, with bounds that can be trusted.

    block b    |L_b| left rows, |R_b| right rows, all |L_b||R_b| pairs looked at, m_b of them results

Where rows arrive in random order, every block is a fair sample of the cross product, and y = sum m_b / sum |L_b||R_b|
estimates the selectivity (PMJ, section 3.5, eq. 3). Two intervals around it:

    printed     y ± z V sqrt((1 - n/T) / n), V² = n/(n-1) y (1-y)      eq. 4: as if all n pairs were drawn by themselves
    blocks      y ± t s / sqrt(k), s² the variance between the k blocks

Pairs that share a row are not independent: with keys of Zipf 1 the printed 95 % interval holds the truth in a third of
all cases. Blocks share no rows, so theirs is honest for any keys; it is the default, and needs two blocks.

Everything rests on the random order. Blocks can tell: a histogram of their keys must look alike in all of them. Where
a chi-squared test of homogeneity says no, there is no estimate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.int64]
Interval = Literal["blocks", "printed"]

CONFIDENCE = 0.95
SAMPLES = 4  # into which the latest rows of a growing block are divided
MOST_KEYS = 4096  # of a block that are looked at
BINS = 16  # of the histogram of keys
ENOUGH = 5  # blocks, to do without parts of the one that is growing
FEWEST_MATCHES = 10  # nobody can say how rare it is what has hardly been seen
UNASKED = "the order has not been tested"
DOUBT = 1e-6  # so unlikely must blocks be under random order; the test is repeated with every block


class Estimate(NamedTuple):
    """The expected total number of results and its confidence interval."""

    total: float
    low: float
    high: float
    confidence: float


@dataclass(frozen=True, slots=True)
class Block:
    """Rows of both sides that have all met each other, and what came of it."""

    left_rows: int
    right_rows: int
    matches: int
    sums: Mapping[str, float] = field(default_factory=dict)  # of numbers over the matching pairs

    @property
    def pairs(self) -> int:
        return self.left_rows * self.right_rows


class _Growing(NamedTuple):
    pairs: int
    matches: int


class Estimator:
    """Blocks in, estimates out. Blocks share no rows; those in which a side is empty say nothing and are left out.

    Any operator whose rows meet in blocks can report them, and so can the waves of a join on Spark.
    """

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self._known = 0  # pairs that have been looked at altogether: blocks, and what was merged since
        self._found = 0  # matches among them
        self._growing = _Growing(0, 0)
        self._parts: list[Block] = []  # of the first block
        self._keys: tuple[_Histogram, _Histogram] = (_Histogram(), _Histogram())
        self._objection: str | None = UNASKED  # until blocks come, what has been computed is kept
        self._widths: dict[tuple[int, float, Interval], float | None] = {}

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
        """A block is complete. `keys`, codes of its rows, let the order be tested.

        `looked_at`: its pairs are not among those that are known otherwise.
        """
        self._growing = _Growing(0, 0)
        self._forget()
        if keys is not None:
            for histogram, codes in zip(self._keys, keys, strict=True):
                histogram.add(codes)
        if left_rows and right_rows:
            self.blocks.append(Block(left_rows, right_rows, matches, sums or {}))
            if looked_at:
                self.learn(left_rows * right_rows, matches)

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
        """A block is growing: so many rows of it have met; `keys` are those of the latest.

        `diagonal` says how many matches the first `chunk` rows of both sides have with each other, then the next ones,
        and so on. They stand in for blocks while there are few, with an interval that is rather wide.
        """
        self._parts = [Block(chunk, chunk, count) for count in diagonal]
        self._growing = _Growing(left_rows * right_rows, matches)
        self._forget()
        if keys is not None:
            for histogram, codes in zip(self._keys, keys, strict=True):
                for part in np.array_split(codes, SAMPLES):
                    histogram.add(part)

    def learn(self, pairs: int, matches: int) -> None:
        """Further pairs have been looked at: all that the rows of some blocks have with each other."""
        self._known += pairs
        self._found += matches

    def _forget(self) -> None:
        self._objection = UNASKED
        self._widths = {}

    def know(self, pairs: int, matches: int) -> None:
        """So many pairs have been looked at altogether."""
        self._known, self._found = pairs, matches

    def to_json(self) -> dict[str, Any]:
        return {
            "blocks": [[b.left_rows, b.right_rows, b.matches, dict(b.sums)] for b in self.blocks],
            "parts": [[b.left_rows, b.right_rows, b.matches] for b in self._parts],
            "known": self._known,
            "found": self._found,
            "keys": [histogram.to_json() for histogram in self._keys],
        }

    def restore(self, fields: Mapping[str, Any]) -> None:
        """Go on where another estimator was; what was growing there will be reported again."""
        self.blocks = [Block(*block) for block in fields["blocks"]]
        self._parts = [Block(*block) for block in fields["parts"]]
        self._known, self._found = fields["known"], fields["found"]
        self._forget()
        for histogram, state in zip(self._keys, fields["keys"], strict=True):
            histogram.restore(state)

    @property
    def objection(self) -> str | None:
        """Why there cannot be an honest estimate, or None."""
        if self._objection == UNASKED:
            self._objection = self._tested()
        return self._objection

    def _tested(self) -> str | None:
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
        """Of the number of results, where the inputs have so many rows. None while it cannot be honest."""
        size = left_rows * right_rows
        known, found = self._known + self._growing.pairs, self._found + self._growing.matches
        if known >= size:
            return Estimate(found, found, found, confidence)
        if not known:
            return None
        if (size, confidence, interval) not in self._widths:
            blocks = self.blocks if len(self.blocks) >= min(ENOUGH, len(self._parts)) else self._parts
            width = self._width(blocks, [block.matches for block in blocks], size, confidence, interval)
            self._widths[size, confidence, interval] = width
        width = self._widths[size, confidence, interval]
        if width is None:
            return None
        unknown = size - known
        total = found + unknown * found / known
        margin = unknown * width
        return Estimate(total, max(found, total - margin), min(size, total + margin), confidence)

    def sum(self, name: str, left_rows: int, right_rows: int, confidence: float = CONFIDENCE) -> Estimate | None:
        """Of the sum of `name` over all results, by blocks."""
        size = left_rows * right_rows
        values = [block.sums.get(name, 0.0) for block in self.blocks]
        width = self._width(self.blocks, values, size, confidence, "blocks")
        if width is None:
            return None
        total = size * sum(values) / sum(block.pairs for block in self.blocks)
        return Estimate(total, total - size * width, total + size * width, confidence)

    def average(self, name: str, values: str | None = None, confidence: float = CONFIDENCE) -> Estimate | None:
        """Of the average of `name` over all results: a ratio, with the error of what it leaves over in each block.

        `values`: the sum that says how many values there are, if not every result has one.
        """
        counts = [block.matches if values is None else block.sums.get(values, 0.0) for block in self.blocks]
        matches = sum(counts)
        if len(self.blocks) < 2 or matches < FEWEST_MATCHES or self.objection:
            return None
        sums = [block.sums.get(name, 0.0) for block in self.blocks]
        average = sum(sums) / matches
        left_over = sum((total - average * number) ** 2 for total, number in zip(sums, counts, strict=True))
        count = len(self.blocks)
        margin = student_t(count - 1, confidence) * math.sqrt(count / (count - 1) * left_over) / matches
        return Estimate(average, average - margin, average + margin, confidence)

    def _width(
        self, blocks: Sequence[Block], values: Sequence[float], size: int, confidence: float, interval: Interval
    ) -> float | None:
        """Half of the interval of values per pair."""
        count, pairs = len(blocks), sum(block.pairs for block in blocks)
        if count < 2 or sum(block.matches for block in blocks) < FEWEST_MATCHES or self.objection is not None:
            return None
        mean = sum(values) / pairs
        rest = max(0.0, 1 - pairs / size)  # of the cross product that was not looked at
        if interval == "printed":
            variance = pairs / (pairs - 1) * mean * (1 - mean)
            return NormalDist().inv_cdf((1 + confidence) / 2) * math.sqrt(variance * rest / pairs)
        # Blocks of unequal sizes count by their pairs.
        squares = sum((value - mean * block.pairs) ** 2 for value, block in zip(values, blocks, strict=True))
        error = math.sqrt(count / (count - 1) * squares * rest) / pairs
        return student_t(count - 1, confidence) * error


class _Histogram:
    """Are keys distributed alike in all blocks? Bins are cut by the first block."""

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
        """Of counts that differ at least as much from block to block, under random order."""
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
    """The probability of more than `value`, by the cube root of Wilson and Hilferty."""
    if value <= 0:
        return 1.0
    spread = 2 / (9 * freedom)
    return 1 - NormalDist().cdf(((value / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread))


def student_t(freedom: int, confidence: float) -> float:
    """How many standard errors to both sides hold this share (Hill, Algorithm 396, CACM 1970)."""
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
