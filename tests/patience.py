"""Tests wait for what has to come. Only what never comes is given up: even the busiest machine is not that slow."""

import threading
import time
from collections.abc import Callable

PATIENCE_S = 600.0


def wait_until(is_so: Callable[[], object], what: str = "this") -> None:
    """Ask again and again."""
    limit = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < limit, f"{what} has not come after {PATIENCE_S:.0f} seconds"
        time.sleep(0.01)


def wait_for_threads_to_end(prefix: str = "dovetail-") -> None:
    """A join that is left gives its threads half a second to end; on a busy machine they may need longer."""
    wait_until(
        lambda: not any(thread.name.startswith(prefix) for thread in threading.enumerate()),
        f"the end of threads named {prefix}…",
    )
