"""Work on several cores: kernels and Arrow's functions run outside of the interpreter's lock.

How many threads a join may use is a setting of the calling context, one unless `allow_threads` says more: operators
inside of a Spark task have one core, and calls in process set what their `threads=` says.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar, cast

from dovetail.core.queue import BoundedQueue, QueueClosedError
from dovetail.errors import InputError

T = TypeVar("T")
S = TypeVar("S")

_allowed: ContextVar[int] = ContextVar("dovetail_threads", default=1)


def read_threads(threads: Any) -> int:
    """What `threads=` says; all cores that this process may use, if it is None."""
    if threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if type(threads) is int and threads >= 1:
        return threads
    raise InputError(f"threads is a number of threads, 1 or more; got {threads!r}. Leave it out for all cores.")


@contextmanager
def allow_threads(threads: int) -> Iterator[None]:
    """So many threads for what is called inside."""
    token = _allowed.set(threads)
    try:
        yield
    finally:
        _allowed.reset(token)


def allowed_threads() -> int:
    return _allowed.get()


def both(first: Callable[[], T], second: Callable[[], S]) -> tuple[T, S]:
    """The results of two functions, computed side by side if there are two threads."""
    if allowed_threads() == 1:
        return first(), second()
    given, found = in_threads([first, second])
    return cast(T, given), cast(S, found)


def in_threads(work: Sequence[Callable[[], T]]) -> list[T]:
    """The results of some functions, which share the threads."""
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


def _run_beside(work: Sequence[Callable[[], None]]) -> None:
    """One of them in this thread, in a context of its own like all others."""
    threads = [_start(one) for one in work[1:]]
    copy_context().run(work[0])
    for thread in threads:
        thread.join()


def _start(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=copy_context().run, args=(work,), name="dovetail", daemon=True)
    thread.start()
    return thread


class _Failed:
    def __init__(self, error: BaseException) -> None:
        self.error = error


class _Done:
    """A task has given all its items."""


def in_order(tasks: Sequence[Callable[[], Iterator[T]]], threads: int, ahead: int) -> Iterator[T]:
    """The items of all tasks, one task after the other, while later tasks run already.

    A task waits when `ahead` of its items have not been taken. Closing the iterator stops the threads.
    """
    threads = min(threads, len(tasks))
    if threads <= 1:
        for task in tasks:
            yield from task()
        return
    queues: list[BoundedQueue[T | _Done | _Failed]] = [BoundedQueue(ahead) for _ in tasks]
    waiting = iter(range(len(tasks)))
    lock = threading.Lock()

    def run() -> None:
        _allowed.set(1)
        with suppress(QueueClosedError):
            while True:
                with lock:
                    number = next(waiting, None)
                if number is None:
                    return
                try:
                    for item in tasks[number]():
                        queues[number].put(item)
                        del item
                    queues[number].put(_Done())
                except QueueClosedError:
                    raise
                except BaseException as error:
                    queues[number].put(_Failed(error))

    started = [_start(run) for _ in range(threads)]
    try:
        for queue in queues:
            while not isinstance(item := queue.take(), _Done):
                if isinstance(item, _Failed):
                    raise item.error
                yield item
                del item
    finally:
        for queue in queues:
            queue.close()
        for thread in started:
            thread.join()
