"""A bounded queue between threads that either side can close."""

from __future__ import annotations

import threading
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class QueueClosedError(Exception):
    """Nobody is at the other end any more."""


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
        """Whoever waits, or comes later, gets a LeftError."""
        with self._changed:
            self._closed = True
            self._items.clear()
            self._changed.notify_all()
