"""Rows that are kept for many joins on two inequalities: sorted once, probed again and again.

    part  = ordered_part.build((a, b), operators)          the immutable side, in both orders
    rows  = ordered_part.arrange((a, b), operators)        a batch that probes, sorted once for all parts
    join  = ordered_part.probe(rows, part)                 merges only; then as any other join of `two_inequalities`

Codes are turned so that the partners of a probe are always the upper end: `left operator right` for probes on the left,
so `a` of a part is on the right of the operator. For parts on the left, flip the operators.

The permutation from one order to the other and the sorted arrays are the permutation and offset arrays of SPO-Join.
Deviation: a batch of probes is merged with a part instead of each tuple looked up in it; operators decide about ties.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dovetail.kernels.cross import GREATER, GREATER_EQUAL, LESS
from dovetail.kernels.one_inequality import first_partners
from dovetail.kernels.sorting import Rows, Sorted, Words, invert, pick, sort_codes
from dovetail.kernels.two_inequalities import TwoInequalities

Operators = tuple[int, int]


class Arranged(NamedTuple):
    """Rows by each attribute, ascending in the direction of its operator."""

    first: Sorted
    second: Sorted


class OrderedPart(NamedTuple):
    """Rows by each attribute, and how to get from one order to the other."""

    first: Sorted
    second: Sorted
    second_to_first: Rows  # position by the first attribute, by position by the second
    first_to_second: Rows
    rows: int  # numbered so far, with those that are gone


def arrange(codes: tuple[Words, Words], operators: Operators) -> Arranged:
    first, second = (
        sort_codes(~column if operator in (GREATER, GREATER_EQUAL) else column)
        for column, operator in zip(codes, operators, strict=True)
    )
    return Arranged(first, second)


def build(codes: tuple[Words, Words], operators: Operators) -> OrderedPart:
    first, second = arrange(codes, operators)
    second_to_first = pick(invert(first.order), second.order)
    return OrderedPart(first, second, second_to_first, invert(second_to_first), len(codes[0]))


def without(part: OrderedPart, gone: NDArray[np.bool_]) -> OrderedPart:
    """The part without some rows; the others keep their numbers."""
    first, second = (_remove_from_order(order, gone) for order in (part.first, part.second))
    places = np.empty(len(gone), first.order.dtype)
    places[first.order] = np.arange(len(first.order))
    second_to_first = places[second.order]
    return OrderedPart(first, second, second_to_first, invert(second_to_first), part.rows)


def _remove_from_order(order: Sorted, gone: NDArray[np.bool_]) -> Sorted:
    stays = ~gone[order.order]
    return Sorted(order.order[stays], order.codes[stays])


def probe(probes: Arranged, part: OrderedPart, operators: Operators) -> TwoInequalities:
    """The join of the probes (left) with the part (right), the more selective attribute in the bits."""
    size = len(probes.first.order)
    strict = [operator in (LESS, GREATER) for operator in operators]
    starts = first_partners(probes.first.codes, part.first.codes, strict[0])
    reaches = first_partners(probes.second.codes, part.second.codes, strict[1])
    by_row = np.empty(size, starts.dtype)
    if int(starts.sum(dtype=np.int64)) >= int(reaches.sum(dtype=np.int64)):  # the first leaves fewer
        by_row[probes.first.order] = starts
        start = by_row[probes.second.order]
        return TwoInequalities(
            probes.second.order, start, reaches, part.first.order, part.second_to_first, size, part.rows
        )
    by_row[probes.second.order] = reaches
    start = by_row[probes.first.order]
    return TwoInequalities(probes.first.order, start, starts, part.second.order, part.first_to_second, size, part.rows)
