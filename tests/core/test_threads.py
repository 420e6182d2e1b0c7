"""Work on several threads: order, errors, and threads that end."""

import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from dovetail.core.threads import FEW_TASKS, allow_threads, allowed_threads, both, in_order, in_threads, read_threads
from dovetail.errors import InputError


def of_dovetail() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "dovetail"]


def numbers(start: int, end: int) -> Iterator[int]:
    yield from range(start, end)


def ranges(tasks: int, each: int) -> list[Callable[[], Iterator[int]]]:
    return [partial(numbers, i * each, (i + 1) * each) for i in range(tasks)]


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("ahead", [1, 3])
def test_items_come_in_the_order_of_the_tasks(threads: int, ahead: int) -> None:
    assert list(in_order(ranges(7, 10), threads, ahead)) == list(range(70))
    assert list(in_order([], threads, ahead)) == []


def test_a_task_waits_until_its_items_are_taken() -> None:
    made: list[int] = []

    def make(first: int) -> Iterator[int]:
        for i in range(first, first + 100):
            made.append(i)
            yield i

    items = in_order([partial(make, 0), partial(make, 100)], 2, 2)
    assert next(items) == 0
    assert list(items) == list(range(1, 200))
    assert sorted(made) == list(range(200))


def test_leaving_early_ends_the_threads() -> None:
    items = in_order(ranges(50, 1000), 3, 1)
    assert [next(items) for _ in range(3)] == [0, 1, 2]
    items.close()  # type: ignore[attr-defined]
    assert not of_dovetail()


def test_an_error_arrives_where_its_items_would_have() -> None:
    def fail() -> Iterator[int]:
        yield 100
        raise ValueError("no more")

    items = in_order([partial(numbers, 0, 3), fail, partial(numbers, 3, 6)], 2, 1)
    assert [next(items) for _ in range(4)] == [0, 1, 2, 100]
    with pytest.raises(ValueError, match="no more"):
        next(items)
    assert not of_dovetail()


def test_tasks_are_made_while_others_run_and_not_far_ahead() -> None:
    made: list[int] = []

    def tasks() -> Iterator[partial[Iterator[int]]]:
        for first in range(0, 1000, 10):
            made.append(first)
            yield partial(numbers, first, first + 10)

    items = in_order(tasks(), 3, 1)
    assert next(items) == 0
    assert len(made) <= 3 * (FEW_TASKS + 1) + 1
    assert list(items) == list(range(1, 1000))
    assert not of_dovetail()


def test_tasks_that_cannot_be_made_raise_after_those_before_them() -> None:
    def tasks() -> Iterator[partial[Iterator[int]]]:
        yield partial(numbers, 0, 3)
        raise ValueError("no more tasks")

    items = in_order(tasks(), 2, 1)
    assert [next(items) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="no more tasks"):
        next(items)
    assert not of_dovetail()


def test_results_of_several_functions() -> None:
    with allow_threads(3):
        assert in_threads([partial(int, str(i)) for i in range(10)]) == list(range(10))
        assert both(lambda: "a", lambda: 2) == ("a", 2)
        with pytest.raises(ZeroDivisionError):
            in_threads([lambda: 1, lambda: 1 // 0])
    assert allowed_threads() == 1


def test_threads_are_shared_out() -> None:
    with allow_threads(4):
        assert in_threads([allowed_threads, allowed_threads]) == [2, 2]
        assert allowed_threads() == 4


def test_what_threads_says() -> None:
    assert read_threads(None) >= 1
    assert read_threads(3) == 3
    for wrong in (0, -1, 1.5, "2", True):
        with pytest.raises(InputError, match="threads is a number of threads"):
            read_threads(wrong)
