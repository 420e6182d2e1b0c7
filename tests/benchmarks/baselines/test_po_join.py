"""The worked examples of the SPO-Join paper and its technical report, the faults of the printed probe, and merges."""

from collections.abc import Sequence

import numpy as np
import pytest
from benchmarks.baselines.bplus_tree import Trees
from benchmarks.baselines.po_join import PoBatch, offset, permute, po_join
from benchmarks.baselines.predicates import Floats, Query, Words
from benchmarks.baselines.two_part import Span
from benchmarks.baselines.work import Work
from tests.benchmarks.window_oracle import expected, query_of, random_stream, results

from dovetail.core.rows import Side

Q1 = Query.of("<", ">")  # POWER, COOL
R = np.array([(1800, 2100), (2200, 1600), (1200, 4000), (1260, 3500)], float)
S = np.array([(500, 1100), (1800, 2200), (3000, 4400), (2100, 3000), (1600, 3600)], float)


def sorted_keys(rows: Floats) -> list[tuple[Floats, Words]]:
    return [(np.sort(keys), np.argsort(keys, kind="stable")) for keys in rows.T]


def batch_of(rows: Floats) -> PoBatch:
    return PoBatch(Span(0, len(rows)), sorted_keys(rows), Work().counts)


@pytest.mark.parametrize(("rows", "printed"), [(R, [4, 3, 2, 1]), (S, [1, 3, 4, 2, 5])])
def test_permutation(rows: Floats, printed: list[int]) -> None:
    work = Work()
    (_, by_power), (_, by_cool) = sorted_keys(rows)
    assert list(permute(by_power, by_cool, Span(0, len(rows)), work.counts) + 1) == printed
    assert work.keys == 2 * len(rows)


@pytest.mark.parametrize(("key", "printed"), [(0, [2, 2, 3, 5]), (1, [2, 2, 4, 5])])
def test_offsets(key: int, printed: list[int]) -> None:
    work = Work()
    assert list(offset(np.sort(R[:, key]), np.sort(S[:, key]), work.counts) + 1) == printed
    assert work.comparisons <= len(R) + len(S)


def test_offsets_count_rows_and_end_behind_the_last() -> None:
    keys, others = np.array([0.0, 2, 2, 9, 9]), np.array([1.0, 2, 2, 3])
    assert list(offset(keys, others, Work().counts)) == [0, 1, 1, 4, 4]
    assert list(offset(keys, np.empty(0), Work().counts)) == [0] * 5


@pytest.mark.parametrize(
    ("r", "partners"),
    [((1400, 3000), {2}), ((1400, 3100), {2, 4}), ((1400, 2150), set())],
)
def test_probe_from_the_left(r: tuple[float, float], partners: set[int]) -> None:
    found = batch_of(S).probe(np.array(r, float), Q1.tests(left_probes=True), Work().counts)
    assert {row + 1 for row in found} == partners


def test_probe_from_the_right() -> None:
    found = batch_of(R).probe(np.array([2700.0, 2100]), Q1.tests(left_probes=False), Work().counts)
    assert {row + 1 for row in found} == {3, 4}


@pytest.mark.parametrize("intersection", ["bit", "hash"])
def test_mutable_part(intersection: str) -> None:
    """By POWER s21, s100, s201; by COOL s21, s100; by both s21, s100."""
    stored = {10: (1000, 800), 15: (1000, 800), 30: (1560, 500), 21: (3300, 100), 100: (3300, 100), 201: (4000, 1000)}
    trees, work = Trees(Q1, 4, intersection), Work()
    for position, keys in stored.items():
        trees.insert(position, np.array(keys, float), work.counts)
    probe, tests = np.array([3000.0, 500]), Q1.tests(left_probes=True)
    by_key = [
        set(tree.probe(*test, work.counts).tolist()) for tree, *test in zip(trees.trees, *tests, probe, strict=True)
    ]
    assert by_key == [{21, 100, 201}, {21, 100}]
    assert set(trees.find(probe, tests, 0, 202, work.counts).tolist()) == {21, 100}


def test_an_empty_side_still_merges_and_expires() -> None:
    join = po_join(Q1, 20, 5)
    stream = [(Side.LEFT, (1.0, 1.0))] * 40 + [(Side.RIGHT, (2.0, 0.0))]
    assert len(results(join, stream)) == 19
    assert [len(index.batches) for index in join.indexes] == [4, 4]
    assert all(batch.span.end - batch.span.first == 5 for index in join.indexes for batch in index.batches)


@pytest.mark.parametrize("delta", [1, 7, 64])
def test_merges_are_cut_by_position(delta: int) -> None:
    """Every row is in one part, permutations are valid, and offsets never decrease."""
    join = po_join(Q1, 100, delta)
    results(join, random_stream(delta, 300, 2, bad=0.2))
    for index in join.indexes:
        assert index.largest_mutable <= delta
        assert [batch.span.first % delta for batch in index.batches] == [0] * len(index.batches)
        for batch in index.batches:
            assert sorted(batch.orders.permutation) == list(range(len(batch.orders.rows)))
            assert all(batch.span.first <= row < batch.span.end for row in batch.orders.rows)
            for offsets in batch.offsets:
                assert (np.diff(offsets) >= 0).all()


@pytest.mark.parametrize("waiting", [1, 5, 9])
@pytest.mark.parametrize("self_join", [False, True])
def test_rows_that_wait_for_a_merge(waiting: int, self_join: bool) -> None:
    """Rows that arrive during merges are queued, and each probes the new batch once."""
    names: Sequence[str] = ("<", ">=", "!=")
    stream = random_stream(waiting, 205, 3, bad=0)
    join = po_join(query_of(*names, self_join=self_join), 60, 10, merge_arrivals=waiting)
    assert results(join, stream) == expected(tuple(names), stream, 60, self_join)
    assert join.queued_probes == (19 * waiting + min(5, waiting)) * (2 if self_join else 1)


def test_a_merge_must_end_before_the_next() -> None:
    with pytest.raises(ValueError, match="below delta"):
        po_join(Q1, 20, 5, merge_arrivals=5)
