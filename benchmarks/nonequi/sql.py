"""Questions as SQL over the tables l and r."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.nonequi.question import (
    Compare,
    EitherEqual,
    Pairs,
    Question,
    Streams,
    SumModulo,
    Term,
    WindowSums,
    comparisons,
)


def condition(terms: Iterable[Term]) -> str:
    return " AND ".join(_term(term) for term in terms)


def _term(term: Term) -> str:
    match term:
        case EitherEqual(pairs):
            return "(" + " OR ".join(f"l.{left} = r.{right}" for left, right in pairs) + ")"
        case SumModulo(left, right, modulus, operator, remainder):
            return f"(l.{left} + r.{right}) % {modulus} {operator} {remainder}"
        case _:
            return " AND ".join(_comparison(one) for one in comparisons([term]) or ())


def _comparison(one: Compare) -> str:
    shift = f" {'+' if one.shift > 0 else '-'} {abs(one.shift)}" if one.shift else ""
    return f"l.{one.left} {one.operator} r.{one.right}{shift}"


def select(question: Question, anti: str = "LEFT ANTI JOIN", plain: bool = False) -> str:
    """The query with all columns.

    OR of equalities becomes a union of joins, so that hash joins can be used; with `plain` it is one join.
    """
    match question:
        case WindowSums(terms, value):
            return (
                f"SELECT l.l_id, count(r.r_id) AS n, CAST(sum(r.{value}) AS BIGINT) AS total "
                f"FROM l LEFT JOIN r ON {condition(terms)} GROUP BY l.l_id"
            )
        case Pairs((EitherEqual(pairs),), "inner") if not plain:
            return " UNION ALL ".join(_without_earlier(pairs, number) for number in range(len(pairs)))
        case Pairs(terms, how):
            kind = {"inner": "JOIN", "left": "LEFT JOIN", "left_anti": anti, "right": "RIGHT JOIN", "full": "FULL JOIN"}
            columns = "l.*" if how == "left_anti" else "l.*, r.*"
            return f"SELECT {columns} FROM l {kind[how]} r ON {condition(terms)}"
        case Streams(terms):
            return f"SELECT l.*, r.* FROM l JOIN r ON {condition(terms)}"
    raise NotImplementedError(f"{type(question).__name__} has no SQL that all systems read")


def _without_earlier(pairs: tuple[tuple[str, str], ...], number: int) -> str:
    """The query for pairs that are equal in this alternative, and in none of the earlier ones."""
    left, right = pairs[number]
    others = "".join(f" AND l.{a} <> r.{b}" for a, b in pairs[:number])
    return f"SELECT l.*, r.* FROM l JOIN r ON l.{left} = r.{right}{others}"
