"""Predicates evaluated on different machines that see the two streams in different interleavings.

    router --rows of R--> predicate 1 --(row, bits)--\\
         \\ \\-rows of S-->                             AND  -> results
          \\-------------> predicate 2 --(row, bits)--/

Each channel preserves order, but channels have different delays. A row's bits mark the rows of the other stream that
the predicate's machine had seen before it and that satisfy the predicate. SPO-Join, section 4.3, adds a small hash
table by row at the AND, which keeps the first bits until the second arrive; without it, consecutive messages are
combined. The table alone is not enough: if one machine sees r before s and the other s before r, each row's bits lack
the other row on one machine, and the pair is lost. It is found if both machines work in the order set by the router.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.baselines.predicates import Floats, Query, Words, holds
from dovetail.core.rows import Side
from dovetail.kernels.compiling import kernel

Flags = NDArray[np.bool_]


class Network(NamedTuple):
    """Rows per second sent by the router, the mean delay of a channel, and the number of machines for the AND."""

    rate: float
    delay_ms: float = 5.0
    and_elements: int = 10


class Outcome(NamedTuple):
    expected: int  # pairs
    lost: int
    false: int
    combined: float  # share of rows whose bits from both predicates were combined with each other


def simulate_predicates(
    query: Query,
    sides: Words,
    keys: Floats,
    window: int,
    network: Network,
    *,
    table: bool,
    ordered: bool,
    seed: int = 0,
) -> Outcome:
    """Evaluate two predicates over a stream of rows; `keys` is indexed by [row, predicate]."""
    rng = np.random.default_rng(seed)
    size = len(sides)
    sent = np.arange(size) / network.rate * 1000
    elements = np.arange(size) % network.and_elements
    bits, arrivals = [], []
    for k in range(2):
        seen = _deliver(rng, sent, sides, network.delay_ms)
        done = np.maximum.accumulate(seen) if ordered else seen
        turn = np.empty(size, np.int64)
        turn[np.lexsort((np.arange(size), done))] = np.arange(size)
        bits.append(_bits(query, k, sides, keys[:, k], turn, window))
        arrivals.append(_deliver(rng, done, elements, network.delay_ms))
    first, second = _combine_by_row(size) if table else _combine_as_they_come(arrivals, elements)
    by_row = np.stack(bits)
    rows, others = np.nonzero(by_row[first[0], first[1]] & by_row[second[0], second[1]])
    found = _pairs(first[1][rows], others, sides)
    # The expected result: both predicates, in the order of the router.
    order = np.arange(size)
    right = np.logical_and(*(_bits(query, k, sides, keys[:, k], order, window) for k in range(2)))
    rows, others = np.nonzero(right)
    expected = _pairs(rows, others, sides)
    good = len(expected & found)
    combined = float(np.mean((first[1] == second[1]) & (first[0] != second[0])))
    return Outcome(len(expected), len(expected) - good, len(found) - good, combined)


def _deliver(rng: np.random.Generator, sent: Floats, channels: Words, delay_ms: float) -> Floats:
    """Arrival times of rows: random delays, but no overtaking within a channel."""
    arrivals = sent + rng.exponential(delay_ms, len(sent))
    for channel in np.unique(channels):
        own = np.flatnonzero(channels == channel)
        own = own[np.argsort(sent[own], kind="stable")]
        arrivals[own] = np.maximum.accumulate(arrivals[own])
    return arrivals


def _combine_by_row(size: int) -> tuple[tuple[Words, Words], tuple[Words, Words]]:
    """The bits to combine, as (predicate, row): with the table, those of the same row."""
    rows = np.arange(size)
    return (np.zeros(size, np.int64), rows), (np.ones(size, np.int64), rows)


def _combine_as_they_come(arrivals: list[Floats], elements: Words) -> tuple[tuple[Words, Words], tuple[Words, Words]]:
    """Without the table: on each AND machine, every second message is combined with the one before."""
    firsts, seconds = [], []
    for element in np.unique(elements):
        rows = np.flatnonzero(elements == element)
        order = np.argsort(np.concatenate([times[rows] for times in arrivals]), kind="stable")
        messages = np.stack([order // len(rows), rows[order % len(rows)]])
        firsts.append(messages[:, ::2])
        seconds.append(messages[:, 1::2])
    (first_k, first_row), (second_k, second_row) = np.hstack(firsts), np.hstack(seconds)
    return (first_k, first_row), (second_k, second_row)


def _pairs(rows: Words, others: Words, sides: Words) -> set[tuple[int, int]]:
    """Pairs as (left row, right row)."""
    is_left = sides[rows] == Side.LEFT
    return set(zip(np.where(is_left, rows, others).tolist(), np.where(is_left, others, rows).tolist(), strict=True))


def _bits(query: Query, k: int, sides: Words, keys: Floats, turn: Words, window: int) -> Flags:
    """[row, other row]: the other arrived before, is in the window and satisfies this predicate."""
    operators = np.array([query.tests(left_probes).operators[k] for left_probes in (True, False)])
    return _fill_bits(sides, keys, turn, window, operators, query.predicates[k].width)


@kernel
def _fill_bits(sides: Words, keys: Floats, turn: Words, window: int, operators: Words, width: float) -> Flags:
    bits = np.zeros((len(sides), len(sides)), np.bool_)
    for row in range(len(sides)):
        for other in range(max(0, row - window + 1), min(len(sides), row + window)):
            if sides[other] != sides[row] and turn[other] < turn[row]:
                bits[row, other] = holds(operators[sides[row]], width, keys[row], keys[other])
    return bits
