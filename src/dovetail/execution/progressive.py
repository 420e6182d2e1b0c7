"""A running progressive join: its steps, and a handle on it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any, Generic, TypeVar

from dovetail.errors import PlanError
from dovetail.execution.parallel import ParallelJoin
from dovetail.operators.protocol import JoinOperator
from dovetail.storage.budget import parse_bytes

S = TypeVar("S")


class ProgressiveJoin(Iterator[S], Generic[S]):
    """Steps as they are found. Breaking out of the loop, `close` and the end of a `with` free memory and files."""

    def __init__(self, steps: Generator[S, None, None], operator: JoinOperator | ParallelJoin) -> None:
        self._steps = steps
        self._operator = operator

    def __next__(self) -> S:
        return next(self._steps)

    def memory(self, memory: str | int | None) -> None:
        """Resize the memory budget: an increase takes effect at once, a decrease when memory is freed. None: no
        limit."""
        resize: Callable[[int | None], None] | None = getattr(self._operator, "resize", None)
        if resize is None:
            raise PlanError(f"the memory of {self._operator.name} is fixed; only pmj in one worker can be resized.")
        resize(None if memory is None else parse_bytes(memory))

    def wrapped(self, wrap: Callable[[Iterator[S]], Iterator[S]]) -> ProgressiveJoin[S]:
        """The same join, with its steps passed through something."""
        return ProgressiveJoin(_all_of(wrap, self), self._operator)

    def close(self) -> None:
        self._steps.close()

    def __enter__(self) -> ProgressiveJoin[S]:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _all_of(wrap: Callable[[Iterator[S]], Iterator[S]], running: ProgressiveJoin[S]) -> Generator[S, None, None]:
    try:
        yield from wrap(running)
    finally:
        running.close()
