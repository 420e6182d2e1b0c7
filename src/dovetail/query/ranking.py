"""Top-n queries: how many rows of a group a query keeps, as in ROW_NUMBER() OVER (PARTITION BY … ORDER BY …) = 1.

    SELECT x, y FROM (SELECT a.x, b.y, ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.t DESC) AS n
                      FROM a JOIN b ON a.t >= b.t) WHERE n = 1
    SELECT a.x, b.y FROM a JOIN b ON a.t >= b.t QUALIFY ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.t DESC) = 1

If a group is defined by columns of the left side, it has all pairs of its left rows. Its first rows are among the first
pairs of each left row, so the join can skip the others. Numbers and filter stay in the query.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from sqlglot import exp

from dovetail.query.relations import sources
from dovetail.query.text import calls_unknown, conjuncts

RANKS = ("row_number", "rank", "dense_rank")
AROUND = "dovetail_ranking"
"""Metadata key of a subquery: the row numbers that the outer query keeps."""

Named = Callable[[exp.Expr], exp.Window | None]


@dataclass(frozen=True)
class Ranking:
    """The rows of a group with a number of at most `most` are wanted."""

    window: exp.Window
    most: int

    @property
    def function(self) -> str:
        return str(self.window.this.name).lower()

    @property
    def groups(self) -> list[exp.Expr]:
        return list(self.window.args.get("partition_by") or ())

    @property
    def order(self) -> tuple[exp.Ordered, ...]:
        order = self.window.args.get("order")
        return () if order is None else tuple(order.expressions)

    @property
    def ties(self) -> str | None:
        """The `ties=` of the join. None if the row number does not limit the pairs of a left row."""
        if self.function == "row_number":
            return "any"
        return "all" if self.order and (self.function == "rank" or self.most == 1) else None


def is_rank(tree: exp.Expr) -> bool:
    """Whether it numbers the rows of groups."""
    if not isinstance(tree, exp.Window) or not isinstance(tree.this, exp.Anonymous):
        return False
    plain = not tree.this.expressions and not tree.args.get("spec") and not tree.args.get("alias")
    return plain and tree.this.name.lower() in RANKS


def note_rankings(query: exp.Expr) -> None:
    """Note in each subquery which row numbers the outer query keeps."""
    for select in list(query.find_all(exp.Select)):
        where = select.args.get("where")
        found = list(sources(select))
        for source in found:
            inner = source.this if isinstance(source, exp.Subquery) else None
            if where is None or not isinstance(inner, exp.Select) or not _is_open(inner):
                continue
            windows = _windows(inner)
            prefixes = (source.alias_or_name, "") if len(found) == 1 else (source.alias_or_name,)
            ranking = _first(where.this, partial(_column_of, windows, prefixes))
            if ranking is not None:
                inner.meta[AROUND] = ranking


def noted_ranking(tree: exp.Expr) -> Ranking | None:
    """What the outer query of a subquery keeps."""
    found = tree.this.meta.get(AROUND) if isinstance(tree, exp.Subquery) else tree.meta.get(AROUND)
    return found if isinstance(found, Ranking) else None


def ranking_of(select: exp.Select) -> Ranking | None:
    """The row numbers that QUALIFY or the outer query keeps. None if the query needs all rows."""
    qualify = select.args.get("qualify")
    found = noted_ranking(select)
    if qualify is not None:
        found = _first(qualify.this, partial(_column_of, _windows(select), ("",)))
    if found is None or select.args.get("group") or select.args.get("having"):
        return None
    trees = [*select.expressions, *(select.args[key] for key in ("order", "qualify") if select.args.get(key))]
    return found if all(_needs_no_others(tree, found.window) for tree in trees) else None


def _column_of(windows: Mapping[str, exp.Window], prefixes: Sequence[str], tree: exp.Expr) -> exp.Window | None:
    """The row number that an expression refers to: a window itself, or a column of a query."""
    if isinstance(tree, exp.Window):
        return tree if is_rank(tree) else None
    is_own = isinstance(tree, exp.Column) and len(tree.parts) <= 2 and tree.table in prefixes
    return windows.get(tree.name) if is_own else None


def _is_open(select: exp.Select) -> bool:
    """Whether a filter of the outer query can be moved into the subquery."""
    alias = select.parent.args.get("alias") if select.parent is not None else None
    renamed = alias is not None and alias.args.get("columns")
    return not renamed and not any(select.args.get(key) for key in ("limit", "offset", "qualify"))


def _windows(select: exp.Select) -> dict[str, exp.Window]:
    """The row numbers among the columns of a query."""
    named = [tree for tree in select.expressions if isinstance(tree, exp.Alias)]
    return {tree.alias: tree.this for tree in named if isinstance(tree.this, exp.Window) and is_rank(tree.this)}


def _first(condition: exp.Expr, named: Named) -> Ranking | None:
    for part in conjuncts(condition):
        number, most = _bounded(part)
        window = None if number is None else named(number)
        if window is not None and most is not None and most >= 1:
            return Ranking(window, most)
    return None


def _bounded(part: exp.Expr) -> tuple[exp.Expr | None, int | None]:
    """An expression and its upper bound, a whole number."""
    while isinstance(part, exp.Paren):
        part = part.this
    if isinstance(part, exp.Between):
        return part.this, _number(part.args["high"])
    for kinds, value, bound in (
        ((exp.EQ, exp.LTE, exp.LT), part.args.get("this"), part.args.get("expression")),
        ((exp.EQ, exp.GTE, exp.GT), part.args.get("expression"), part.args.get("this")),
    ):
        most = _number(bound) if type(part) in kinds else None
        if most is not None:
            return value, most - isinstance(part, exp.LT | exp.GT)
    return None, None


def _number(tree: exp.Expr | None) -> int | None:
    is_whole = isinstance(tree, exp.Literal) and not tree.is_string and tree.name.isdigit()
    return int(tree.name) if is_whole and tree is not None else None


def _needs_no_others(tree: exp.Expr, window: exp.Window) -> bool:
    """Whether an expression has the same value if only the first rows of each group exist.

    Other windows and aggregates see all rows. Only functions known to be neither are accepted.
    """
    if any(other != window for other in tree.find_all(exp.Window)) or tree.find(exp.Query):
        return False
    rest = tree.copy().transform(lambda node: exp.Null() if isinstance(node, exp.Window) else node)
    return not calls_unknown(rest)
