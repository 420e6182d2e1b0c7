"""The question of a case, in a neutral form from which each contender builds its own query.

A condition is a list of terms that all have to hold. Names of left columns begin with `l_`, those of right columns with
`r_`, so that no system has to rename them. `l_id` and `r_id` number the rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple


class Compare(NamedTuple):
    """left operator right + shift"""

    left: str
    operator: str
    right: str
    shift: int = 0


class Within(NamedTuple):
    """start <= point < end"""

    point: str
    start: str
    end: str


class Overlap(NamedTuple):
    """Half-open intervals that share a point."""

    left_start: str
    left_end: str
    right_start: str
    right_end: str


class Band(NamedTuple):
    """|left - right| <= reach"""

    left: str
    right: str
    reach: int


class EitherEqual(NamedTuple):
    """At least one of these pairs of columns is equal."""

    pairs: tuple[tuple[str, str], ...]


class SumModulo(NamedTuple):
    """(left + right) % modulus operator remainder"""

    left: str
    right: str
    modulus: int
    operator: str
    remainder: int


Term = Compare | Within | Overlap | Band | EitherEqual | SumModulo


@dataclass(frozen=True)
class Pairs:
    """All pairs that satisfy the terms; with how = "left" also left rows without a partner, "left_anti" only these."""

    terms: tuple[Term, ...]
    how: str = "inner"


@dataclass(frozen=True)
class AsOf:
    """Each left row with the last right row up to its time; with a key, among rows of the same key."""

    left_time: str
    right_time: str
    keys: tuple[str, str] | None = None


@dataclass(frozen=True)
class Nearest:
    """Each left point with the k nearest right points."""

    left: tuple[str, str]
    right: tuple[str, str]
    k: int


@dataclass(frozen=True)
class WindowSums:
    """For each left row the number of its partners, `n`, and the sum of their values, `total`; null if it has none."""

    terms: tuple[Term, ...]
    value: str


@dataclass(frozen=True)
class Streams:
    """All pairs of rows of two streams of files."""

    terms: tuple[Term, ...]
    files: int


Question = Pairs | AsOf | Nearest | WindowSums | Streams


def comparisons(terms: Iterable[Term]) -> list[Compare] | None:
    """The terms as comparisons of columns; None if that is not possible."""
    found: list[Compare] = []
    for term in terms:
        match term:
            case Compare():
                found.append(term)
            case Within(point, start, end):
                found += [Compare(point, ">=", start), Compare(point, "<", end)]
            case Overlap(left_start, left_end, right_start, right_end):
                found += [Compare(left_start, "<", right_end), Compare(left_end, ">", right_start)]
            case Band(left, right, reach):
                found += [Compare(left, ">=", right, -reach), Compare(left, "<=", right, reach)]
            case _:
                return None
    return found
