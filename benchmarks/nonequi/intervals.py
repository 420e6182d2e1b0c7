"""The cases that libraries for genomic intervals can run: overlaps, and points as intervals of length 1.

Their tables have a chromosome column; without a key all rows are on the same chromosome.
"""

from __future__ import annotations

from benchmarks.nonequi.case import Case
from benchmarks.nonequi.question import Compare, Overlap, Pairs, Within

CHROMOSOME = "1"
ONLY = "knows intervals only"


def interval_columns(case: Case) -> tuple[tuple[str, str], tuple[str, str]] | None:
    """Start and end columns of each side; None if the case has no intervals. The end of a point is `l_end`."""
    match case.question:
        case Pairs((*keys, Overlap(left_start, left_end, right_start, right_end))) if len(keys) == len(_keys(case)):
            return (left_start, left_end), (right_start, right_end)
        case Pairs((Within(point, start, end),)):
            return (point, "l_end"), (start, end)
    return None


def chromosome_columns(case: Case) -> tuple[str | None, str | None]:
    """The key columns of both sides."""
    return next(((key.left, key.right) for key in _keys(case)), (None, None))


def _keys(case: Case) -> list[Compare]:
    terms = case.question.terms if isinstance(case.question, Pairs) else ()
    return [term for term in terms[:1] if isinstance(term, Compare) and term.operator == "="]


def how_of(case: Case) -> str:
    return case.question.how if isinstance(case.question, Pairs) else ""
