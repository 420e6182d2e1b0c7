"""The page model with the printed sizes: 44,475 pages of Order, 189,635 of Lineitem."""

import pytest
from benchmarks.papers.diag_costs import DiagCosts, Machine, Relation, break_even, nested_loop_transfers

from dovetail.diag.choice import diag_transfers, grace_transfers

ORDER, LINEITEM = 44_475, 189_635


def test_without_mishits_either_input_is_read_once() -> None:
    assert diag_transfers(ORDER, LINEITEM, 0.0) == ORDER + LINEITEM
    assert grace_transfers(ORDER, LINEITEM) / diag_transfers(ORDER, LINEITEM, 0.0) == 3


def test_where_grace_is_as_good() -> None:
    assert break_even(ORDER, LINEITEM) == pytest.approx(0.441, abs=0.001)
    assert break_even(ORDER, LINEITEM, coupled=True) == pytest.approx(0.882, abs=0.001)
    for coupled in (False, True):
        share = break_even(ORDER, LINEITEM, coupled=coupled)
        assert diag_transfers(ORDER, LINEITEM, share, coupled=coupled) == pytest.approx(
            grace_transfers(ORDER, LINEITEM)
        )


def test_coupling_saves_writing_and_reading_mishits_once() -> None:
    apart, coupled = (diag_transfers(ORDER, LINEITEM, 0.3, coupled=how) for how in (False, True))
    assert apart - coupled == pytest.approx(2 * 0.3 * LINEITEM)


def test_the_nested_loop_reads_the_inner_side_often() -> None:
    assert nested_loop_transfers(ORDER, LINEITEM, 4001) == ORDER + 12 * LINEITEM
    assert nested_loop_transfers(ORDER, LINEITEM, 4001) >= 4 * diag_transfers(ORDER, LINEITEM, 0.0)


def test_seconds_follow_the_equations() -> None:
    machine = Machine(seek=1.0, transfer=0.1, hash=0.01, find=0.02)
    costs = DiagCosts(Relation(100, 10), Relation(400, 40), window_pages=10, tables=5, machine=machine)
    # R1 two pages at a time, RN page by page, 100 rows hashed, 400 looked up
    assert costs.first_phase(0.0) == pytest.approx((5 + 1.0) + (40 + 4.0) + 1.0 + 8.0)
    assert costs.diag(0.0) == costs.first_phase(0.0)
    assert costs.first_phase(0.5) == pytest.approx(costs.first_phase(0.0) + 20 + 2.0)
    assert costs.diag(0.5) == pytest.approx(costs.first_phase(0.5) + costs.grace(Relation(200, 20)))
    # a single part, with all ten pages as its buffer: both are read, written ten pages at a time, and read
    assert costs.grace() == pytest.approx(2 * (10 + 1.0) + (1 + 1.0) + 2 * (40 + 4.0) + (4 + 4.0) + 600 * 0.01 + 8.0)
