"""DataFusion's queries for nested loop joins: the remainder of a sum, and a comparison, over consecutive numbers."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from benchmarks.nonequi.case import Case, Tables
from benchmarks.nonequi.cases.columns import side
from benchmarks.nonequi.question import Compare, Pairs, SumModulo, Term


class Query(NamedTuple):
    rows: tuple[int, int]
    term: Term
    how: str = "inner"
    only_counted: bool = True


def generate(rows: int, rng: np.random.Generator, right: int) -> Tables:
    return side("l", {"n": np.arange(rows)}, rng), side("r", {"n": np.arange(right)}, rng)


def divides(modulus: int, operator: str = "=") -> Term:
    return SumModulo("l_n", "r_n", modulus, operator, 0)


GREATER = Compare("l_n", ">", "r_n")
SMALL, MIDDLE, LARGE = 10_000, 30_000, 200_000
QUERIES = (
    Query((SMALL, SMALL), divides(1000), only_counted=False),
    Query((SMALL, SMALL), divides(5)),
    Query((SMALL, SMALL), divides(10, "<>")),
    Query((MIDDLE, MIDDLE), divides(5)),
    Query((SMALL, LARGE), divides(1000), only_counted=False),
    Query((LARGE, SMALL), divides(1000), only_counted=False),
    Query((SMALL, LARGE), divides(1000), "right"),
    Query((LARGE, SMALL), divides(1000), "left"),
    Query((MIDDLE, MIDDLE), divides(1000), "full"),
    Query((MIDDLE, MIDDLE), divides(10, "<>"), "full"),
    Query((MIDDLE, MIDDLE), GREATER),
    Query((MIDDLE, MIDDLE), GREATER, "full"),
)
CASES = [
    Case(
        f"datafusion_{number}",
        f"DataFusion: nested loop, query {number}",
        partial(generate, right=query.rows[1]),
        Pairs((query.term,), query.how),
        "DataFusion, `benchmarks/src/nlj.rs`",
        query.rows[0],
        only_counted=query.only_counted,
    )
    for number, query in enumerate(QUERIES, 1)
]
