"""Simulated recordings, without a join."""

from __future__ import annotations

from pathlib import Path

from dovetail.core.metrics import Estimate, Moment, SourceState
from dovetail.monitoring.recording import Recording
from dovetail.monitoring.snapshot import DONE, RUNNING, Heading

HOSTILE = "<script>alert('x')</script>\"'&<img src=x onerror=alert(1)>"


class Clock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def recorded(
    path: Path | None = None,
    *,
    names: tuple[str, str] = ("orders", "payments"),
    outcome: str = DONE,
    error: str = "",
    estimates: bool = True,
    on: str = "l.id = r.order_id",
) -> Recording:
    """Ten seconds: rows arrive, both sources stall and the join keeps working, then it waits, rows arrive and end."""
    clock = Clock()
    recording = Recording(path, clock=clock)
    recording.begin(Heading(on, names, "diner", f"join       inner\ncondition  {on}\noperator   diner: asked for"))
    found = {"arriving": 0, "reactive": 0, "cleanup": 0}
    spent = dict.fromkeys(("arriving", "reactive", "waiting", "cleanup"), 0.0)
    rows = [0, 0]
    for tenth in range(1, 101):
        clock.now = tenth / 10
        phase = "arriving" if tenth <= 30 else "reactive" if tenth <= 50 else "waiting" if tenth <= 60 else "arriving"
        phase = "cleanup" if tenth > 90 else phase
        spent[phase] += 0.1
        if phase != "waiting":
            found[phase] += 40
        if phase == "arriving":
            rows = [rows[0] + 100, rows[1] + 120]
        state = {"arriving": "arriving", "cleanup": "ended"}.get(phase, "stalled")
        held = sum(rows) if phase != "cleanup" else 0
        estimate = Estimate(3600.0, 3600.0 - 9 * (100 - tenth), 3600.0 + 9 * (100 - tenth), 0.95) if estimates else None
        recording.tell(
            Moment(
                phase,
                dict(found),
                dict(spent),
                min(held, 5000),
                max(0, held - 5000),
                tuple(SourceState(name, count, state) for name, count in zip(names, rows, strict=True)),
                estimate if tenth > 5 else None,
            )
        )
        recording.note()
    if outcome != RUNNING:
        recording.finish(outcome, error)
    return recording
