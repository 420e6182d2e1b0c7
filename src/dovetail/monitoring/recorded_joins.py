"""Progressive joins that report to a recording, and that display themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dovetail.core.rows import Side
from dovetail.execution.in_process import ProgressiveJoin, Step, join_progressively
from dovetail.execution.monitor import JoinMonitor
from dovetail.execution.steps import limit_steps
from dovetail.execution.stop_rule import Until
from dovetail.monitoring.recording import Recording
from dovetail.monitoring.screens import DELAY_S, in_notebook
from dovetail.monitoring.snapshot import Heading
from dovetail.planning.plan import JoinPlan
from dovetail.sources.parquet_files import ParquetSource
from dovetail.sources.reader import Retry


def join_recorded(
    plan: JoinPlan,
    inputs: Sequence[Any],
    suffix: str,
    wait_ms: float,
    retry: Retry | None,
    recording: Recording,
    aggregates: Mapping[str, str] | None = None,
    limit: int | None = None,
    until: Until | None = None,
) -> Iterator[Step]:
    """A progressive join that reports to a recording."""
    heading = heading_of(plan, inputs)
    monitor = JoinMonitor(recording.tell, heading.join)
    until = until or Until()
    running = join_progressively(plan, inputs, suffix, wait_ms, retry, monitor, aggregates, left_s=lambda: until.left_s)
    return running.wrapped(lambda steps: recording.of(limit_steps(steps, limit, until), heading))


def heading_of(plan: JoinPlan, inputs: Sequence[Any]) -> Heading:
    """The heading of a join in process. Files are shown by name, tables by side."""
    names = plan.graph.aliases  # the caller has named the inputs
    if len(inputs) == len(Side):
        names = tuple(_input_name(rows, side.name.lower()) for side, rows in zip(Side, inputs, strict=True))
    return Heading(plan.graph.text, names, plan.operator.name, plan.explain(), memory_bytes=plan.memory_bytes)


def _input_name(rows: Any, alias: str) -> str:
    """A short name: a file without its directory, a dataset without its server."""
    name = getattr(rows, "name", alias)
    quoted = re.search(r"'([^']+)'$", name)
    return quoted[1] if quoted else Path(name).stem if isinstance(rows, ParquetSource) else name


def record_steps(steps: Iterator[Step], heading: Heading, recording: Recording | None) -> Iterator[Step]:
    """Records joins from their steps, if nothing else is known of them."""
    return steps if recording is None else recording.of(JoinMonitor(recording.tell).steps(steps), heading)


def wants_screen(progress: bool | None) -> bool:
    """Whether a progressive join displays itself: in a notebook, or on request."""
    return in_notebook() if progress is None else progress


def show_steps(steps: Iterator[Step], recording: Recording, progress: bool | None) -> Iterator[Step]:
    """The steps. The recording is displayed meanwhile, immediately if requested."""
    from dovetail.monitoring.terminal import draw  # rich is slow to import

    delay_s = 0.0 if progress else DELAY_S

    def shown(inner: Iterator[Step]) -> Iterator[Step]:
        with draw(recording, delay_s=delay_s):
            yield from inner

    return steps.wrapped(shown) if isinstance(steps, ProgressiveJoin) else shown(steps)
