"""Waits for conditions in tests, with a timeout that even a very busy machine does not reach."""

import threading
import time
from collections.abc import Callable

PATIENCE_S = 600.0


def wait_until(is_so: Callable[[], object], what: str = "this") -> None:
    """Poll until the condition is true."""
    limit = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < limit, f"{what} has not come after {PATIENCE_S:.0f} seconds"
        time.sleep(0.01)


def wait_for_threads_to_end(prefix: str = "dovetail-") -> None:
    """A join that is abandoned gives its threads half a second to end; on a busy machine they may need longer."""
    wait_until(
        lambda: not any(thread.name.startswith(prefix) for thread in threading.enumerate()),
        f"the end of threads named {prefix}…",
    )
