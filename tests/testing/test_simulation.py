import pyarrow as pa
import pytest

import dovetail
from dovetail.errors import BudgetError, InputError, PlanError

LEFT = pa.table({"k": [1, 2, 3, 2], "a": ["p", "q", "r", "s"]})
RIGHT = pa.table({"k": [2, 3, 3], "b": [0.5, 1.5, 2.5]})
PAIRS = {(1, 0), (3, 0), (2, 1), (2, 2)}


def test_a_script_decides_what_arrives_when() -> None:
    run = dovetail.testing.simulate("shj", LEFT, RIGHT, "l.k = r.k", [("l", 3), ("stall", 4), ("r", 2), ("end", "l")])
    assert run.pairs[:2] == [(1, 0), (2, 1)]
    assert set(run.pairs) == PAIRS
    assert set(run.phases) == {"arriving"}
    assert run.online == len(run.pairs) == run.counters.results == run.counters["results"]
    assert run.counters.rows_received == 7


def test_left_over_work_is_done_while_sources_stall_and_at_the_end() -> None:
    rows = pa.table({"k": list(range(12)) * 2})
    run = dovetail.testing.simulate(
        "nested_loop",
        rows,
        rows,
        on="l.k = r.k",
        schedule=[("l", 2), ("r", 2), ("l", 22), ("r", 10), ("stall", 12), ("r", 12)],
        memory_rows=8,
        block_rows=2,
    )
    assert len(run.pairs) == len(set(run.pairs)) == 48
    assert set(run.phases) == {"arriving", "reactive", "cleanup"}
    assert run.online == run.phases.index("cleanup")
    assert 0 < run.counters.peak_rows_in_memory <= 8
    assert run.counters.peak_buffer_rows <= 2
    assert run.counters.pages_written == 24
    assert run.counters.pages_read_sequential > run.counters.pages_read_random > 0


def test_what_the_script_leaves_arrives_in_turn() -> None:
    run = dovetail.testing.simulate("shj", LEFT, RIGHT, "l.k = r.k")
    assert set(run.pairs) == PAIRS
    assert run.pairs[0] == (1, 0)  # l0 r0 l1 gives the first match


def test_rows_left_at_an_end_arrive_before_it() -> None:
    run = dovetail.testing.simulate(
        "shj", LEFT, RIGHT, "l.k = r.k", [("end", "l"), ("r", 1)], memory_rows=5, block_rows=1
    )
    assert set(run.pairs) == PAIRS  # memory for the left rows and one more; right rows need not be kept


def test_a_run_can_be_repeated() -> None:
    def run() -> list[tuple[int, int]]:
        return dovetail.testing.simulate(
            "nested_loop", LEFT, RIGHT, "l.k <= r.k", [("r", 3)], memory_rows=4, block_rows=1
        ).pairs

    assert run() == run()


def test_a_hash_join_that_does_not_fit_says_so() -> None:
    with pytest.raises(BudgetError, match=r"budget of 3 rows is exceeded.*shj does not spill"):
        dovetail.testing.simulate("shj", LEFT, RIGHT, "l.k = r.k", memory_rows=3, block_rows=1)


def test_too_small_a_budget_is_refused_with_the_smallest_that_works() -> None:
    with pytest.raises(BudgetError, match="Give 40 rows or more, or smaller blocks"):
        dovetail.testing.simulate("nested_loop", LEFT, RIGHT, "l.k = r.k", memory_rows=39, block_rows=10)


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ([("x", 1)], "is not an entry of a schedule"),
        ([("l", "3")], "is not an entry of a schedule"),
        ([("end", "l"), ("l", 1)], "after its end"),
    ],
)
def test_a_wrong_schedule_is_refused(schedule: list[tuple[object, ...]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        dovetail.testing.simulate("shj", LEFT, RIGHT, "l.k = r.k", schedule)


def test_an_operator_that_cannot_run_the_condition_says_why() -> None:
    with pytest.raises(PlanError, match=r"'shj' cannot run l\.k < r\.k: a hash join needs at least one equality"):
        dovetail.testing.simulate("shj", LEFT, RIGHT, "l.k < r.k")
    with pytest.raises(InputError, match="no algorithm is called 'sjh'"):
        dovetail.testing.simulate("sjh", LEFT, RIGHT, "l.k = r.k")
