"""Runs work on several cores, and has a bounded queue between threads that either side can close.

Kernels and Arrow's functions release the GIL.

The number of threads that a join may use is a setting of the calling context. It is one unless `allow_threads` says
more: operators inside a Spark task have one core, and calls in process set `threads=`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import partial
from itertools import pairwise
from typing import Any, Generic, TypeVar, cast

from dovetail.core.processors import default_threads
from dovetail.errors import InputError

T = TypeVar("T")
S = TypeVar("S")

RANGE = 1 << 16  # rows that are worth a thread
FEW_TASKS = 2  # tasks per thread whose items have not been taken

_allowed: ContextVar[int] = ContextVar("dovetail_threads", default=1)


def read_threads(threads: Any) -> int:
    """The number that `threads=` gives; for None, the number this process may use."""
    if threads is None:
        return default_threads()
    if type(threads) is int and threads >= 1:
        return threads
    raise InputError(f"threads is a number of threads, 1 or more; got {threads!r}. Leave it out for all cores.")


@contextmanager
def allow_threads(threads: int) -> Iterator[None]:
    """Set the number of threads for the code inside."""
    token = _allowed.set(threads)
    try:
        yield
    finally:
        _allowed.reset(token)


def allowed_threads() -> int:
    return _allowed.get()


def both(first: Callable[[], T], second: Callable[[], S]) -> tuple[T, S]:
    """The results of two functions, computed in parallel if there are two threads."""
    if allowed_threads() == 1:
        return first(), second()
    given, found = in_threads([first, second])
    return cast(T, given), cast(S, found)


def in_threads(work: Sequence[Callable[[], T]]) -> list[T]:
    """The results of several functions, which share the threads."""
    threads = min(allowed_threads(), len(work))
    if threads <= 1:
        return [one() for one in work]
    results: list[Any] = [None] * len(work)
    errors: list[BaseException] = []
    tasks = iter(enumerate(work))
    lock = threading.Lock()
    each = max(1, allowed_threads() // len(work))

    def run() -> None:
        _allowed.set(each)
        while not errors:
            with lock:
                number, one = next(tasks, (-1, None))
            if one is None:
                return
            try:
                results[number] = one()
            except BaseException as error:
                errors.append(error)

    _run_beside([run] * threads)
    if errors:
        raise errors[0]
    return results


def ranges(rows: int) -> list[tuple[int, int]]:
    """Consecutive ranges of rows, one per thread; fewer if they would be short."""
    parts = max(1, min(allowed_threads(), rows // RANGE))
    return list(pairwise(rows * part // parts for part in range(parts + 1)))


def in_ranges(work: Callable[[int, int], T], rows: int) -> list[T]:
    """The results of a function over these ranges."""
    return in_threads([partial(work, *range_) for range_ in ranges(rows)])


def _run_beside(work: Sequence[Callable[[], None]]) -> None:
    """Run one function in this thread, in a context of its own like all others."""
    threads = [_start(one) for one in work[1:]]
    copy_context().run(work[0])
    for thread in threads:
        thread.join()


def _start(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=copy_context().run, args=(work,), name="dovetail", daemon=True)
    thread.start()
    return thread


class QueueClosedError(Exception):
    """The queue was closed by the other end."""


class BoundedQueue(Generic[T]):
    def __init__(self, most: int) -> None:
        self._most = most
        self._items: deque[T] = deque()
        self._changed = threading.Condition()
        self._closed = False

    def put(self, item: T) -> None:
        """Wait until the queue has a free slot."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or len(self._items) < self._most)
            if self._closed:
                raise QueueClosedError
            self._items.append(item)
            self._changed.notify_all()

    def take(self) -> T:
        """Wait for an item."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or bool(self._items))
            if self._closed:
                raise QueueClosedError
            self._changed.notify_all()
            return self._items.popleft()

    def close(self) -> None:
        """Close the queue: waiting and later calls raise QueueClosedError."""
        with self._changed:
            self._closed = True
            self._items.clear()
            self._changed.notify_all()


class _Failed:
    def __init__(self, error: BaseException) -> None:
        self.error = error


class _Done:
    """A task has produced all its items, or there are no more tasks."""


_Items = BoundedQueue["T | _Done | _Failed"]


def in_order(tasks: Iterable[Callable[[], Iterator[T]]], threads: int, ahead: int) -> Iterator[T]:
    """The items of all tasks in order, while later tasks already run.

    A task waits while `ahead` of its items have not been taken. Tasks of an iterator are created one at a time, by the
    threads that run them, and only shortly before they are needed. Closing the iterator stops the threads.
    """
    known = len(tasks) if isinstance(tasks, Sequence) else None
    threads = threads if known is None else min(threads, known)
    if threads <= 1:
        for task in tasks:
            yield from task()
        return
    waiting = iter(tasks)
    lock = threading.Lock()  # guards the waiting tasks
    turns: BoundedQueue[_Items[T] | _Done] = BoundedQueue(FEW_TASKS * threads if known is None else known + threads)
    begun: list[_Items[T]] = []

    def begin() -> tuple[Callable[[], Iterator[T]], _Items[T]] | None:
        """The next task, and the queue for its items."""
        with lock:
            items: _Items[T] = BoundedQueue(max(1, ahead))
            try:
                task = next(waiting, None)
            except BaseException as error:
                items.put(_Failed(error))
                turns.put(items)
                return None
            turns.put(_Done() if task is None else items)
            begun.append(items)
            return None if task is None else (task, items)

    def run() -> None:
        _allowed.set(1)
        with suppress(QueueClosedError):
            while (next_one := begin()) is not None:
                task, items = next_one
                try:
                    for item in task():
                        items.put(item)
                        del item
                    items.put(_Done())
                except QueueClosedError:
                    raise
                except BaseException as error:
                    items.put(_Failed(error))

    started = [_start(run) for _ in range(threads)]
    try:
        while not isinstance(items := turns.take(), _Done):
            while not isinstance(item := items.take(), _Done):
                if isinstance(item, _Failed):
                    raise item.error
                yield item
                del item
    finally:
        turns.close()
        with lock:
            for items in begun:
                items.close()
        for thread in started:
            thread.join()
