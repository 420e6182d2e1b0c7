"""Displays for a running join, on a terminal or in a notebook cell, and the thread that redraws them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

REDRAW_S = 0.25
LINE_S = 10.0  # between lines of plain text
DELAY_S = 1.0  # a shorter run shows nothing


@contextmanager
def redraw_in_thread(draw: Callable[[], object], name: str) -> Iterator[None]:
    """Redraw in a separate thread, so that it continues while the run is busy in a kernel."""
    over = threading.Event()

    def redraw() -> None:
        while not over.wait(REDRAW_S):
            draw()

    thread = threading.Thread(target=copy_context().run, args=(redraw,), name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def live_display(content: RenderableType, stream: TextIO, console: Console | None, *, transient: bool = False) -> Live:
    """Content that rich redraws in place on each refresh."""
    from rich.console import Console  # slow to import: only if it is displayed
    from rich.live import Live

    return Live(
        content,
        console=console or Console(file=stream),
        auto_refresh=False,
        transient=transient,
        redirect_stdout=False,  # other output stays where it is
        redirect_stderr=False,
    )


def in_notebook() -> bool:
    """Whether this runs in an IPython kernel. Does not import IPython."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


class CellOutput:
    """A replaceable output of a notebook cell. Uses IPython's display, since rich would need widgets."""

    def __init__(self) -> None:
        self._handle: Any = None

    @property
    def is_shown(self) -> bool:
        return self._handle is not None

    def show(self, bundle: Mapping[str, str]) -> None:
        if self._handle is None:
            self._handle = sys.modules["IPython"].display.display(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)
