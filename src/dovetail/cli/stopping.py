"""SIGTERM and SIGHUP as Ctrl-C: the command line leaves nothing behind when Kubernetes, systemd or `timeout` end it."""

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
    """Let these signals interrupt what runs in here, which then puts in order what it has begun.

    By default they end a process on the spot. One that is ignored (`nohup`) stays so. The exit code is that of a
    process that was ended by the signal.
    """
    is_main = threading.current_thread() is threading.main_thread()  # no other may set handlers
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
