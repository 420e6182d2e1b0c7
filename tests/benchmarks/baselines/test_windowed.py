"""Every structure against the definition: all operators, ties, nulls, self-joins, one to three predicates."""

import itertools
from collections.abc import Callable

import pytest
from benchmarks.baselines.bchj import bchj
from benchmarks.baselines.bplus_tree import bplus_tree_join
from benchmarks.baselines.chain_index import chain_index_join
from benchmarks.baselines.css_tree import css_tree_join
from benchmarks.baselines.hash_join import hash_join
from benchmarks.baselines.nested_loop import nested_loop_join
from benchmarks.baselines.pim_tree import pim_tree_join
from benchmarks.baselines.po_join import po_join
from benchmarks.baselines.predicates import Query
from benchmarks.baselines.split_join import split_join
from benchmarks.baselines.windowed import WindowJoin
from tests.benchmarks.window_oracle import NAMES, expected, query_of, random_stream, results

from dovetail.core.rows import Side

JOINS: dict[str, Callable[[Query, int], WindowJoin]] = {
    "nested loop": nested_loop_join,
    "B+-tree": bplus_tree_join,
    "B+-tree, order 7, hash": lambda query, window: bplus_tree_join(query, window, 7, "hash"),
    "CSS-bit": lambda query, window: css_tree_join(query, window, 9),
    "CSS-hash": lambda query, window: css_tree_join(query, window, 13, "hash", order=3),
    "chain index": lambda query, window: chain_index_join(query, window, 8),
    "PIM-tree": lambda query, window: pim_tree_join(query, window, 0.3, order=3),
    "PO-Join": lambda query, window: po_join(query, window, 9),
    "PO-Join, hash": lambda query, window: po_join(query, window, 12, "hash"),
    "PO-Join, slow merge": lambda query, window: po_join(query, window, 9, merge_arrivals=6),
    "split join": lambda query, window: split_join(query, window, 3),
    "BCHJ": lambda query, window: bchj(query, window, 3),
}
WINDOW = 31


@pytest.mark.one_in(8)
@pytest.mark.parametrize("name", JOINS)
def test_operators(name: str) -> None:
    for seed, names in enumerate([*((each,) for each in NAMES), *itertools.product(NAMES, repeat=2)]):
        stream = random_stream(seed, 50, len(names))
        assert results(JOINS[name](query_of(*names), 17), stream) == expected(names, stream, 17), names


@pytest.mark.one_in(6)
@pytest.mark.parametrize("name", JOINS)
def test_self_joins(name: str) -> None:
    """Pairs in both orientations, but no row with itself."""
    for seed, names in enumerate([*zip(NAMES, strict=True), *zip(NAMES, NAMES[3:] + NAMES[:3], strict=True)]):
        stream = random_stream(seed, 50, len(names))
        join = JOINS[name](query_of(*names, self_join=True), 17)
        assert results(join, stream) == expected(names, stream, 17, True), names


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", JOINS)
@pytest.mark.parametrize("window", [1, 2, 50, 500])
def test_windows(name: str, window: int) -> None:
    names = ("<", ">=", "!=")
    stream = random_stream(window, 200, 3)
    join = JOINS[name](query_of(*names), window)
    assert results(join, stream) == expected(names, stream, window)
    assert join.declared_bytes >= 0
    assert join.work.total >= 0


@pytest.mark.parametrize("other", NAMES)
def test_hash_join(other: str) -> None:
    for seed, names in enumerate([("=",), ("=", other), (other, "="), ("=", other, "<")]):
        stream = random_stream(seed, 150, len(names))
        assert results(hash_join(query_of(*names), WINDOW), stream) == expected(names, stream, WINDOW)


def test_a_hash_join_needs_an_equality() -> None:
    with pytest.raises(ValueError, match="needs an equality"):
        hash_join(query_of("<"), WINDOW)


@pytest.mark.parametrize("name", JOINS)
def test_one_stream_only(name: str) -> None:
    stream = [(Side.LEFT, row) for _, row in random_stream(0, 60, 2)]
    assert results(JOINS[name](query_of("<", ">"), 20), stream) == []


@pytest.mark.parametrize("name", JOINS)
def test_unordered_pairs(name: str) -> None:
    """A symmetric self-join can return each pair once."""
    stream = random_stream(1, 100, 2)
    query = query_of("band<", "band<=", self_join=True)._replace(once=True)
    found = results(JOINS[name](query, WINDOW), stream)
    assert found == [(i, j) for i, j in expected(("band<", "band<="), stream, WINDOW, True) if i > j]


def test_false_candidates_are_counted() -> None:
    """Whole batches are dropped late; a tree that deletes each row is never late."""
    stream = random_stream(2, 200, 1, bad=0)
    late, exact = po_join(query_of("<="), 30, 10), bplus_tree_join(query_of("<="), 30)
    assert results(late, stream) == results(exact, stream)
    assert late.false_candidates > 0 == exact.false_candidates


@pytest.mark.parametrize("make", [split_join, bchj])
def test_workers_share_the_work(make: Callable[[Query, int, int], WindowJoin]) -> None:
    join = make(query_of("<"), 60, 3)
    results(join, random_stream(3, 600, 1, bad=0))
    for index in join.indexes:
        done = [work.comparisons for work in index.worker_work]
        assert min(done) > 0.7 * max(done)
    assert sum(work.comparisons for index in join.indexes for work in index.worker_work) == join.work.comparisons
