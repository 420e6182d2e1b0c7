"""Rewrites a query: joins without an equality are run by Dovetail, the rest by the engine that it was written for.

    SELECT a.x, count(*) FROM a JOIN b ON a.t BETWEEN b.lo AND b.hi WHERE b.k = 3 GROUP BY a.x

        left    SELECT x, t FROM a                       the engine
        right   SELECT lo, hi FROM b WHERE k = 3         the engine
        joined  left with right on l.t >= r.lo …         join
        result  SELECT x, count(*) FROM joined GROUP BY x    the engine

Joins with an equality, and anything not recognised here, stay in the text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sqlglot import exp

from dovetail.condition.dialect import spark_text
from dovetail.condition.expression import quoted_if_needed
from dovetail.core.rows import Side
from dovetail.query.chain import HIDES_RIGHT, Chain, Step, read_chain
from dovetail.query.ranking import Ranking, note_rankings, noted_ranking
from dovetail.query.relations import columns_in, with_columns
from dovetail.query.select import Tail, read_tail
from dovetail.query.text import (
    Unsupported,
    check_kinds,
    compares_columns,
    conjunction,
    keeps_best,
    name_of,
    write,
)

MOST_NODES = 20_000  # of a query after its common table expressions are inlined
HINT = "RANGE_JOIN"
"""Databricks' hint for range joins. Its bin size is not needed."""


class Engine(Protocol):
    """Runs the plain-SQL parts of a query, and the joins."""

    exact: bool  # whether names are case-sensitive

    def columns(self, text: str, frames: dict[str, Any]) -> Sequence[str]:
        """The column names of a query. `{f0}` in the text is the frame called f0."""

    def frame(self, text: str, frames: dict[str, Any]) -> Any:
        """The result of a query. It need not be computed yet."""

    def join(self, left: Any, right: Any, on: str, how: str, best: Mapping[str, Any] | None = None) -> Any:
        """All columns of both sides, whose names differ; for a semi or anti join those of the left side. `best`:
        top= and order_by=, if only some partners are results.
        """


@dataclass
class Rewritten:
    """The result of a rewrite."""

    text: str  # the remaining query
    frames: dict[str, Any]  # the joins in it, by name
    taken: list[str]  # descriptions of the joins that were run
    left: list[str]  # why other joins were left


def rewrite(query: exp.Query, engine: Engine, views: Mapping[str, Any] | None = None) -> Rewritten:
    """Run the joins of a query. If there are none, `taken` is empty and the text means the same as before."""
    return _Rewriting(engine, views or {}).whole(query)


class _Rewriting:
    def __init__(self, engine: Engine, views: Mapping[str, Any]) -> None:
        self.engine = engine
        self.frames: dict[str, Any] = dict(views)
        self.taken: list[str] = []
        self.left: list[str] = []
        self._made: dict[tuple[str, Ranking | None], exp.Expr] = {}
        self._columns: dict[str, Sequence[str]] = {}

    def whole(self, query: exp.Query) -> Rewritten:
        if not compares_columns(query):
            return Rewritten("", {}, [], [])
        try:
            inlined = inline_expressions(without_range_hints(query.copy()))
            check_kinds(inlined)
            note_rankings(inlined)
            tree = self.query(inlined)
        except Unsupported as reason:
            return Rewritten("", {}, [], [str(reason)])
        return Rewritten(frame_text(tree), self.frames, self.taken, self.left)

    def query(self, tree: exp.Expr) -> exp.Expr:
        if isinstance(tree, exp.Subquery):
            tree.set("this", self.query(tree.this))
        elif isinstance(tree, exp.SetOperation):
            tree.set("this", self.query(tree.this))
            tree.set("expression", self.query(tree.expression))
        elif isinstance(tree, exp.Select):
            for join in tree.args.get("joins") or ():
                if isinstance(join.this, exp.Subquery):
                    join.set("this", self.query(join.this))
            from_ = tree.args.get("from_")
            if from_ is not None and isinstance(from_.this, exp.Subquery):
                from_.set("this", self.query(from_.this))
            return self.select(tree)
        return tree

    def select(self, select: exp.Select) -> exp.Expr:
        key = frame_text(select), noted_ranking(select)
        if key in self._made:
            return self._made[key].copy()
        try:
            made = self._select(select)
        except Unsupported as reason:
            if compares_columns(select):
                self.left.append(str(reason))
            made = select
        self._made[key] = made
        return made.copy()

    def _select(self, select: exp.Select) -> exp.Expr:
        if not compares_columns(select):
            return select
        chain = read_chain(select, self.columns_of, self.engine.exact)
        if not chain.has_join_without_equality():
            return select
        tail = read_tail(select, chain)
        if None in tail.names and keeps_best(select):
            raise Unsupported("the engine cannot name the columns of such a query: name expressions with AS")
        names = list(self._names(select)) if None in tail.names else tail.names
        if len(names) != len(tail.projections):
            raise Unsupported("the columns of the result are not those of the text")
        building = _Building(self, chain, tail)
        return building.result([name or "" for name in names])

    def columns_of(self, source: exp.Expr) -> Sequence[str]:
        return self._names(exp.Select(expressions=[exp.Star()], from_=exp.From(this=source.copy())))

    def _names(self, query: exp.Expr) -> Sequence[str]:
        text = frame_text(query)
        if text not in self._columns:
            self._columns[text] = self.engine.columns(text, self.frames)
        return self._columns[text]

    def add(self, frame: Any) -> exp.Table:
        """A new frame as a table in FROM."""
        name = f"joined{len(self.frames)}"
        self.frames[name] = frame
        return frame_table(name, f"_dovetail_{name}")


TOKEN = "dovetail__frame__"


def frame_table(name: str, alias: str) -> exp.Table:
    """A frame as a table in FROM."""
    return exp.Table(this=exp.Identifier(this=f"{TOKEN}{name}"), alias=exp.TableAlias(this=name_of(alias)))


def bind_views(query: exp.Query, views: Mapping[str, Any]) -> exp.Query:
    """The query with these views as frames, unless the query defines their names itself."""
    hidden = {cte.alias.casefold() for cte in query.find_all(exp.CTE)}
    known = {name.casefold(): name for name in views if name.casefold() not in hidden}

    def bind(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Table) and not node.args.get("db") and node.name.casefold() in known:
            return frame_table(known[node.name.casefold()], node.alias_or_name)
        return node

    bound = query.copy().transform(bind)
    assert isinstance(bound, exp.Query)
    return bound


def frame_text(tree: exp.Expr) -> str:
    """SQL in which `{f0}` is a frame, and other braces are doubled."""
    return re.sub(rf"\b{TOKEN}(\w+)", r"{\1}", write(tree).replace("{", "{{").replace("}", "}}"))


@dataclass
class _Place:
    """FROM as far as it is built: the first item, joins left to Spark, and conditions on their rows."""

    first: exp.Expr
    where: list[exp.Expr]
    numbers: frozenset[int]  # the relations whose columns it has
    joins: list[exp.Join] = field(default_factory=list)


class _Building:
    """A SELECT while its joins are run one after the other."""

    def __init__(self, rewriting: _Rewriting, chain: Chain, tail: Tail) -> None:
        self.rewriting, self.chain, self.tail = rewriting, chain, tail
        relations = [chain.first, *(step.relation for step in chain.steps)]
        self.columns: dict[tuple[int, str], exp.Expr] = {
            (relation.number, name): exp.Column(this=name_of(name), table=name_of(relation.alias))
            for relation in relations
            for name in relation.columns
        }
        self.relations = {relation.number: relation for relation in relations}
        self.place = _Place(chain.first.tree, list(chain.first_filters), frozenset({chain.first.number}))

    def result(self, names: list[str]) -> exp.Expr:
        for number, step in enumerate(self.chain.steps):
            if step.without_equality():
                self._take(number, step)
            else:
                self._leave(step)
        projections: list[exp.Expr] = [
            exp.Alias(this=self._spelled(tree), alias=name_of(name))
            for tree, name in zip(self.tail.projections, names, strict=True)
        ]
        made = self._selected(self.place, projections, [*self.place.where, *self.chain.rest])
        for key, tree in self.tail.others.items():
            made.set(key, self._spelled(tree))
        for key, value in self.tail.kept.items():
            made.set(key, value)
        return made

    def _spelled(self, tree: exp.Expr) -> exp.Expr:
        return with_columns(tree, lambda number, name: self.columns[number, name].copy())

    def _selected(self, place: _Place, projections: list[exp.Expr], where: list[exp.Expr]) -> exp.Select:
        condition = conjunction(self._spelled(part) for part in where)
        return exp.Select(
            expressions=projections,
            from_=exp.From(this=place.first.copy()),
            joins=[join.copy() for join in place.joins],
            **({"where": exp.Where(this=condition)} if condition is not None else {}),
        )

    def _leave(self, step: Step) -> None:
        """Leave a join in the text."""
        parts = [self._spelled(part) for part in step.on]
        side, _, kind = step.how.partition("_")
        condition = conjunction(parts)
        if step.how == "inner":
            words = {"kind": "INNER" if condition is not None else "CROSS"}
        else:
            words = {"side": side.upper(), "kind": kind.upper()}
            condition = condition if condition is not None else exp.Boolean(this=True)
        join = exp.Join(this=step.relation.tree.copy(), **{key: word for key, word in words.items() if word})
        if condition is not None:
            join.set("on", condition)
        self.place.joins.append(join)
        self.place.where += step.filters
        self.place.numbers |= {step.relation.number}

    def _take(self, number: int, step: Step) -> None:
        """Run a join. Both sides have only the columns that are needed from here on."""
        later = self._needed_after(number)
        on = step.rest()
        needed = later | {column for part in on for column in columns_in(part)}
        if step.best is not None:
            needed |= step.best.columns()
        own = step.relation.number
        here = self.place.numbers
        left_columns = sorted(column for column in needed if column[0] in here)
        right_columns = sorted(column for column in needed if column[0] == own)
        names = self._plain_names(left_columns + right_columns)
        left = self._frame(self.place, self._named(left_columns, names))
        right_place = _Place(step.relation.tree, [*step.filters, *step.own()], frozenset({own}))
        right = self._frame(right_place, self._named(right_columns, names))
        sides = {column: Side.RIGHT if column[0] == own else Side.LEFT for column in needed}

        def column_text(relation: int, name: str) -> exp.Expr:
            return exp.Var(this=f"{sides[relation, name].alias}.{quoted_if_needed(names[relation, name])}")

        condition = conjunction(with_columns(part, column_text) for part in on)
        text = "TRUE" if condition is None else spark_text(condition)
        engine = self.rewriting.engine
        if step.best is None:
            table = self.rewriting.add(engine.join(left, right, text, step.how))
        else:
            best = step.best.options(lambda tree: spark_text(with_columns(tree, column_text)))
            table = self.rewriting.add(engine.join(left, right, text, step.how, best))
        kept = [*left_columns, *(right_columns if step.how not in HIDES_RIGHT else ())]
        for column in kept:
            self.columns[column] = exp.Column(this=name_of(names[column]), table=name_of(table.alias))
        self.rewriting.taken.append(f"{step.how.replace('_', ' ')} join on {text}")
        self.place = _Place(table, [], here | {own})

    def _frame(self, place: _Place, projections: list[exp.Expr]) -> Any:
        select = self._selected(place, projections, place.where)
        return self.rewriting.engine.frame(frame_text(select), self.rewriting.frames)

    def _needed_after(self, number: int) -> set[tuple[int, str]]:
        """The columns that are read after a join: by later joins, by the rest of WHERE, and by what follows."""
        needed = self.tail.columns()
        after = self.chain.steps[number + 1 :]
        later = [part for step in after for part in (*step.on, *step.filters)]
        later += [value for step in after if step.best is not None for value in step.best.values]
        for part in (*later, *self.chain.rest):
            needed |= set(columns_in(part))
        return needed

    def _plain_names(self, columns: Sequence[tuple[int, str]]) -> dict[tuple[int, str], str]:
        """Names that are distinct without regard to case: the column's own, or prefixed with its relation's."""
        names: dict[tuple[int, str], str] = {}
        seen: set[str] = set()
        for relation, column in columns:
            name = column
            if name.casefold() in seen:
                name = f"{self.relations[relation].alias}_{column}"
            while name.casefold() in seen:
                name += "_"
            seen.add(name.casefold())
            names[relation, column] = name
        return names

    def _named(self, columns: Sequence[tuple[int, str]], names: dict[tuple[int, str], str]) -> list[exp.Expr]:
        if not columns:
            return [exp.Alias(this=exp.Literal.number(1), alias=name_of("_one"))]
        return [exp.Alias(this=self.columns[column].copy(), alias=name_of(names[column])) for column in columns]


def without_range_hints(query: exp.Query) -> exp.Query:
    """The query without Databricks' range-join hint. Other hints are left to Spark."""
    for hint in list(query.find_all(exp.Hint)):
        names = [part.name.upper() for part in hint.expressions]
        if any(name != HINT for name in names):
            raise Unsupported(f"{write(hint).strip()} is a hint to Spark")
        hint.pop()
    return query


def inline_expressions(query: exp.Query) -> exp.Query:
    """The query with common table expressions inlined, as Spark does."""
    inlined = _inlined(query, {})
    assert isinstance(inlined, exp.Query)
    return inlined


def _inlined(tree: Any, known: dict[str, exp.CTE]) -> Any:
    if isinstance(tree, exp.Query) and (with_ := tree.args.get("with_")) is not None:
        if with_.args.get("recursive"):
            raise Unsupported("recursive common table expressions are not read here")
        known = dict(known)
        for cte in with_.expressions:
            cte.set("this", _inlined(cte.this, known))
            known[cte.alias.casefold()] = cte
        tree.set("with_", None)
    if isinstance(tree, exp.Table) and not tree.args.get("db") and tree.name.casefold() in known:
        if any(value for key, value in tree.args.items() if key not in ("this", "alias")):
            raise Unsupported(f"{write(tree)}: more than a name stands in FROM")
        cte = known[tree.name.casefold()]
        columns = cte.args["alias"].args.get("columns") or []
        alias = tree.args.get("alias")
        given = (alias.args.get("columns") if alias is not None else None) or columns
        called = exp.TableAlias(this=name_of(tree.alias_or_name), columns=[column.copy() for column in given])
        return exp.Subquery(this=cte.this.copy(), alias=called)
    for key, value in list(tree.args.items()):
        if isinstance(value, exp.Expr):
            tree.set(key, _inlined(value, known))
        elif isinstance(value, list):
            tree.set(key, [_inlined(item, known) if isinstance(item, exp.Expr) else item for item in value])
    if tree.parent is None and sum(1 for _ in tree.walk()) > MOST_NODES:
        raise Unsupported("the query is too large once its common table expressions are written out")
    return tree
