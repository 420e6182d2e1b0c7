"""Conditions over several inputs: parses SQL text with their aliases into a graph of two-sided conditions.

"o.custkey = c.custkey AND c.nationkey = n.nationkey AND n.name = 'PERU' AND o.x + c.x < n.x"

o ------ c ------ n        conjuncts over two aliases are an edge: an ordinary Condition, left alias = left side
                  |        conjuncts over one alias filter its input
\\---- residual ---/        conjuncts over three or more can only be checked on complete results
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sqlglot import exp

from dovetail.condition import names, parse, passing, text_of
from dovetail.condition.dialect import refuse
from dovetail.condition.expression import Expression
from dovetail.condition.mirror import mirrored_expression
from dovetail.condition.predicates import Condition, Predicate
from dovetail.condition.sql import parse_text
from dovetail.condition.translate import Translator
from dovetail.core.rows import Matches, Rows, Side
from dovetail.errors import ConditionError

EMPTY = pa.schema([])


@dataclass(frozen=True, slots=True)
class Edge:
    """The condition between two inputs."""

    left: str
    right: str
    condition: Condition

    @property
    def ends(self) -> frozenset[str]:
        return frozenset((self.left, self.right))

    @property
    def text(self) -> str:
        """The condition with the aliases of the graph."""
        names = {Side.LEFT.alias: self.left, Side.RIGHT.alias: self.right}
        return re.sub(r"\b([lr])(?=\.)", lambda found: names[found[1]], self.condition.text)

    def side(self, alias: str) -> Side:
        return Side.LEFT if alias == self.left else Side.RIGHT

    def other(self, alias: str) -> str:
        return self.right if alias == self.left else self.left


@dataclass(frozen=True, slots=True)
class Graph:
    """A conjunction, bound to the schemas of several inputs. `filters` read their input as the left side.

    `residual` reads one wide left side with a column `alias.name` for each of `wide`.
    """

    schemas: Mapping[str, pa.Schema]
    edges: tuple[Edge, ...]
    filters: Mapping[str, tuple[Expression, ...]]
    residual: tuple[Expression, ...] = ()
    wide: tuple[tuple[str, str], ...] = ()  # (alias, column) that the residual reads
    text: str = field(compare=False, default="")

    @classmethod
    def of(cls, condition: Condition) -> Graph:
        """The condition of a join of two inputs, l and r: a graph with one edge."""
        left, right = Side.LEFT.alias, Side.RIGHT.alias
        filters = {
            left: condition.filters[Side.LEFT],
            right: tuple(mirrored_expression(f) for f in condition.filters[Side.RIGHT]),
        }
        schemas = dict(zip((left, right), condition.schemas, strict=True))
        return cls(schemas, (Edge(left, right, condition),), filters, text=condition.text)

    @property
    def condition(self) -> Condition:
        """The only edge of a join of two inputs."""
        (edge,) = self.edges
        return edge.condition

    @property
    def predicates(self) -> tuple[Predicate, ...]:
        """The predicates of all edges."""
        return tuple(predicate for edge in self.edges for predicate in edge.condition.predicates)

    @property
    def filter_texts(self) -> list[str]:
        """The filters of one input as text for users."""
        if len(self.edges) == 1 and len(self.schemas) == len(Side):
            return [text_of(f) for side in Side for f in self.condition.filters[side]]
        return [
            text_of(f).replace(f"{Side.LEFT.alias}.", f"{alias}.")
            for alias, filters in self.filters.items()
            for f in filters
        ]

    def matches(self, batches: Mapping[str, pa.RecordBatch], rows: Mapping[str, Rows]) -> Matches:
        """Results by alias, in the order of the inputs, without columns that an operator adds to its rows."""
        own = tuple(batches[alias].select(range(len(schema))) for alias, schema in self.schemas.items())
        return Matches(own, tuple(rows[alias] for alias in self.schemas))

    @property
    def aliases(self) -> tuple[str, ...]:
        return tuple(self.schemas)

    def passing(self, alias: str, batch: pa.RecordBatch) -> NDArray[np.bool_] | None:
        """Which rows of an input pass its filters; None: all of them."""
        return passing(self.filters[alias], Side.LEFT, batch)

    def checked(self, batches: Mapping[str, pa.RecordBatch], rows: Mapping[str, Rows]) -> NDArray[np.bool_] | None:
        """Which of the complete results satisfy the residual; None: all of them."""
        if not self.residual:
            return None
        columns = [batches[alias].column(name).take(pa.array(rows[alias])) for alias, name in self.wide]
        wide = pa.RecordBatch.from_arrays(columns, names=[_wide_name(*column) for column in self.wide])
        return passing(self.residual, Side.LEFT, wide)


def parse_graph(on: str | Sequence[str], schemas: Mapping[str, pa.Schema], *, zone: str | None = None) -> Graph:
    """The condition, bound to the inputs. A wrong condition is refused here, before any work."""
    if len(schemas) < 2:
        raise ConditionError(f"a join takes at least two inputs; got {len(schemas)}.")
    texts = [on] if isinstance(on, str) else list(on)
    if not texts or not all(isinstance(text, str) for text in texts):
        raise ConditionError("the condition of a join of several inputs is SQL text, or a list of SQL texts.")
    groups: dict[frozenset[str], list[exp.Expr]] = {}
    for text in texts:
        tree = parse_text(text)
        refuse(tree)
        for conjunct in _conjuncts(tree):
            groups.setdefault(_aliases_in(conjunct, schemas), []).append(conjunct)
    filters: dict[str, list[Expression]] = {alias: [] for alias in schemas}
    edges = []
    for ends, conjuncts in groups.items():
        if len(ends) > 2:
            continue
        alias, *others = [a for a in schemas if a in ends] or list(schemas)[:1]
        other = others[0] if others else None
        sides = (schemas[alias], schemas[other] if other is not None else EMPTY)
        translator = Translator(sides)
        told = {alias: "l"} if other is None else {alias: "l", other: "r"}
        expressions = [translator.condition(_spell_columns(c, schemas, told)) for c in conjuncts]
        condition = parse(expressions, *sides, zone, in_process=True)
        filters[alias] += condition.filters[Side.LEFT]
        if other is None:
            filters[alias] += condition.residual  # it reads no columns
            continue
        filters[other] += [mirrored_expression(f) for f in condition.filters[Side.RIGHT]]
        if condition.conjuncts:
            edges.append(Edge(alias, other, condition))
    residual, wide = _residual([c for ends, cs in groups.items() if len(ends) > 2 for c in cs], schemas, zone)
    graph = Graph(
        dict(schemas),
        tuple(edges),
        {alias: tuple(found) for alias, found in filters.items()},
        residual,
        wide,
        " AND ".join(" ".join(text.split()) for text in texts),
    )
    _check_connected(graph)
    return graph


def reachable(start: str, edges: Iterable[Edge]) -> set[str]:
    """All aliases that can be reached along the edges."""
    found, edges = {start}, list(edges)
    while True:
        new = {alias for edge in edges if edge.ends & found for alias in edge.ends} - found
        if not new:
            return found
        found |= new


def _check_connected(graph: Graph) -> None:
    missing = [alias for alias in graph.aliases if alias not in reachable(graph.aliases[0], graph.edges)]
    if missing:
        raise ConditionError(
            f"nothing joins {', '.join(missing)} with {graph.aliases[0]}: every input needs a conjunct over it and one "
            f"other input. The condition is {graph.text}"
        )


def _residual(
    conjuncts: list[exp.Expr], schemas: Mapping[str, pa.Schema], zone: str | None
) -> tuple[tuple[Expression, ...], tuple[tuple[str, str], ...]]:
    if not conjuncts:
        return (), ()
    read = sorted({_resolve_name(column, schemas)[:2] for c in conjuncts for column in c.find_all(exp.Column)})
    schema = pa.schema([pa.field(_wide_name(alias, name), schemas[alias].field(name).type) for alias, name in read])
    translator = Translator((schema, EMPTY))
    spelled = [translator.condition(_spell_columns(c, schemas, None)) for c in conjuncts]
    condition = parse(spelled, schema, EMPTY, zone, in_process=True)
    return (*condition.filters[Side.LEFT], *condition.residual), tuple(read)


def _wide_name(alias: str, name: str) -> str:
    return f"{alias}.{name}"


def _conjuncts(tree: exp.Expr) -> list[exp.Expr]:
    match tree:
        case exp.And():
            return [*_conjuncts(tree.this), *_conjuncts(tree.expression)]
        case exp.Paren():
            return _conjuncts(tree.this)
        case exp.Between() if not tree.args.get("symmetric"):
            # The two halves may belong to different edges: a.x BETWEEN b.low AND c.high.
            low = exp.GTE(this=tree.this.copy(), expression=tree.args["low"].copy())
            return [low, exp.LTE(this=tree.this.copy(), expression=tree.args["high"].copy())]
    return [tree]


def _aliases_in(conjunct: exp.Expr, schemas: Mapping[str, pa.Schema]) -> frozenset[str]:
    return frozenset(_resolve_name(column, schemas)[0] for column in conjunct.find_all(exp.Column))


def _resolve_name(node: exp.Column, schemas: Mapping[str, pa.Schema]) -> tuple[str, str, list[str]]:
    """The alias, the column and the struct fields that a dotted name refers to."""
    parts = [part.name for part in node.parts]
    if len(parts) > 1:
        by_case = [a for a in schemas if a == parts[0]] or [a for a in schemas if a.casefold() == parts[0].casefold()]
        if len(by_case) == 1:
            return by_case[0], _column(by_case[0], parts[1], schemas), parts[2:]
    having = [alias for alias, schema in schemas.items() if names.candidates(schema, parts[0])]
    if len(having) == 1:
        return having[0], _column(having[0], parts[0], schemas), parts[1:]
    if having:
        choices = " or ".join(f"{alias}.{parts[0]}" for alias in having)
        raise ConditionError(f"{parts[0]} is in several inputs: write {choices}.")
    if len(parts) > 1:
        raise ConditionError(f"{'.'.join(parts)}: unknown alias {parts[0]}. The inputs are {', '.join(schemas)}.")
    raise ConditionError(f"{parts[0]}: no such column in any input. The inputs are {', '.join(schemas)}.")


def _column(alias: str, name: str, schemas: Mapping[str, pa.Schema]) -> str:
    found = names.candidates(schemas[alias], name)
    if len(found) == 1:
        return found[0]
    if found:
        raise ConditionError(f"{alias}.{name} is ambiguous: the input has {', '.join(found)}. Spell it exactly.")
    raise ConditionError(f"{alias}.{name}: no such column. The input has: {', '.join(schemas[alias].names)}.")


def _spell_columns(conjunct: exp.Expr, schemas: Mapping[str, pa.Schema], told: Mapping[str, str] | None) -> exp.Expr:
    """The conjunct with its columns spelled for two sides; without `told`, for one wide side."""
    tree = conjunct.copy()
    for node in list(tree.find_all(exp.Column)):
        alias, name, fields = _resolve_name(node, schemas)
        table, column = ("l", _wide_name(alias, name)) if told is None else (told[alias], name)
        spelled: exp.Expr = exp.column(exp.to_identifier(column, quoted=True), table)
        spelled = reduce(
            lambda struct, part: exp.Dot(this=struct, expression=exp.to_identifier(part, quoted=True)), fields, spelled
        )
        if node is tree:
            tree = spelled
        else:
            node.replace(spelled)
    return tree
