"""The definition of a windowed join, row by row, and random streams to test it."""

import math
import operator
import random
from collections.abc import Callable, Iterable, Sequence
from functools import cache

from benchmarks.baselines.predicates import Query
from benchmarks.baselines.windowed import StreamJoin

from dovetail.core.rows import Side

Row = tuple[float | None, ...]
Stream = tuple[tuple[Side, Row], ...]

HOLDS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "!=": operator.ne,
    "band<": lambda x, y: abs(x - y) < WIDTH,
    "band<=": lambda x, y: abs(x - y) <= WIDTH,
}
NAMES = tuple(HOLDS)
WIDTH = 1.5
VALUES = (0.0, -0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 7.0)


def query_of(*names: str, self_join: bool = False) -> Query:
    return Query.of(*names, width=WIDTH, self_join=self_join)


def random_stream(seed: int, size: int, keys: int, bad: float = 0.05) -> Stream:
    """A stream with many ties, and some nulls and NaNs."""
    rng = random.Random(seed)
    return tuple(
        (
            rng.choice((Side.LEFT, Side.RIGHT)),
            tuple(rng.choice((None, math.nan)) if rng.random() < bad else rng.choice(VALUES) for _ in range(keys)),
        )
        for _ in range(size)
    )


@cache
def expected(names: tuple[str, ...], stream: Stream, window: int, self_join: bool = False) -> list[tuple[int, int]]:
    """Pairs of positions that differ by less than the window, and whose keys satisfy all predicates."""
    found = []
    for p, (side, _) in enumerate(stream):
        for q in range(max(0, p - window + 1), p):
            other_side, _ = stream[q]
            if self_join:
                found += [(i, j) for i, j in ((p, q), (q, p)) if matches(names, stream[i][1], stream[j][1])]
            elif side != other_side:
                i, j = (p, q) if side is Side.LEFT else (q, p)
                found += [(i, j)] * matches(names, stream[i][1], stream[j][1])
    return sorted(found)


def matches(names: Sequence[str], left: Row, right: Row) -> bool:
    return all(
        x is not None and y is not None and not math.isnan(x) and not math.isnan(y) and HOLDS[name](x, y)
        for name, x, y in zip(names, left, right, strict=True)
    )


def results(join: StreamJoin, stream: Iterable[tuple[Side, Row]]) -> list[tuple[int, int]]:
    found = [join.arrive(side, row) for side, row in stream] + [join.finish()]
    return sorted((int(i), int(j)) for pairs in found for i, j in zip(pairs.left, pairs.right, strict=True))
