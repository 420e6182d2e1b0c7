"""The monitoring options of `dovetail join`."""

from __future__ import annotations

import os
import sys
import webbrowser
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from dovetail.monitoring.recording import Recording
from dovetail.monitoring.report import report as write_report
from dovetail.monitoring.server import watch
from dovetail.monitoring.terminal import show


class MonitorOptions(NamedTuple):
    """How a join is monitored while it runs, and reported afterwards."""

    live: bool
    watch: bool
    port: int
    record: Path | None
    report: Path | None

    @property
    def wanted(self) -> bool:
        return self.live or self.watch or self.record is not None or self.report is not None

    @contextmanager
    def recording(self) -> Iterator[Recording]:
        """A recording for those who look; what they see last is its end."""
        recording = Recording(self.record)
        try:
            with ExitStack() as stack:
                server = stack.enter_context(watch(recording, self.port)) if self.watch else None
                if server is not None:
                    announce(server.url)
                if self.live:
                    stack.enter_context(show(recording))
                yield recording
                if server is not None:
                    server.wait_for_readers()
        finally:
            if self.report is not None and recording.heading is not None:
                write_report(recording, self.report)


def announce(url: str) -> None:
    """Say where a page is, and open it where there is a screen."""
    sys.stderr.write(f"watch it at {url}\n")
    sys.stderr.flush()
    if sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")):
        webbrowser.open(url)
