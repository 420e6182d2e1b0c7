"""Dates and timestamps as Spark reads them from text."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import NamedTuple

from dovetail.errors import ConditionError

INSTANT = re.compile(
    r"(?P<year>\d{4,6})(-(?P<month>\d{1,2})(-(?P<day>\d{1,2})"
    r"([T ](?P<hour>\d{1,2})(:(?P<minute>\d{1,2})(:(?P<second>\d{1,2})(\.(?P<fraction>\d{1,9}))?)?)?"
    r"\s*(?P<zone>Z|UTC|GMT|[+-]\d{1,2}(:?\d{2})?|[A-Za-z]+/[A-Za-z_/+-]+)?)?)?)?"
)
EPOCH = datetime(1970, 1, 1)


class Instant(NamedTuple):
    """A point in time as written: wall-clock time, nanoseconds beyond its microseconds, the zone if there is one."""

    local: datetime
    nanos: int
    zone: str | None

    def ticks(self, unit: str) -> int:
        micros = (self.local - EPOCH) // timedelta(microseconds=1)
        return micros * 1000 + self.nanos if unit == "ns" else micros


def parse_instant(text: str) -> Instant:
    """A date or timestamp as Spark reads it: '2020-01-01', '2020-01-01 10:30', '2020-01-01T10:30:00.5+01:00'."""
    found = INSTANT.fullmatch(text.strip())
    if not found:
        raise ConditionError(f"{text!r} is not a date or timestamp. Write it as '2020-01-31' or '2020-01-31 12:30:00'.")
    part = found.groupdict()
    nanos = int((part["fraction"] or "0").ljust(9, "0"))
    try:
        local = datetime(
            int(part["year"]),
            int(part["month"] or 1),
            int(part["day"] or 1),
            int(part["hour"] or 0),
            int(part["minute"] or 0),
            int(part["second"] or 0),
            nanos // 1000,
        )
    except ValueError as error:
        raise ConditionError(f"{text!r} is not a date or timestamp: {error}.") from error
    return Instant(local, nanos % 1000, _zone_name(part["zone"]))


def _zone_name(zone: str | None) -> str | None:
    if zone in ("Z", "GMT"):
        return "UTC"
    if zone and zone[0] in "+-":
        digits = zone[1:].replace(":", "")
        hours, minutes = (digits, "00") if len(digits) <= 2 else (digits[:-2], digits[-2:])
        return f"{zone[0]}{hours.zfill(2)}:{minutes}"
    return zone
