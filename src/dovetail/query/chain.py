"""The joins of one SELECT as a chain: the order of the relations, their join types and conditions, and the rest of
WHERE.

    FROM a, b LEFT JOIN c ON c.t < a.t          start   a   where a.x = 1
    WHERE a.x = 1 AND a.y < b.y                 step    b   inner on a.y < b.y
      AND EXISTS (SELECT 1 FROM d               step    c   left on c.t < a.t
                  WHERE d.u > a.t)              step    d   left_semi on d.u > a.t

A condition in WHERE is pushed down to the earliest place where it means the same: below joins that do not change the
rows of that side, never below one that may fill them with nulls.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from dovetail.query.best_joins import Wanted, is_best, read_best
from dovetail.query.ranking import Ranking, ranking_of
from dovetail.query.relations import ColumnsOf, Relation, Scope, columns_in, numbers_in, sources
from dovetail.query.text import Unsupported, calls_unknown, conjuncts, may_fail, write

HOW = {
    ("", ""): "inner",
    ("", "INNER"): "inner",
    ("", "CROSS"): "inner",
    ("LEFT", ""): "left",
    ("RIGHT", ""): "right",
    ("FULL", ""): "full",
    ("LEFT", "SEMI"): "left_semi",
    ("LEFT", "ANTI"): "left_anti",
    ("", "SEMI"): "left_semi",
    ("", "ANTI"): "left_anti",
}
LEFT_STAYS = frozenset({"inner", "left", "left_semi", "left_anti"})
"""Joins after which the rows of the left side are unchanged or removed."""
RIGHT_STAYS = frozenset({"inner", "right"})
HIDES_RIGHT = frozenset({"left_semi", "left_anti"})
PLAIN = {
    *("expressions", "from_", "joins", "where", "group", "having", "qualify", "order", "limit", "offset", "distinct"),
    "windows",
}
"""The clauses that a SELECT may have for its joins to be found."""


@dataclass(frozen=True)
class Step:
    """A relation joined with everything to its left."""

    relation: Relation
    how: str
    on: list[exp.Expr] = field(default_factory=list)
    filters: list[exp.Expr] = field(default_factory=list)  # of WHERE, over this relation alone
    best: Wanted | None = None  # which partners are results; None: all

    def pairs(self) -> list[exp.Expr]:
        """The predicates between the relation and those to its left."""
        return [part for part in self.on if len(numbers_in(part)) > 1 and self.relation.number in numbers_in(part)]

    def has_equality(self) -> bool:
        return any(self._is_equality(part) for part in self.on)

    def has_other_pairs(self) -> bool:
        """Whether there is a predicate other than equality that means the same here."""
        return not all(map(self._is_equality, self.pairs())) and not any(map(may_fail, self.on))

    def _is_equality(self, part: exp.Expr) -> bool:
        while isinstance(part, exp.Paren):
            part = part.this
        if not isinstance(part, exp.EQ | exp.NullSafeEQ):
            return False
        ours = {self.relation.number}
        one, other = numbers_in(part.this), numbers_in(part.expression)
        return bool(one and other) and ((one == ours) != (other == ours)) and not (one & other)

    def without_equality(self) -> bool:
        """Whether Spark would compare every pair of rows, on a condition that means the same here."""
        if self.best is not None:
            return True
        return bool(self.pairs()) and not self.has_equality() and not any(map(may_fail, self.on))

    def own(self) -> list[exp.Expr]:
        """Parts of ON over this relation alone that may be applied before the join."""
        if self.best is not None or self.how not in {"inner", "left", *HIDES_RIGHT}:
            return []
        return [part for part in self.on if numbers_in(part) == {self.relation.number}]

    def rest(self) -> list[exp.Expr]:
        """The parts of ON that are not `own`."""
        own = {id(part) for part in self.own()}
        return [part for part in self.on if id(part) not in own]


@dataclass(frozen=True)
class Chain:
    """A SELECT: its joins in the order in which they run, and everything after them."""

    first: Relation
    first_filters: list[exp.Expr]
    steps: list[Step]
    rest: list[exp.Expr]  # of WHERE, after all joins
    relations: tuple[Relation, ...]  # shown by the SELECT, in the order of the text
    scope: Scope

    def has_join_without_equality(self) -> bool:
        return any(step.without_equality() for step in self.steps)


def read_chain(select: exp.Select, columns_of: ColumnsOf, exact: bool = False, in_process: bool = False) -> Chain:
    """The joins of a SELECT, with all columns marked. Raises Unsupported for anything else.

    EXISTS with an equality is left to the engine. `in_process` there is no engine, so it is joined here.
    """
    if extra := {key for key, value in select.args.items() if value and key not in PLAIN}:
        raise Unsupported(f"{write(select)}: {', '.join(sorted(extra)).strip('_')} is not read here")
    trees = list(sources(select))
    if not trees:
        raise Unsupported("there is no FROM")
    relations = [Relation.read(number, tree, columns_of, exact) for number, tree in enumerate(trees)]
    aliases = [relation.key(relation.alias) for relation in relations]
    if len(set(aliases)) < len(aliases):
        raise Unsupported("an input has the name of another")
    visible: list[Relation] = relations[:1]
    steps: list[Step] = []
    for relation, join in zip(relations[1:], select.args.get("joins") or (), strict=True):
        how = _how(join)
        scope = Scope([*visible, relation], columns_of, exact)
        if is_best(join):
            step = _best_step(join, how, scope)
            steps.append(step)
            visible.append(step.relation)
            relations[relation.number] = step.relation
            continue
        on = [scope.resolve(part) for part in conjuncts(join.args.get("on"))]
        if any(part.find(exp.Query) for part in on):
            raise Unsupported("there is a subquery in ON")
        steps.append(Step(relation, how, on))
        if how not in HIDES_RIGHT:
            visible.append(relation)
    scope = Scope(visible, columns_of, exact)
    where = select.args.get("where")
    first_filters: list[exp.Expr] = []
    wanted: list[exp.Expr] = []
    rest: list[exp.Expr] = []
    tests: list[Step] = []
    for part in conjuncts(where.this if where is not None else None):
        test = _existence(part, scope, len(relations) + len(tests), in_process)
        if test is not None:
            tests.append(test)
            continue
        found = scope.resolve(part)
        stays = found.find(exp.Query) or not numbers_in(found) or (not in_process and _is_tied(found))
        (rest if stays else wanted).append(found)
    wanted += _taken_from_on(steps)
    for part in wanted:
        _place(part, first_filters, steps, rest)
    ordered = _connected_order(relations[0], steps)
    ranking = ranking_of(select)
    if ranking is not None and ordered and not tests:
        ordered[-1] = _with_best(ordered[-1], ranking, scope, rest)
    return Chain(relations[0], first_filters, [*ordered, *tests], rest, tuple(visible), scope)


def _best_step(join: exp.Join, how: str, scope: Scope) -> Step:
    """A join that keeps the best partners. Conditions of WHERE stay after it."""
    if how not in ("inner", "left"):
        raise Unsupported(f"{write(join).strip()}: only inner and left joins keep the best partners")
    shared = [column.name for column in join.args.get("using") or ()]
    on, best = read_best(join, scope, shared)
    relation = scope.relations[-1]
    names = frozenset(name for name in map(relation.find, shared) if name is not None)
    if any(part.find(exp.Query) for part in (*on, *best.values)):
        raise Unsupported("there is a subquery in ON")
    return Step(replace(relation, shared=names), how, on, best=best)


def _with_best(step: Step, ranking: Ranking, scope: Scope, rest: Sequence[exp.Expr]) -> Step:
    """The last join, limited to the partners of each row that can be among the wanted rows of a group."""
    own = step.relation.number
    ties = ranking.ties
    alike = [*rest, *map(scope.resolve, ranking.groups)]  # the same for all pairs of a left row
    if ties is None or step.best is not None or step.how not in ("inner", "left"):
        return step
    if not step.without_equality() and not (step.has_equality() and step.has_other_pairs()):
        return step
    if any(own in numbers_in(part) or part.find(exp.Query) or calls_unknown(part) for part in alike):
        return step
    order = tuple(_resolved(key, scope, step) for key in ranking.order)
    if any(key.find(exp.Query) or calls_unknown(key) for key in order):
        return step
    return replace(step, best=Wanted(ranking.most, order, ties))


def _resolved(key: exp.Ordered, scope: Scope, step: Step) -> exp.Ordered:
    """A key with marked columns. If it cannot be null in a pair, the null order does not matter."""
    found = scope.resolve(key)
    assert isinstance(found, exp.Ordered)
    compared = {
        column
        for part in step.on
        if isinstance(part, exp.LT | exp.LTE | exp.GT | exp.GTE | exp.EQ)
        for side in (part.this, part.expression)
        if isinstance(side, exp.Column)
        for column in columns_in(side)
    }
    if isinstance(found.this, exp.Column) and set(columns_in(found.this)) <= compared:
        found.set("nulls_first", False)
    return found


def _is_tied(part: exp.Expr) -> bool:
    """Whether only Spark knows on which rows a condition may be evaluated."""
    return may_fail(part) or calls_unknown(part)


def _how(join: exp.Join) -> str:
    if not is_best(join) and any(join.args.get(key) for key in ("using", "method", "match_condition", "global_")):
        raise Unsupported(f"{write(join).strip()}: only JOIN … ON is read here")
    kind = "" if join.kind == "OUTER" else join.kind
    how = HOW.get((join.side, kind))
    if how is None:
        raise Unsupported(f"{write(join).strip()}: this kind of join is not read here")
    return how


def _taken_from_on(steps: list[Step]) -> list[exp.Expr]:
    """Take conditions of inner joins out of ON. They mean the same in WHERE, unless a later join pads their columns."""
    taken: list[exp.Expr] = []
    for place, step in enumerate(steps):
        if step.how == "inner" and step.best is None and _stays(steps, place + 1):
            taken += step.on
            steps[place] = replace(step, on=[])
    return taken


def _stays(steps: Sequence[Step], start: int) -> bool:
    return all(step.how in LEFT_STAYS for step in steps[start:])


def _place(part: exp.Expr, first: list[exp.Expr], steps: list[Step], rest: list[exp.Expr]) -> None:
    """Move a condition to the earliest place where it means the same as at the end."""
    numbers = numbers_in(part)
    last = max(numbers)
    if last == 0:
        (first if _stays(steps, 0) else rest).append(part)
        return
    place = next(i for i, step in enumerate(steps) if step.relation.number == last)
    step = steps[place]
    if step.best is not None or not _stays(steps, place + 1):
        rest.append(part)
    elif numbers == {last} and step.how in RIGHT_STAYS:
        step.filters.append(part)
    elif numbers != {last} and step.how == "inner":
        step.on.append(part)
    else:
        rest.append(part)


def _connected_order(first: Relation, steps: list[Step]) -> list[Step]:
    """Reorder inner joins so that each is connected with those before it, as far as possible."""
    if any(step.how != "inner" or step.best is not None for step in steps):
        return steps
    conditions = [part for step in steps for part in step.on]
    joined, waiting, ordered = {first.number}, list(steps), []
    while waiting:
        connected = (
            step
            for step in waiting
            if any(step.relation.number in numbers_in(c) and numbers_in(c) & joined for c in conditions)
        )
        step = next(connected, waiting[0])
        waiting.remove(step)
        joined.add(step.relation.number)
        on = [part for part in conditions if numbers_in(part) <= joined]
        conditions = [part for part in conditions if not numbers_in(part) <= joined]
        ordered.append(replace(step, on=on))
    return ordered


def _existence(part: exp.Expr, scope: Scope, number: int, any_exists: bool) -> Step | None:
    """EXISTS or NOT EXISTS as a semi or anti join, if its query is one relation and a condition."""
    how, inner = "left_semi", part
    while isinstance(inner, exp.Paren | exp.Not):
        if isinstance(inner, exp.Not):
            how = "left_anti" if how == "left_semi" else "left_semi"
        inner = inner.this
    query = inner.this if isinstance(inner, exp.Exists) else None
    if not isinstance(query, exp.Select) or query.args.get("joins"):
        return None
    if {key for key, value in query.args.items() if value} - {"expressions", "from_", "where", "distinct"}:
        return None
    if query.args.get("from_") is None or _may_aggregate(query.expressions):
        return None
    if not query.args.get("where") and not any_exists:
        return None
    where = query.args.get("where")
    relation = Relation.read(number, next(sources(query)), scope.columns_of, scope.exact)
    own = Scope([relation], scope.columns_of, scope.exact)
    on = [scope.resolve(own.resolve(condition)) for condition in conjuncts(where.this if where is not None else None)]
    if any(condition.find(exp.Query) for condition in on):
        return None
    step = Step(relation, how, on)
    return step if any_exists or step.without_equality() else None


def _may_aggregate(projections: Iterable[exp.Expr]) -> bool:
    """Whether there may be an aggregate. Without GROUP BY it always returns a row, and EXISTS is true."""
    return any(projection.find(exp.Anonymous) for projection in projections)
