"""SQL syntax for joins with the best partner of each left row.

    a ASOF [LEFT] JOIN b ON a.k = b.k AND a.t >= b.t                            DuckDB; USING (k, t) is the same
    a [LEFT] ASOF JOIN b MATCH_CONDITION (a.t >= b.t) ON a.k = b.k              Spark 4.3; USING (k) is the same
    a [LEFT] JOIN b EXACT NEAREST 3 BY DISTANCE abs(a.t - b.t)                  Spark 4.3; APPROX is exact as well

sqlglot does not know the last one. Before parsing, it is rewritten to an equality in ON with a marked name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from dovetail.query.relations import Scope, columns_in, numbers_in
from dovetail.query.text import NEAREST_MARK, Unsupported, conjuncts, write

FLIPPED: dict[type[exp.Expr], type[exp.Expr]] = {exp.GT: exp.LT, exp.GTE: exp.LTE, exp.LT: exp.GT, exp.LTE: exp.GTE}
EARLIER = (exp.GT, exp.GTE)


@dataclass(frozen=True)
class Wanted:
    """Which partners of a left row are results: the first `top` in the order of expressions with marked columns."""

    top: int
    order: tuple[exp.Ordered, ...]
    ties: str = "any"

    @property
    def values(self) -> list[exp.Expr]:
        return [key.this for key in self.order]

    def columns(self) -> set[tuple[int, str]]:
        return {column for value in self.values for column in columns_in(value)}

    def options(self, text: Callable[[exp.Expr], str]) -> dict[str, Any]:
        """The options for `dovetail.join`. `text` renders an expression."""
        order = [
            text(key.this) + " DESC" * bool(key.args.get("desc")) + " NULLS FIRST" * bool(key.args.get("nulls_first"))
            for key in self.order
        ]
        ordered = {"ties": self.ties, "order_by": order} if order else {}
        return {"top": self.top, **ordered}


def is_best(join: exp.Join) -> bool:
    """Whether a join keeps only some of the partners."""
    return (join.args.get("method") or "").upper() == "ASOF" or _nearest_of(join) is not None


def read_best(join: exp.Join, scope: Scope, shared: Sequence[str]) -> tuple[list[exp.Expr], Wanted]:
    """The condition of such a join, and which partners it keeps. `shared`: the columns of USING."""
    own = scope.relations[-1].number
    nearest = _nearest_of(join)
    if nearest is not None:
        top, by = nearest.this.name.removeprefix(NEAREST_MARK).split("_")
        return [], _by(scope.resolve(nearest.expression), by != "distance", int(top))
    match = join.args.get("match_condition")
    parts = [scope.resolve(part) for part in conjuncts(join.args.get("on"))]
    equal, last = list(shared), None
    if shared and match is None:
        *equal, last = shared
    parts += [_compared(exp.EQ, scope, name) for name in equal]
    if last is not None:
        parts.append(_compared(exp.GTE, scope, last))
    if match is not None:
        parts.append(scope.resolve(match))
    orders = [order for part in parts if (order := _order_of(part, own)) is not None]
    if len(orders) != 1 or not all(_is_between(part, own) for part in parts):
        raise Unsupported(
            f"{write(join).strip()}: ASOF takes equalities of both inputs and one comparison by >=, >, <= or <"
        )
    return parts, orders[0]


def _nearest_of(join: exp.Join) -> exp.EQ | None:
    on = join.args.get("on")
    named = isinstance(on, exp.EQ) and isinstance(on.this, exp.Column) and on.this.name.startswith(NEAREST_MARK)
    return on if named else None


def _compared(kind: type[exp.Binary], scope: Scope, name: str) -> exp.Expr:
    """A comparison between a column of the earlier inputs and one of the last input."""
    right = scope.relations[-1]
    lefts = [relation for relation in scope.relations[:-1] if relation.find(name) is not None]
    found = right.find(name)
    if len(lefts) != 1 or found is None:
        raise Unsupported(f"USING ({name}): both inputs have one such column")
    return kind(this=lefts[0].column(lefts[0].find(name) or ""), expression=right.column(found))


def _is_between(part: exp.Expr, own: int) -> bool:
    """Whether it compares an expression over the last input with one over the earlier inputs."""
    if not isinstance(part, (exp.EQ, exp.NullSafeEQ, *FLIPPED)):
        return False
    one, other = numbers_in(part.this), numbers_in(part.expression)
    return bool(one and other) and ((one == {own}) != (other == {own})) and not one & other


def _order_of(part: exp.Expr, own: int) -> Wanted | None:
    while isinstance(part, exp.Paren):
        part = part.this
    if type(part) not in FLIPPED or not _is_between(part, own):
        return None
    kind, value = type(part), part.expression
    if numbers_in(part.this) == {own}:
        kind, value = FLIPPED[kind], part.this
    return _by(value.copy(), kind in EARLIER)


def _by(value: exp.Expr, descending: bool, top: int = 1) -> Wanted:
    return Wanted(top, (exp.Ordered(this=value, desc=descending),))
