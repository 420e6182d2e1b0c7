"""Handles Ctrl-C while Spark calls Python for a join.

At that time the thread that receives the signal is using the connection to Java. PySpark's own handler would call Java
and break that connection. So another thread cancels the jobs, and the interrupt is raised when Python has answered.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from pyspark.sql import SparkSession


@contextmanager
def safe_interrupts(spark: SparkSession) -> Iterator[None]:
    """Raises KeyboardInterrupt at the end if there was an interrupt."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    interrupted = threading.Event()

    def cancel(number: int, frame: FrameType | None) -> None:
        interrupted.set()
        threading.Thread(target=spark.sparkContext.cancelAllJobs, daemon=True).start()

    signal.signal(signal.SIGINT, cancel)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if interrupted.is_set():
            raise KeyboardInterrupt
