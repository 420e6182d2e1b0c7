"""How much background work cells do, with a simulated clock."""

from __future__ import annotations

import pytest

from dovetail.spark.streaming.pace import FED_SHARE, FIRST_PRICE_S, FIRST_UNITS, LEAST, MOST, MOST_PRICE_S, Call, Pace

LATENCY_S = 3.0
UNIT_S = 0.004


def run(
    pace: Pace, price_s: float, cells: int = 1, micro_batches: int = 40, rows: int = 0, row_s: float = 0.0
) -> list[float]:
    """The durations of many micro-batches, in which every cell of a core uses its whole slice."""
    now, lengths = 1_000.0, []
    for _ in range(micro_batches):
        units = pace.units_in_slice(LATENCY_S, cells, rows)
        work = rows * row_s + units * UNIT_S
        pace = pace.after(Call(now, rows, rows * row_s, units, units * UNIT_S, True), cells)
        lengths.append(price_s + cells * work)
        now += lengths[-1]
    return lengths


@pytest.mark.parametrize("cells", [1, 2, 8])
@pytest.mark.parametrize("price_s", [0.4, 0.7, 1.0])
def test_micro_batches_take_half_of_the_latency(price_s: float, cells: int) -> None:
    """Rows wait for two micro-batches, for any number of cells per core."""
    assert run(Pace(), price_s, cells)[-1] == pytest.approx(LATENCY_S / 2, rel=0.03)


def test_arrivals_are_part_of_a_slice_and_leave_some_of_it() -> None:
    assert run(Pace(), 0.5, rows=300, row_s=0.001)[-1] == pytest.approx(LATENCY_S / 2, rel=0.01)
    assert run(Pace(), 0.5, rows=2000, row_s=0.001)[-1] == pytest.approx(0.5 + 2.0 + FED_SHARE * 1.0, rel=0.01)


def test_a_high_price_is_hardly_raised_and_a_low_one_not_paid_often() -> None:
    assert run(Pace(), 6.0)[-1] == pytest.approx(6.0 * (1 + LEAST), rel=0.01)
    assert run(Pace(), 0.05)[-1] == pytest.approx(0.05 * (1 + MOST), rel=0.02)


def test_the_first_slice_is_small() -> None:
    assert Pace().units_in_slice(LATENCY_S, 1, 0) == Pace().units_at_rest() == FIRST_UNITS


def test_one_row_does_not_say_what_a_million_take() -> None:
    """A call has a cost of its own, whatever the number of rows."""
    pace = Pace().after(Call(0.0, 1_000_000, 1.0, 100, 0.4, True), 1).after(Call(2.0, 1, 0.1, 100, 0.4, True), 1)
    assert pace.units_in_slice(LATENCY_S, 1, 100_000) > 0.8 * pace.units_in_slice(LATENCY_S, 1, 0)


def test_waiting_is_no_price() -> None:
    """A cell without work is called again later, and the query may have been stopped in between."""
    idle, busy = Call(0.0, 0, 0.0, 10, 0.1, False), Call(1.1, 0, 0.0, 10, 0.1, True)
    pace = Pace().after(idle, 1).after(busy, 1)
    assert pace.price_s == FIRST_PRICE_S
    pace = pace.after(busy._replace(began_s=10_000.0), 1)
    assert pace.price_s == (FIRST_PRICE_S + MOST_PRICE_S) / 2
    pace = pace.after(busy._replace(began_s=5_000.0), 1)  # on a host with a slow clock
    assert pace.price_s == (FIRST_PRICE_S + MOST_PRICE_S) / 4
