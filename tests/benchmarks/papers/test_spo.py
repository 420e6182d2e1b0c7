"""The claims of SPO-Join at a small size: only counts of operations, no times."""

import numpy as np
import pytest
from benchmarks.papers.spo_cells import finish_times
from benchmarks.papers.spo_probing import at_rest, chain_over_po, hash_over_po, loops_over_po, probe_ratios
from benchmarks.papers.spo_state import (
    divided_slides,
    expiry,
    insertion,
    linear_passes,
    memory,
    merging,
    mutable_shares,
    orderings,
)
from benchmarks.papers.spo_workloads import places, racks, rides


def test_joins_at_rest_agree() -> None:
    seconds, answers = at_rest(300)
    assert len(seconds) == 4
    assert len(set(answers.values())) == 1


def test_probes_find_the_same_in_all_structures() -> None:
    for workload in (rides(620), places(620), racks(620)):
        assert min(probe_ratios(workload, 5, 20)) > 0


def test_the_chain_index_touches_more_than_po_join() -> None:
    assert min(chain_over_po(2000, 20).values()) >= 1
    assert min(chain_over_po(2000, 20, racks).values()) >= 1


def test_loops_compare_more_often_than_bits_are_read() -> None:
    for make in (rides, racks):
        loops = loops_over_po(5000, 20, make)
        assert set(loops) == {"split join", "BCHJ"}
        assert min(loops.values()) > 1


def test_a_hash_join_touches_less_where_keys_are_equal() -> None:
    assert min(hash_over_po((500, 2000), 100, 50)) >= 1


def test_divided_slides_bound_the_mutable_part_and_the_merge() -> None:
    merges = divided_slides(500, 10)
    assert merges.largest_mutable == merges.delta == 50
    assert merges.work_ratio >= 5


def test_inserts_into_small_trees_compare_less() -> None:
    compared = insertion(2000)
    assert compared["SPO"] < compared["B+-tree"]


def test_memory() -> None:
    assert min(memory((2000,))) > 1


def test_rows_that_wait_for_a_merge_probe_once() -> None:
    waits = merging((200, 400))
    assert waits.queued_probes == waits.arrivals_during_merges == 150
    assert waits.results_agree
    assert 5.9 <= min(waits.moved_per_row) <= max(waits.moved_per_row) <= 6  # for any delta


def test_a_larger_mutable_part_is_more_work() -> None:
    work = mutable_shares(400, (0.1, 0.3, 0.5))
    assert work == sorted(work)


def test_the_order_of_the_router_finds_all_pairs() -> None:
    outcomes = orderings(300)
    assert outcomes["no table"].false > 0
    assert outcomes["table"].lost > 0 == outcomes["table"].false
    assert outcomes["table and order"].lost == outcomes["table and order"].false == 0


def test_the_filter_by_position_leaves_nothing_false() -> None:
    late = expiry((2500,), (5000,), 10, 600)
    assert min(late.differences) > 1
    assert min(late.false.values()) > 0 == late.lost
    assert set(late.false_filtered.values()) == {0}


@pytest.mark.parametrize(("rows", "others"), [(1000, 700), (700, 1000), (5, 0)])
def test_permutation_and_offsets_are_linear(rows: int, others: int) -> None:
    permuting, offsetting = linear_passes(rows, others)
    assert permuting == 2 * rows
    assert offsetting <= rows + others


def test_a_queue_serves_one_row_after_the_other() -> None:
    rng = np.random.default_rng(0)
    arrivals, service = np.cumsum(rng.exponential(1, 200)), rng.exponential(0.9, 200)
    free = 0.0
    for arrival, seconds, finished in zip(arrivals, service, finish_times(arrivals, service), strict=True):
        free = max(free, arrival) + seconds
        assert finished == pytest.approx(free)
