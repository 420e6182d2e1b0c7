"""Paged joins find all results, and transfer as many pages as their formulas predict."""

from collections.abc import Callable
from math import ceil

import numpy as np
import pytest
from benchmarks.baselines.paged import Paged, Transfers, block_nested_loop, grace_join, index_nested_loop
from tests.seed import generator

Join = Callable[[Paged, Paged, int], Transfers]


def relations(ones: int, manys: int, page_rows: int = 10, seed: int = 0) -> tuple[Paged, Paged]:
    rng = generator(seed)
    keys = rng.permutation(2 * ones)[:ones]  # every other key of the second relation has no partner
    return Paged(keys, page_rows), Paged(rng.integers(0, 2 * ones, manys), page_rows)


@pytest.mark.parametrize("join", [grace_join, block_nested_loop, index_nested_loop])
@pytest.mark.parametrize("seed", range(5))
def test_every_pair_once(join: Join, seed: int) -> None:
    one, many = relations(700, 2500, seed=seed)
    assert join(one, many, 20).results == np.isin(many.keys, one.keys).sum()


def test_grace_moves_everything_three_times() -> None:
    one, many = relations(5000, 20_000)
    done = grace_join(one, many, 60)
    both = one.pages + many.pages
    assert done.read_before_first == both
    assert 3 * both <= done.pages <= 3.1 * both  # the last page of a partition is not full
    assert done.hashed == 2 * (5000 + 20_000)


def test_grace_needs_a_page_for_every_partition() -> None:
    with pytest.raises(ValueError, match="partitions"):
        grace_join(*relations(5000, 100), memory=20)


def test_a_nested_loop_reads_the_inner_once_for_every_part_of_the_outer() -> None:
    one, many = relations(1000, 4000)
    done = block_nested_loop(one, many, 26)
    assert done.read == one.pages + ceil(one.pages / 25) * many.pages
    assert done.written == 0


def test_an_index_reads_fewer_pages_with_more_memory() -> None:
    one, many = relations(4000, 8000)
    few, enough = (index_nested_loop(one, many, memory) for memory in (10, 1000))
    assert enough.read < few.read
    assert enough.read <= one.pages + many.pages + ceil(4000 / 76) + 2
