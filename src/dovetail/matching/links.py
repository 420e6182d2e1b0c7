"""Links between join attributes: how rows of one input find their partners in another.

Every edge of a condition that has an equality, a band or an inequality becomes a link: the code of a known row gives a
range of codes in the other input's ordered index. Several equalities of one edge are one attribute, hashed together.
Equalities are transitive: a.k = b.k AND b.k = c.k also links a with c.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.columns.taking import take_rows
from dovetail.condition import Band, Equal, Expression, Less, closed_bounds, evaluate
from dovetail.condition.expression import type_of
from dovetail.condition.graph import Edge, Graph
from dovetail.condition.mirror import mirrored_expression
from dovetail.core.codes import float_codes, is_fixed, order_codes, saturating_range
from dovetail.core.rows import Rows, Side
from dovetail.kernels.band import SINGLE_STEP, code_floats
from dovetail.kernels.hashing import combine
from dovetail.matching.equal_keys import hash_column

Codes = NDArray[np.int64]

FLIPPED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True)
class Attribute:
    """The keys that an input is looked up by; their expressions read it as the left side."""

    alias: str
    keys: tuple[Expression, ...]

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.alias, self.keys))  # cached: attributes are keys of many small look-ups

    def __reduce__(self) -> tuple[type[Attribute], tuple[str, tuple[Expression, ...]]]:
        return Attribute, (self.alias, self.keys)  # without the hash, which differs in another process

    @property
    def is_exact(self) -> bool:
        """Whether equal codes mean equal keys."""
        return len(self.keys) == 1 and is_fixed(type_of(self.keys[0]))


class Bounds(NamedTuple):
    """The range of codes in the other input that each probing row looks for; None: no bound."""

    low: Codes | None
    high: Codes | None
    low_closed: bool = True
    high_closed: bool = True


@dataclass(frozen=True)
class Link:
    """Candidates: code(left) operator code(right), or low <= left - right <= high."""

    left: Attribute
    right: Attribute
    operator: str = "="
    band: tuple[int, int] | tuple[float, float] | None = None
    covered: tuple[Expression, ...] = ()  # conjuncts of its edge that every candidate satisfies

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.left, self.right, self.operator, self.band))

    def __reduce__(self) -> tuple[type[Link], tuple[object, ...]]:
        return Link, (self.left, self.right, self.operator, self.band, self.covered)

    @cached_property
    def ends(self) -> frozenset[str]:
        return frozenset((self.left.alias, self.right.alias))

    @property
    def is_equality(self) -> bool:
        return self.operator == "=" and self.band is None

    def attribute(self, alias: str) -> Attribute:
        return self.left if alias == self.left.alias else self.right

    def bounds(self, known: str, codes: Codes) -> Bounds:
        """The ranges in the other input that can hold partners of rows of `known`."""
        from_left = known == self.left.alias
        if self.band is not None:
            low, high = self.band
            # right lies in [left - high, left - low], left in [right + low, right + high].
            return _range_bounds(codes, -high, -low) if from_left else _range_bounds(codes, low, high)
        match self.operator if from_left else FLIPPED[self.operator]:
            case "=":
                return Bounds(codes, codes)
            case "<" | "<=" as operator:
                return Bounds(codes, None, low_closed=operator == "<=")
            case operator:
                return Bounds(None, codes, high_closed=operator == ">=")


def _range_bounds(codes: Codes, low: int | float, high: int | float) -> Bounds:
    if not (isinstance(low, int) and isinstance(high, int)):
        values = code_floats(codes)
        with np.errstate(invalid="ignore", over="ignore"):  # infinities are looked up and checked like other numbers
            slack = (np.abs(values) + max(abs(low), abs(high))) * SINGLE_STEP
            return Bounds(float_codes(values + low - slack), float_codes(values + high + slack))
    return Bounds(*saturating_range(codes, low, high))


def links_of(graph: Graph) -> tuple[Link, ...]:
    """One link for each pair of inputs that has one: preferably an equality, given or implied."""
    given = [link for edge in graph.edges if (link := _link(edge)) is not None]
    best = {link.ends: link for link in given}
    for group in equal_attributes(given):
        members = {attribute.alias: attribute for attribute in group}
        for left, right in combinations([a for a in graph.aliases if a in members], 2):
            ends = frozenset((left, right))
            if ends not in best or not best[ends].is_equality:
                best[ends] = Link(members[left], members[right])
    return tuple(best.values())


def attributes_of(links: Iterable[Link], alias: str) -> tuple[Attribute, ...]:
    """The attributes by which an input is indexed, in the order of the condition."""
    return tuple(dict.fromkeys(link.attribute(alias) for link in links if alias in link.ends))


def shared_attribute(links: Iterable[Link], aliases: Iterable[str]) -> Mapping[str, Attribute] | None:
    """The attribute of each input, if equality of a single attribute joins them all."""
    for group in equal_attributes(links):
        members = {attribute.alias: attribute for attribute in group}
        if set(members) == set(aliases):
            return members
    return None


def _link(edge: Edge) -> Link | None:
    equalities = edge.condition.equalities
    if equalities:
        left = _attribute(edge, Side.LEFT, [p.left for p in equalities])
        right = _attribute(edge, Side.RIGHT, [p.right for p in equalities])
        return Link(left, right, covered=_sources(equalities) if left.is_exact else ())
    for predicate in edge.condition.predicates:
        match predicate:
            case Band() if is_fixed(type_of(predicate.left)):
                bounds = closed_bounds(predicate)
                exact = isinstance(bounds[0], int)  # for a band of doubles, rounding decides at the bounds
                left, right = _ends(edge, predicate)
                return Link(left, right, band=bounds, covered=predicate.source if exact else ())
    for predicate in edge.condition.predicates:
        match predicate:
            case Less(operator=operator) if is_fixed(type_of(predicate.left)):
                left, right = _ends(edge, predicate)
                return Link(left, right, operator, covered=predicate.source)
    return None


def _ends(edge: Edge, predicate: Band | Less) -> tuple[Attribute, Attribute]:
    return _attribute(edge, Side.LEFT, [predicate.left]), _attribute(edge, Side.RIGHT, [predicate.right])


def _attribute(edge: Edge, side: Side, keys: list[Expression]) -> Attribute:
    if side is Side.LEFT:
        return Attribute(edge.left, tuple(keys))
    return Attribute(edge.right, tuple(mirrored_expression(key) for key in keys))


def _sources(equalities: Iterable[Equal]) -> tuple[Expression, ...]:
    return tuple(source for predicate in equalities for source in predicate.source)


def equal_attributes(links: Iterable[Link]) -> list[list[Attribute]]:
    """Groups of attributes that are all equal to each other."""
    classes: list[list[Attribute]] = []
    for link in links:
        if not link.is_equality:
            continue
        ends = [link.left, link.right]
        touched = [group for group in classes if any(end in group for end in ends)]
        merged = list(dict.fromkeys([*(a for group in touched for a in group), *ends]))
        classes = [group for group in classes if group not in touched] + [merged]
    return classes


class Coded(NamedTuple):
    """The rows of a batch that can match, and their codes, one array per attribute."""

    batch: pa.RecordBatch
    codes: tuple[Codes, ...]


def encode_keys(graph: Graph, alias: str, attributes: Iterable[Attribute], batch: pa.RecordBatch) -> Coded:
    """Drop rows that fail the filters of their input or have a null key, and encode the keys of the others."""
    columns = [[evaluate(key, batch, None) for key in attribute.keys] for attribute in attributes]
    alive = graph.passing(alias, batch)
    for column in (column for keys in columns for column in keys):
        if column.null_count:
            valid = np.asarray(column.is_valid())
            alive = valid if alive is None else alive & valid
    if alive is not None and not alive.all():
        rows: Rows = np.flatnonzero(alive)
        positions = pa.array(rows)
        batch = take_rows(batch, rows)
        columns = [[column.take(positions) for column in keys] for keys in columns]
    return Coded(batch, tuple(_codes(keys) for keys in columns))


def attribute_codes(attribute: Attribute, batch: pa.RecordBatch) -> Codes:
    """The codes of rows that `encode_keys` kept."""
    return _codes([evaluate(key, batch, None) for key in attribute.keys])


def _codes(keys: list[pa.Array]) -> Codes:
    """Order codes of a single fixed-width key; otherwise hashes."""
    if len(keys) == 1 and is_fixed(keys[0].type):
        return order_codes(keys[0]).values
    hashes = hash_column(keys[0])
    for key in keys[1:]:
        combine(hashes, hash_column(key))
    return hashes
