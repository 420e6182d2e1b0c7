"""The key that orders the rows of a join: one equality, band or inequality of the condition, as 64-bit codes.

    value a < b  =>  code(a) <= code(b)        codes of a row's partners are between two bounds, its reach

Numbers and times have exact codes. Strings are distinguished by eight bytes, long decimals by a double: these codes
never lose a pair, and candidates that they cannot confirm are checked. Equal keys are found by a hash of all keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dovetail.condition import Band, Condition, Equal, Less, Overlap, closed_bounds, columns_of, keyed_rows, matching
from dovetail.condition.expression import Expression, type_of
from dovetail.core.buffers import byte_strings
from dovetail.core.codes import float_codes, is_fixed, rough_codes, saturating_range
from dovetail.core.rows import Rows, Side
from dovetail.kernels.band import DOUBLE_STEP, LARGEST, LEAST, MOST, SINGLE_STEP, SMALLEST, code_floats
from dovetail.kernels.sorting import prefix_codes
from dovetail.matching.equal_keys import HashKeys, key_columns

Words = NDArray[np.int64]
Flags = NDArray[np.bool_]

MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
OUTLIERS = 20  # one string in 20 may lack the prefix, at either end


class Keyed(NamedTuple):
    """The rows that can match (None: all of them), their codes, and their hashes if partners are found by hash."""

    rows: Rows | None
    codes: Words
    hashes: Words | None


class CodeReach(NamedTuple):
    """The bounds for the codes of each row's partners; None is unbounded."""

    low: Words | None
    high: Words | None
    low_closed: bool = True
    high_closed: bool = True


class OrderKeys:
    """The condition's ordering predicate, prepared to code batches of either side and to check candidates."""

    def __init__(self, condition: Condition) -> None:
        found = ordering_predicate(condition)
        assert found is not None
        self.predicate = found
        self.learned = b""  # the common prefix of strings
        self._condition = condition
        self._keys = (found.left, found.right)
        self._type = type_of(found.left)
        self._hashing = HashKeys(condition) if isinstance(found, Equal) else None
        covered = condition.equalities if isinstance(found, Equal) else (found,)
        self._driving = tuple(source for p in covered for source in p.source)
        self._others = tuple(c for c in condition.conjuncts if c not in self._driving)

    @property
    def by_hash(self) -> bool:
        """Whether partners are found by equal hashes instead of by order."""
        return self._hashing is not None

    @property
    def exact_codes(self) -> bool:
        """Whether equal codes mean that the whole keys are equal."""
        return self._hashing.exact if self._hashing is not None else is_fixed(self._type)

    @property
    def has_checks(self) -> bool:
        """Whether some candidates may not be pairs."""
        match self.predicate:
            case Equal():
                sure = self.exact_codes
            case _:
                sure = is_fixed(self._type) and not pa.types.is_floating(self._type)
        return bool(self._others) or not sure

    @property
    def is_text(self) -> bool:
        return not is_fixed(self._type) and not pa.types.is_decimal(self._type)

    def read(self, side: Side, batch: pa.RecordBatch) -> Keyed:
        """Code the rows that have no null key and pass the one-sided filters."""
        keys = [self._keys[side]] if self._hashing is None else self._hashing.keys_of(side)
        rows, columns = keyed_rows(self._condition, side, batch, keys)
        hashes = None if self._hashing is None else self._hashing.hash_columns(columns)
        return Keyed(rows, self._codes(columns[0]), hashes)

    def codes(self, side: Side, batch: pa.RecordBatch, rows: Rows | None = None) -> Words:
        """The codes of rows that `read` kept, or of some of them."""
        return self._codes(key_columns(side, batch, [self._keys[side]], rows)[0])

    def hashes(self, side: Side, batch: pa.RecordBatch) -> Words:
        """The hashes of rows that `read` kept, if partners are found by hash."""
        assert self._hashing is not None
        return self._hashing.hash_again(side, batch)

    def learn(self, batches: Sequence[Iterable[pa.RecordBatch]]) -> None:
        """Remove the common prefix of the strings in these rows, which `read` kept, from the codes."""
        columns = [key_columns(side, batch, [self._keys[side]])[0] for side in Side for batch in batches[side]]
        texts = pa.chunked_array([pc.cast(column, pa.large_binary()) for column in columns], pa.large_binary())
        if len(texts) < 2:
            return
        order = pc.sort_indices(texts)
        first, last = (texts[order[place].as_py()].as_py() for place in self._middle(len(texts)))
        self.learned = first[: next((i for i in range(len(first)) if first[i : i + 1] != last[i : i + 1]), len(first))]

    def reach(self, side: Side, codes: Words) -> CodeReach:
        """The bounds for partners of rows of this side."""
        match self.predicate:
            case Equal():
                return CodeReach(codes, codes)
            case Less(_, operator):
                forwards = operator if side is Side.LEFT else MIRRORED[operator]
                closed = forwards in ("<=", ">=") or not is_fixed(self._type)
                return (
                    CodeReach(codes, None, closed) if forwards in ("<", "<=") else CodeReach(None, codes, True, closed)
                )
        low, high = closed_bounds(self.predicate)
        if side is Side.LEFT:  # low <= l - r <= high: partners between l - high and l - low
            low, high = -high, -low
        if isinstance(low, int) and isinstance(high, int):
            return CodeReach(*saturating_range(codes, low, high))
        return CodeReach(*self._float_range(codes, float(low), float(high), 1.0))

    def can_match(self, side: Side, mine: tuple[int, int], theirs: tuple[int, int]) -> bool:
        """Whether rows of this side with codes from mine[0] to mine[1] can have partners with codes in `theirs`."""
        match self.predicate:
            case Band():
                low, high = closed_bounds(self.predicate)
                if isinstance(low, int) and isinstance(high, int):  # also beyond 64 bits
                    low, high = (-high, -low) if side is Side.LEFT else (low, high)
                    return mine[0] + low <= theirs[1] and theirs[0] <= mine[1] + high
        low_codes, high_codes, _, _ = self.reach(side, np.array(mine))
        return (low_codes is None or bool(low_codes[0] <= theirs[1])) and (
            high_codes is None or bool(theirs[0] <= high_codes[1])
        )

    def matching(
        self, side: Side, mine: tuple[pa.RecordBatch, Rows, Words], theirs: tuple[pa.RecordBatch, Rows, Words]
    ) -> Flags:
        """Which candidates (batch, row of each, code of each) are pairs."""
        doubtful = self._doubtful(side, mine[2], theirs[2])
        good = np.ones(len(mine[1]), np.bool_)
        if doubtful is not None and doubtful.any():
            good[doubtful] = self._satisfy(self._driving, side, mine, theirs, np.flatnonzero(doubtful))
        if self._others:
            rest = np.flatnonzero(good)
            good[rest] = self._satisfy(self._others, side, mine, theirs, rest)
        return good

    def _satisfy(
        self, what: tuple[Expression, ...], side: Side, mine: tuple[Any, ...], theirs: tuple[Any, ...], chosen: Rows
    ) -> Flags:
        left, right = (mine, theirs) if side is Side.LEFT else (theirs, mine)
        return matching(what, left[0], left[1][chosen], right[0], right[1][chosen])

    def _doubtful(self, side: Side, mine: Words, theirs: Words) -> Flags | None:
        """Which candidates are not proven by their codes alone; None: all are proven."""
        match self.predicate:
            case Equal():
                return None if self.exact_codes else np.ones(len(mine), np.bool_)
            case Less():
                return None if is_fixed(self._type) else mine == theirs
        low, high = closed_bounds(self.predicate)
        if isinstance(low, int):
            return None
        if side is Side.LEFT:
            low, high = -high, -low
        least, most = self._float_range(mine, float(low), float(high), -1.0)
        return (theirs < least) | (theirs > most)

    def _float_range(self, codes: Words, low: float, high: float, widen: float) -> tuple[Words, Words]:
        """The codes of doubles from x + low to x + high, widened or narrowed slightly.

        The largest double represents infinity. Infinities and NaN may match their equals, and are always checked.
        """
        columns = [c for source in self.predicate.source for c in columns_of(source)]
        single = any(pa.types.is_float32(type_of(c)) or pa.types.is_float16(type_of(c)) for c in columns)
        step = 2 * (SINGLE_STEP if single else DOUBLE_STEP)
        numbers = code_floats(codes)
        finite = numbers.clip(-LARGEST, LARGEST)
        with np.errstate(over="ignore", invalid="ignore"):
            margins = widen * (np.abs(finite) * step + max(abs(low), abs(high)) * step + SMALLEST)
            first = float_codes((finite + low - margins).clip(-LARGEST, LARGEST))
            last = float_codes((finite + high + margins).clip(-LARGEST, LARGEST))
        edges = float_codes(np.array([-np.inf, -LARGEST, LARGEST, np.inf, np.nan]))
        if widen < 0:
            inside = np.isfinite(numbers)
            return np.where(inside, first.clip(edges[1], edges[2]), MOST), np.where(inside, last, LEAST)
        first = np.where((first == edges[1]) | (numbers == -np.inf), edges[0], first)
        last = np.where((last == edges[2]) | (numbers == np.inf), edges[3], last)
        none = np.isnan(numbers)
        return np.where(none, edges[4], first), np.where(none, edges[4], last)

    def _codes(self, column: pa.Array) -> Words:
        if not self.is_text:
            return rough_codes(column)
        texts = byte_strings(pc.cast(column, pa.large_binary()))
        return prefix_codes(*texts, np.frombuffer(self.learned, np.uint8))

    @staticmethod
    def _middle(size: int) -> tuple[int, int]:
        return size // OUTLIERS, size - 1 - size // OUTLIERS


def ordering_predicate(condition: Condition) -> Equal | Band | Less | None:
    """The first equality, else the first band, else the first inequality; None if there is none."""
    for kind in (Equal, Band, Less):
        for predicate in condition.predicates:
            if isinstance(predicate, kind) and not _is_long_band(predicate):
                return predicate
    for predicate in condition.predicates:
        if isinstance(predicate, Overlap):
            return Less(predicate.left.low, "<=" if predicate.left_low_closed else "<", predicate.right.high, ())
    return None


def _is_long_band(predicate: Any) -> bool:
    """Whether it compares decimals that are too long to be subtracted as 64-bit integers."""
    return isinstance(predicate, Band) and not is_fixed(type_of(predicate.left))
