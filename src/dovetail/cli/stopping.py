"""Treats SIGTERM and SIGHUP like Ctrl-C, to clean up when Kubernetes, systemd or `timeout` end the process."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

STOPPING = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def stopped_in_order() -> Iterator[None]:
    """Let these signals interrupt the code in this block, which then cleans up.

    By default they end a process immediately. An ignored signal (`nohup`) stays ignored. The exit code is that of a
    process ended by the signal.
    """
    is_main = threading.current_thread() is threading.main_thread()  # only the main thread may set handlers
    handled = [number for number in STOPPING if is_main and signal.getsignal(number) is signal.SIG_DFL]
    came: list[int] = []

    def stop(number: int, frame: Any) -> None:
        for each in handled:
            signal.signal(each, signal.SIG_IGN)  # `timeout` sends it twice: to the process, and to its group
        came.append(number)
        raise KeyboardInterrupt

    for number in handled:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in handled:
            signal.signal(number, signal.SIG_DFL)
        if came:
            sys.exit(128 + came[0])
