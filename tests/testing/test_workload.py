"""Workloads in real time, at many times their normal speed."""

import numpy as np
import pyarrow as pa
from tests.patience import wait_for_threads_to_end

import dovetail
from dovetail.sources.paced import Paced
from dovetail.testing.arrival_times import exponential, steady, with_silences
from dovetail.testing.values import zipf
from dovetail.testing.workload import Workload


def test_rows_come_in_order_and_not_before_they_are_due() -> None:
    source = Paced(pa.table({"k": np.arange(20)}), steady(20, 0.001))
    reading = source.open()
    rows: list[int] = []
    while (piece := next(reading, None)) is not None:
        rows += piece.batch["k"].to_pylist()
        assert piece.position == len(rows)
        assert source.elapsed() >= 0.001 * len(rows)
    assert rows == list(range(20))


def test_it_goes_on_at_a_row() -> None:
    source = Paced(pa.table({"k": np.arange(5)}), np.zeros(5))
    assert next(source.open()).batch["k"].to_pylist() == [0, 1, 2, 3, 4]
    assert next(source.open(3)).batch["k"].to_pylist() == [3, 4]
    assert next(source.open(5), None) is None


def test_leaving_does_not_wait_for_rows_that_are_not_due() -> None:
    source = Paced(pa.table({"k": [1, 1]}), np.array([0.0, 1e6]))
    steps = dovetail.progressive(source, pa.table({"k": [1]}), "l.k = r.k")
    next(steps)
    steps.close()  # type: ignore[attr-defined]
    wait_for_threads_to_end()


def test_a_workload_is_joined_as_it_comes() -> None:
    rng = np.random.default_rng(1)
    times = [with_silences(exponential(600, rng), fragments=3, silence=1.0) for _ in range(2)]
    tables = tuple(pa.table({"k": zipf(600, rng), "pad": ["x" * 150] * 600}) for _ in times)
    steps = list(
        dovetail.progressive(
            *Workload(tables, tuple(times)).sources(speed=5),
            "l.k = r.k",
            memory="100KB",
            algorithm="nested_loop",
            wait_ms=5,
        )
    )
    assert steps[-1].results == dovetail.count(*tables, "l.k = r.k")
    assert steps[0].phase == "arriving"
