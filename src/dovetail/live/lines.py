"""A moment as a line of JSON, and back. What is read may come from anywhere: numbers are numbers, text is text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dovetail.estimate import Estimate
from dovetail.metrics import Moment, SourceState


def to_line(second: float, moment: Moment) -> dict[str, Any]:
    line: dict[str, Any] = {
        "t": round(second, 3),
        "phase": moment.phase,
        "found": dict(moment.found),
        "seconds": {phase: round(seconds, 3) for phase, seconds in moment.seconds.items()},
        "sources": [[source.name, source.rows, source.state] for source in moment.sources],
    }
    if moment.resident_rows is not None:
        line["resident_rows"] = moment.resident_rows
    if moment.spilled_rows is not None:
        line["spilled_rows"] = moment.spilled_rows
    if moment.objection is not None:
        line["objection"] = moment.objection
    if moment.estimate is not None:
        line["estimate"] = [float(value) for value in moment.estimate]
    return line


def from_line(line: Mapping[str, Any]) -> tuple[float, Moment]:
    """Raises ValueError, TypeError or KeyError where it is none."""
    estimate, objection = line.get("estimate"), line.get("objection")
    moment = Moment(
        str(line["phase"]),
        {str(phase): int(count) for phase, count in line.get("found", {}).items()},
        {str(phase): _number(seconds) for phase, seconds in line.get("seconds", {}).items()},
        _count(line.get("resident_rows")),
        _count(line.get("spilled_rows")),
        tuple(SourceState(str(name), int(rows), str(state)) for name, rows, state in line.get("sources", ())),
        None if estimate is None else Estimate(*map(_number, estimate)),
        None if objection is None else str(objection),
    )
    return _number(line["t"]), moment


def _count(value: Any) -> int | None:
    return None if value is None else int(value)


def _number(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{value} is no number")
    return number
