"""Workloads on the simulated clock: arrival times, costs of work, and waiting rows."""

import numpy as np
import pyarrow as pa
import pytest
from benchmarks.papers.clairvoyant import online_bound
from tests.effort import some

import dovetail
from benchmarks.papers import progressive_workloads as workloads
from dovetail.errors import InputError
from dovetail.operators.registry import REGISTRY, operator_class
from dovetail.testing.clock import PAGES_ONLY, Costs, play
from dovetail.testing.workload import Workload

FREE = Costs(0, 0, 0, 0, 0, 0, 0)


def workload(left: list[float], right: list[float], keys: int = 1) -> Workload:
    tables = tuple(pa.table({"k": np.arange(len(times)) % keys}) for times in (left, right))
    return Workload(tables, (np.array(left, np.float64), np.array(right, np.float64)))


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("name", "batch_rows"),
    [(name, rows) for turn, name in enumerate(REGISTRY) for rows in some((1, 8), turn, of=2)],
)
def test_every_operator_finds_the_whole_result(name: str, batch_rows: int) -> None:
    busy = workloads.fragments(silence=0.5, rows=200, seed=4)
    memory_rows = 80 if operator_class(name).spec.spills else None
    run = play(name, busy, "l.k = r.k", memory_rows=memory_rows, block_rows=8, batch_rows=batch_rows)
    assert run.total == dovetail.count(*busy.tables, "l.k = r.k") == run.results[-1]
    assert 0 < run.online <= run.total
    assert run.seconds == sorted(run.seconds)
    assert run.results == sorted(run.results)
    assert run.end_s >= run.last_arrival_s == busy.end_s
    assert run.counters.rows_received == 400


def test_results_come_when_their_later_row_arrives() -> None:
    run = play("shj", workload([1.0, 2.0], [1.5, 4.0]), "l.k = r.k", costs=FREE)
    assert list(zip(run.seconds, run.results, strict=True)) == [(1.5, 1), (2.0, 2), (4.0, 4)]
    assert (run.online, run.total, run.share) == (4, 4, 1.0)
    assert [run.results_at(t) for t in (0, 1.5, 1.9, 3, 9)] == [0, 1, 1, 2, 4]
    assert run.max_buffer_rows == 1


def test_a_batch_is_joined_when_its_last_row_is_there_and_no_stall_divides_it() -> None:
    late = workload([0.001, 0.002, 0.003, 0.9], [0.0015, 0.9005])
    run = play("shj", late, "l.k = r.k", costs=FREE, batch_rows=50)
    assert sorted(set(run.seconds)) == [0.003, 0.9005]
    assert [run.results_at(t) for t in run.seconds] == [3] * run.seconds.count(0.003) + [8] * run.seconds.count(0.9005)


def test_rows_wait_while_work_takes_longer_than_they_need_to_arrive() -> None:
    slow = Costs(rows_received=0.010)
    run = play("shj", workload([0.001 * i for i in range(1, 101)], [2.0]), "l.k = r.k", costs=slow)
    # Row i is taken at 1 + 10 (i - 1) ms; when the tenth is done, at 101 ms, ninety others are waiting.
    assert run.max_buffer_rows == 90
    assert run.seconds[0] == pytest.approx(2.010, abs=1e-4)


def spilling(silence_s: float) -> Workload:
    """Two hundred rows per side, which do not fit in memory, a silence, and one more row."""
    times = [0.001 * i for i in range(1, 201)]
    return workload([*times, times[-1] + silence_s], times, keys=50)


def test_reactive_work_begins_after_the_threshold_and_ends_when_rows_wait() -> None:
    setting = {"memory_rows": 80, "block_rows": 10, "costs": PAGES_ONLY}
    run = play("nested_loop", spilling(100_000), "l.k = r.k", **setting)
    assert "reactive" in run.phases
    at_once = play("nested_loop", spilling(100_000), "l.k = r.k", **{**setting, "costs": FREE})
    reactive = [s for s, phase in zip(at_once.seconds, at_once.phases, strict=True) if phase == "reactive"]
    assert reactive == pytest.approx([0.2 + 0.025] * len(reactive))
    assert "cleanup" in run.phases
    assert run.online == run.results[run.phases.index("cleanup") - 1]
    waited = play("nested_loop", spilling(0.020), "l.k = r.k", **setting)
    assert "reactive" not in waited.phases
    assert waited.online < run.online
    assert waited.total == run.total == 201 * 4


def test_rows_that_arrive_during_a_unit_of_work_wait_for_its_end() -> None:
    times = np.arange(1, 401) * 0.001
    resumed = np.concatenate([times[:200], times[200:] + 0.5])
    keys = pa.table({"k": np.arange(400) % 50})
    busy = Workload((keys, keys), (resumed, resumed))
    setting = {"memory_rows": 80, "block_rows": 10, "costs": Costs(0, 0, 0, 0, 0.05, 0.05, 0)}
    prompt = play("nested_loop", busy, "l.k = r.k", **setting)
    patient = play("nested_loop", busy, "l.k = r.k", hand_over_rows=300, **setting)
    # A unit reads up to three blocks, in the time of 150 ms of arrivals on both sides.
    assert 1 < prompt.max_buffer_rows <= 300
    assert 300 <= patient.max_buffer_rows <= 300 + 300
    assert prompt.total == patient.total


def test_the_side_that_has_ended_is_not_waited_for() -> None:
    """The left side ends early; gaps of the right side alone count as stalls."""
    left = [0.001 * i for i in range(1, 201)]
    right = [*left, *(0.2 + 0.1 * i for i in range(1, 20))]
    run = play("nested_loop", workload(left, right, keys=50), "l.k = r.k", memory_rows=80, block_rows=10)
    reactive = [s for s, phase in zip(run.seconds, run.phases, strict=True) if phase == "reactive"]
    assert max(reactive) > right[201]


@pytest.mark.one_in(2)
def test_without_clean_up_the_total_is_counted() -> None:
    some = workloads.zipf_keys(rows=(300, 300))
    whole = play("nested_loop", some, "l.k = r.k", memory_rows=60, block_rows=5)
    online = play("nested_loop", some, "l.k = r.k", memory_rows=60, block_rows=5, clean_up=False)
    assert (online.total, online.online) == (whole.total, whole.online)
    assert online.counters.results == online.online < whole.counters.results


@pytest.mark.one_in(2)
def test_the_bound_holds() -> None:
    some = workloads.zipf_keys(rows=(4000, 4000), seed=2)
    counts = [np.bincount(np.asarray(table["k"]), minlength=1000) for table in some.tables]
    run = play("nested_loop", some, "l.k = r.k", memory_rows=400, block_rows=20, batch_rows=20, clean_up=False)
    assert 0 < run.share <= online_bound(*counts, 400) + 0.01


def test_empty_sides_end_at_once() -> None:
    for left, right in (([], [1.0]), ([1.0], []), ([], [])):
        run = play("nested_loop", workload(left, right), "l.k = r.k", memory_rows=40, block_rows=10)
        assert (run.total, run.share) == (0, 1.0)


def test_wrong_workloads_are_refused() -> None:
    with pytest.raises(InputError, match="in ascending order"):
        workload([2.0, 1.0], [1.0])
    with pytest.raises(InputError, match="a workload with two tables; got 4"):
        play("shj", workloads.chain(rows=100, domain=10), "l.a = r.a")
