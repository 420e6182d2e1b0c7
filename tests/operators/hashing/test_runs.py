"""Which pairs have been emitted, and how many may be missing: small worked examples."""

import numpy as np

from dovetail.core.rows import Side
from dovetail.operators.hashing.runs import ReportedPairs
from dovetail.storage.residence import NEVER

L, R = Side.LEFT, Side.RIGHT


def reported(known: ReportedPairs, left: tuple[int, int], right: tuple[int, int]) -> bool:
    """Whether a pair has been emitted; each row is (arrived, left)."""
    [out] = known.find_reported(0, *(np.array([tick]) for row in (left, right) for tick in row))
    return bool(out)


def test_rows_that_were_in_memory_together_have_met() -> None:
    known = ReportedPairs(1)
    assert reported(known, (1, 5), (4, 9))
    assert not reported(known, (1, 5), (6, 9))
    assert reported(known, (1, NEVER), (6, NEVER))


def test_a_task_has_found_one_in_memory_and_the_other_on_disk() -> None:
    known = ReportedPairs(1)
    known.met_disk(L, 0, 10)
    assert reported(known, (8, 12), (3, 5))
    assert reported(known, (8, NEVER), (3, 5))
    assert not reported(known, (11, 15), (3, 5))  # it arrived after the task
    assert not reported(known, (6, 9), (3, 5))  # it had been evicted
    assert not reported(known, (3, 5), (8, 12))  # this would take a task of the other side


def test_one_and_the_same_task_must_have_found_both() -> None:
    """As printed, the last task is compared with the other row, and the pair would be lost."""
    known = ReportedPairs(1)
    known.met_disk(L, 0, 4)
    known.met_disk(L, 0, 20)
    left, right = (2, 6), (8, 10)  # in memory at 4, before the other arrived; evicted long before 20
    assert not reported(known, left, right)


def test_what_may_be_missing_moves_with_the_rows() -> None:
    known = ReportedPairs(1)
    known.record_flush(R, 0, np.array([1, 1, 1]), 2)  # three right rows are evicted
    known.record_arrivals(L, np.array([2]))  # two left rows arrive at 3: six pairs may be missing
    known.record_flush(R, 0, np.array([1]), 4)  # this row was in memory with them
    assert (known.memory_pairs[L, 0], known.disk_pairs[0]) == (6, 0)
    known.record_flush(L, 0, np.array([3]), 5)  # counts rows on disk at its arrival, not now
    assert (known.memory_pairs[L, 0], known.disk_pairs[0]) == (3, 3)
    known.met_disk(L, 0, 6)
    known.record_flush(L, 0, np.array([3]), 7)  # the task has found its pairs
    assert (known.memory_pairs[L, 0], known.disk_pairs[0]) == (0, 3)
    known.met_on_disk(0)
    assert known.disk_pairs[0] == 0


def test_it_goes_on_from_its_state() -> None:
    known, again = ReportedPairs(1), ReportedPairs(1)
    known.record_flush(R, 0, np.array([1]), 2)
    known.met_disk(L, 0, 10)
    again.restore(known.to_json())
    assert reported(again, (8, 12), (3, 5))
    again.record_arrivals(L, np.array([1]))
    assert again.memory_pairs[L, 0] == 1
