"""Zone maps: the smallest and the largest join keys of a part, and whether probes can match any of its rows.

    zones = ZoneMaps(condition)             of the right side of the condition
    zone  = zones.zone(batch)               of a part: a range of codes for each predicate that has one
    reach = zones.reach(probes)             of a batch of the left side: the codes that it asks for
    can_match(reach, zone)                  False: no pair of them matches, and the part need not be read

Equalities, inequalities, bands and overlaps of keys with exact codes count; all of them must hold, so that one that
excludes a part is enough.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from dovetail.condition import Band, Condition, Equal, Less, Overlap, Predicate, closed_bounds, keyed_rows
from dovetail.condition.expression import Expression, type_of
from dovetail.condition.predicates import Rectangles
from dovetail.core.codes import is_fixed, order_codes
from dovetail.core.rows import Side
from dovetail.kernels.band import code_floats
from dovetail.matching.links import LEAST, MOST, Attribute, Link

Zone = tuple[tuple[int, int], ...]
"""By link: the smallest and the largest code."""


class ZoneMaps:
    """The zones of rows of the right side of a condition."""

    def __init__(self, condition: Condition) -> None:
        self._condition = condition
        self._links = tuple(link for predicate in condition.predicates for link in _links(predicate))

    @property
    def links(self) -> int:
        """How many ranges a zone has."""
        return len(self._links)

    def zone(self, batch: pa.RecordBatch) -> Zone | None:
        """Of rows of the right side; None if none of them can match anything."""
        return self._ranges(Side.RIGHT, batch)

    def reach(self, batch: pa.RecordBatch) -> Zone | None:
        """The codes of right rows that rows of the left side ask for; None if they can match nothing."""
        ranges = self._ranges(Side.LEFT, batch)
        if ranges is None:
            return None
        return tuple(_reach(link, *ends) for link, ends in zip(self._links, ranges, strict=True))

    def _ranges(self, side: Side, batch: pa.RecordBatch) -> Zone | None:
        if not self._links:
            return ()
        keys = [link.attribute(side.alias).keys[0] for link in self._links]
        _, columns = keyed_rows(self._condition, side, batch, keys)
        if not len(columns[0]):
            return None
        codes = (order_codes(column).values for column in columns)
        return tuple((int(column.min()), int(column.max())) for column in codes)


def can_match(reach: Zone | None, zone: Zone | None) -> bool:
    """Whether a part with this zone can hold partners of probes that reach so far."""
    if reach is None or zone is None:
        return False
    return all(low <= last and first <= high for (low, high), (first, last) in zip(reach, zone, strict=True))


def _links(predicate: Predicate) -> Iterator[Link]:
    """Ranges of codes in which the partners of a row are."""
    match predicate:
        case Equal(left, right):
            pairs: list[tuple[Expression, str, Expression]] = [(left, "=", right)]
        case Less(left, operator, right):
            pairs = [(left, operator, right)]
        case Overlap(left, right, low_closed, high_closed):
            pairs = [
                (left.low, "<=" if low_closed else "<", right.high),
                (left.high, ">=" if high_closed else ">", right.low),
            ]
        case Rectangles(x, y):
            yield from _links(x)
            yield from _links(y)
            return
        case Band(left, right) if is_fixed(type_of(left)):
            yield Link(*_attributes(left, right), band=closed_bounds(predicate))
            return
        case _:
            return
    for mine, sign, theirs in pairs:
        if is_fixed(type_of(mine)) and is_fixed(type_of(theirs)):
            yield Link(*_attributes(mine, theirs), sign)


def _attributes(left: Expression, right: Expression) -> tuple[Attribute, Attribute]:
    return Attribute(Side.LEFT.alias, (left,)), Attribute(Side.RIGHT.alias, (right,))


def _reach(link: Link, first: int, last: int) -> tuple[int, int]:
    """What left codes from the first to the last ask for; whatever grows with a code is bounded by the ends."""
    codes = np.array([first, last])
    if link.band is not None and not isinstance(link.band[0], int) and not np.isfinite(code_floats(codes)).all():
        return LEAST, MOST  # infinities and NaN do not keep to a band's arithmetic
    bounds = link.bounds(Side.LEFT.alias, codes)
    if bounds.low is not None and bounds.high is not None and (bounds.low > bounds.high).any():
        return LEAST, MOST  # beyond 64 bits at one end
    low = LEAST if bounds.low is None else int(bounds.low[0]) + (not bounds.low_closed)
    high = MOST if bounds.high is None else int(bounds.high[1]) - (not bounds.high_closed)
    return low, high
