"""How long cells work in the background, with a simulated clock."""

from __future__ import annotations

import pytest

from dovetail.spark.streaming.pace import FED_SHARE, FIRST_PRICE_S, LEAST, MOST, MOST_PRICE_S, Pace

LATENCY_S = 3.0


def run(pace: Pace, price_s: float, cells: int = 1, micro_batches: int = 30, arrivals_s: float = 0.0) -> list[float]:
    """The durations of many micro-batches, in which every cell of a core uses its whole slice."""
    now, lengths = 1_000.0, []
    for _ in range(micro_batches):
        pace.begin(now, cells)
        work = max(arrivals_s, pace.deadline(now + arrivals_s, LATENCY_S, cells) - now)
        pace.end(now + work, more=True)
        lengths.append(price_s + cells * work)
        now += lengths[-1]
    return lengths


@pytest.mark.parametrize("cells", [1, 2, 8])
@pytest.mark.parametrize("price_s", [0.4, 0.7, 1.0])
def test_micro_batches_take_half_of_the_latency(price_s: float, cells: int) -> None:
    """Rows wait for two micro-batches, for any number of cells per core."""
    assert run(Pace(), price_s, cells)[-1] == pytest.approx(LATENCY_S / 2, rel=0.01)


def test_arrivals_are_part_of_a_slice_and_leave_some_of_it() -> None:
    assert run(Pace(), 0.5, arrivals_s=0.3)[-1] == pytest.approx(LATENCY_S / 2, rel=0.01)
    assert run(Pace(), 0.5, arrivals_s=2.0)[-1] == pytest.approx(0.5 + 2.0 + FED_SHARE * 1.0, rel=0.01)


def test_a_high_price_is_hardly_raised_and_a_low_one_not_paid_often() -> None:
    assert run(Pace(), 6.0)[-1] == pytest.approx(6.0 * (1 + LEAST), rel=0.01)
    assert run(Pace(), 0.05)[-1] == pytest.approx(0.05 * (1 + MOST), rel=0.01)


def test_waiting_is_no_price() -> None:
    """A cell without work is called again later, and the query may have been stopped in between."""
    pace = Pace()
    pace.begin(0.0, 1)
    pace.end(0.1, more=False)
    pace.begin(1.1, 1)
    assert pace.price_s == FIRST_PRICE_S
    pace.end(1.2, more=True)
    pace.begin(10_000.0, 1)
    assert pace.price_s == (FIRST_PRICE_S + MOST_PRICE_S) / 2
    pace.end(10_000.1, more=True)
    pace.begin(5_000.0, 1)  # on a host with a slow clock
    assert pace.price_s == (FIRST_PRICE_S + MOST_PRICE_S) / 4
