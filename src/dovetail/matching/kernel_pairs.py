"""A common interface to the kernels: the number of pairs, the pairs, and which rows have a partner, by position.

Aggregates over the partners of each left row (their number, the sum of their values, the smallest of their codes) need
no enumeration of the pairs; without `adds_up`, this holds only for their number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import ModuleType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dovetail.core.rows import Rows, Side
from dovetail.kernels import windows
from dovetail.kernels.windows import Windows

Flags = NDArray[np.bool_]


class Matcher(Protocol):
    """The matching pairs of two sides by row number. Nothing is enumerated until requested."""

    seen: int  # candidates that `pairs` has checked so far

    @property
    def exact(self) -> bool:
        """Whether every candidate is a pair."""

    def candidates(self) -> int:
        """The number of pairs that have to be checked, without enumerating them."""

    def count(self) -> int:
        """The number of pairs."""

    def pairs(self, capacity: int) -> Iterator[tuple[Rows, Rows]]:
        """All pairs (left row, right row), in chunks of about `capacity`."""

    def partnered(self, side: Side) -> Flags:
        """Which rows of a side have a partner."""

    def split(self, threads: int) -> Sequence[Matcher]:
        """Matchers that together have the same pairs in the same order, for a number of threads."""


Words = NDArray[np.int64]
Numbers = NDArray[Any]  # int64 or float64

NONE = np.iinfo(np.int64).max  # the smallest code if there is no partner, and the code of null


class Listed(Protocol):
    def count(self) -> int: ...
    def pairs(self, capacity: int) -> Iterator[tuple[Rows, Rows]]: ...
    def partnered(self, side: Side) -> Flags: ...

    def split(self, parts: int) -> Sequence[Listed]:
        """The same pairs in order, in about this number of parts; one part if there are few or no way to split."""

    @property
    def adds_up(self) -> bool:
        """Whether it has `row_sums` and `row_smallest`; otherwise the pairs have to be enumerated."""

    def row_counts(self) -> Words:
        """The number of partners of each left row."""

    def row_sums(self, numbers: Numbers) -> Numbers:
        """For each left row, the sum of its partners' numbers (one number per right row)."""

    def row_smallest(self, codes: Words) -> Words:
        """For each left row, the smallest of its partners' codes (one code per right row); NONE without a partner."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A prepared join and the module of its kernels; all these modules have the same functions."""

    kernels: ModuleType
    join: Any

    def count(self) -> int:
        pairs: int = self.kernels.count(self.join)
        return pairs

    def pairs(self, capacity: int) -> Iterator[tuple[Rows, Rows]]:
        pairs: Iterator[tuple[Rows, Rows]] = self.kernels.pairs(self.join, capacity)
        return pairs

    def partnered(self, side: Side) -> Flags:
        exists = self.kernels.row_exists if side is Side.LEFT else self.kernels.right_exists
        flags: Flags = exists(self.join)
        return flags

    def split(self, parts: int) -> Sequence[Listed]:
        if not hasattr(self.kernels, "split"):
            return [self]
        return [Prepared(self.kernels, part) for part in self.kernels.split(self.join, parts)]

    @property
    def adds_up(self) -> bool:
        return hasattr(self.kernels, "row_sums")

    def row_counts(self) -> Words:
        counts: Words = self.kernels.row_counts(self.join)
        return counts

    def row_sums(self, numbers: Numbers) -> Numbers:
        sums: Numbers = self.kernels.row_sums(self.join, numbers)
        return sums

    def row_smallest(self, codes: Words) -> Words:
        partners: Rows = self.kernels.smallest_partners(self.join, codes)
        smallest = np.full(len(partners), NONE)
        some = partners >= 0
        smallest[some] = codes[partners[some]]
        return smallest


@dataclass(frozen=True, slots=True)
class Swapped:
    """The pairs of another listing with left and right swapped; `straight` lists them by left rows."""

    listed: Listed
    straight: Callable[[], Listed]

    adds_up = True

    def count(self) -> int:
        return self.listed.count()

    def pairs(self, capacity: int) -> Iterator[tuple[Rows, Rows]]:
        for rights, lefts in self.listed.pairs(capacity):
            yield lefts, rights

    def partnered(self, side: Side) -> Flags:
        return self.listed.partnered(side.other)

    def split(self, parts: int) -> Sequence[Listed]:
        return [Swapped(part, self.straight) for part in self.listed.split(parts)]

    def row_counts(self) -> Words:
        return self.straight().row_counts()

    def row_sums(self, numbers: Numbers) -> Numbers:
        return self.straight().row_sums(numbers)

    def row_smallest(self, codes: Words) -> Words:
        return self.straight().row_smallest(codes)


@dataclass(frozen=True, slots=True)
class Others:
    """All pairs except the partners by equality: the rows before and after a window."""

    equal: Windows

    def count(self) -> int:
        return len(self.equal.left) * len(self.equal.right) - windows.count(self.equal)

    def pairs(self, capacity: int) -> Iterator[tuple[Rows, Rows]]:
        for part in self._parts():
            yield from windows.pairs(part, capacity)

    def partnered(self, side: Side) -> Flags:
        before, behind = self._parts()
        if side is Side.LEFT:
            return windows.row_exists(before) | windows.row_exists(behind)
        return windows.right_exists(before) | windows.right_exists(behind)

    def split(self, parts: int) -> Sequence[Listed]:
        return [Prepared(windows, some) for part in self._parts() for some in windows.split(part, parts)]

    @property
    def adds_up(self) -> bool:
        return True

    def row_counts(self) -> Words:
        return len(self.equal.right) - windows.row_counts(self.equal)

    def row_sums(self, numbers: Numbers) -> Numbers:
        before, behind = self._parts()
        sums: Numbers = windows.row_sums(before, numbers) + windows.row_sums(behind, numbers)
        return sums

    def row_smallest(self, codes: Words) -> Words:
        before, behind = (Prepared(windows, part).row_smallest(codes) for part in self._parts())
        return np.minimum(before, behind)

    def _parts(self) -> tuple[Windows, Windows]:
        left, right, starts, ends = self.equal
        first, last = np.zeros_like(starts), np.full_like(ends, len(right))
        return Windows(left, right, first, starts), Windows(left, right, ends, last)


@dataclass(frozen=True, slots=True)
class All:
    """The cross product of the first left rows with all right rows."""

    left: int
    right: int
    first: int = 0

    def count(self) -> int:
        return self.left * self.right

    def pairs(self, capacity: int) -> Iterator[tuple[Rows, Rows]]:
        lines = max(1, capacity // max(1, self.right))
        for start in range(0, self.left if self.right else 0, lines):
            rows = np.arange(self.first + start, self.first + min(start + lines, self.left))
            yield np.repeat(rows, self.right), np.tile(np.arange(self.right), len(rows))

    def partnered(self, side: Side) -> Flags:
        mine, theirs = (self.left, self.right) if side is Side.LEFT else (self.right, self.left)
        return np.full(mine, theirs > 0)

    def split(self, parts: int) -> Sequence[Listed]:
        cuts = np.linspace(self.first, self.first + self.left, parts + 1).astype(np.int64)
        return [All(end - start, self.right, start) for start, end in pairwise(cuts.tolist()) if start < end]

    @property
    def adds_up(self) -> bool:
        return True

    def row_counts(self) -> Words:
        return np.full(self.left, self.right)

    def row_sums(self, numbers: Numbers) -> Numbers:
        none, last = np.zeros(1, np.int64), np.full(1, self.right)
        (total,) = windows.row_sums(Windows(none, np.arange(self.right), none, last), numbers)
        return np.full(self.left, total)

    def row_smallest(self, codes: Words) -> Words:
        return np.full(self.left, codes.min(initial=NONE))


@dataclass(frozen=True, slots=True)
class These:
    """Pairs that are already known."""

    lefts: Rows
    rights: Rows
    sizes: tuple[int, int]

    adds_up = True

    def count(self) -> int:
        return len(self.lefts)

    def pairs(self, capacity: int) -> Iterator[tuple[Rows, Rows]]:
        for start in range(0, len(self.lefts), capacity):
            yield self.lefts[start : start + capacity], self.rights[start : start + capacity]

    def partnered(self, side: Side) -> Flags:
        found = np.zeros(self.sizes[side], np.bool_)
        found[self.lefts if side is Side.LEFT else self.rights] = True
        return found

    def split(self, parts: int) -> Sequence[Listed]:
        return [self]

    def row_counts(self) -> Words:
        return np.bincount(self.lefts, minlength=self.sizes[0])

    def row_sums(self, numbers: Numbers) -> Numbers:
        sums = np.zeros(self.sizes[0], numbers.dtype)
        np.add.at(sums, self.lefts, numbers[self.rights])
        return sums

    def row_smallest(self, codes: Words) -> Words:
        smallest = np.full(self.sizes[0], NONE)
        np.minimum.at(smallest, self.lefts, codes[self.rights])
        return smallest
