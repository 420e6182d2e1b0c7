from datetime import timedelta
from typing import Any

import pytest

import dovetail
from dovetail.errors import InputError
from dovetail.window import Window


def test_windows_of_rows() -> None:
    assert dovetail.window(rows=1000) == Window(1000, 100)
    assert dovetail.window(rows=1000, slide=250, scope="per_stream") == Window(1000, 250, None, "per_stream")
    assert dovetail.window(rows=5).slide == 1


@pytest.mark.parametrize("time", ["60 minutes", "1 hour", " 3600 Seconds ", timedelta(hours=1)])
def test_windows_of_time(time: Any) -> None:
    found = dovetail.window(time=time, slide="10 minutes", on="ts")
    assert found == Window(3_600_000_000, 600_000_000, ("ts", "ts"), delay=600_000_000)
    assert dovetail.window(time=time, on="ts", delay="0 seconds").delay == 0
    assert dovetail.window(time=time, on=("sent", "received")).on == ("sent", "received")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "either rows=… or time=…"),
        ({"rows": 3, "time": "1 hour"}, "either rows=… or time=…"),
        ({"rows": 0}, "positive number"),
        ({"rows": 2.5}, "positive number"),
        ({"rows": 10, "slide": 11}, "longer than the window"),
        ({"rows": 10, "on": "ts"}, "on= applies to windows of time"),
        ({"rows": 10, "scope": "each"}, "scope is"),
        ({"rows": 10, "delay": "1 hour"}, "delay= applies to windows of time"),
        ({"rows": 10, "idle": "1 hour"}, "idle= applies to windows of time"),
        ({"time": "1 hour", "on": "ts", "idle": "0 seconds"}, "longer than 0"),
        ({"time": "1 hour"}, "on='ts'"),
        ({"time": "soon", "on": "ts"}, "such as '10 minutes'"),
        ({"time": "5 parsecs", "on": "ts"}, "such as '10 minutes'"),
        ({"time": timedelta(0), "on": "ts"}, "longer than 0"),
        ({"time": 60, "on": "ts"}, "such as '10 minutes'"),
    ],
)
def test_what_is_wrong_is_said(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        dovetail.window(**given)


HOUR = 3_600_000_000
MINUTE = 60_000_000


@pytest.mark.parametrize(
    ("given", "watermarks", "newest", "horizon"),
    [
        ({}, (None, None), (9 * HOUR, 5 * HOUR), 9 * HOUR - 10 * MINUTE),
        ({"delay": "1 hour"}, (7 * HOUR, 7 * HOUR), (9 * HOUR, 5 * HOUR), 8 * HOUR),
        ({}, (HOUR, 2 * HOUR), (9 * HOUR, 9 * HOUR), 7 * HOUR),
        ({}, (HOUR, 2 * HOUR), (5 * HOUR, 9 * HOUR), 4 * HOUR),
        ({}, (HOUR, None), (9 * HOUR, 5 * HOUR), 8 * HOUR),
        ({}, (HOUR, None), (5 * HOUR, 9 * HOUR), 4 * HOUR),
        ({}, (None, 0), (9 * HOUR, 9 * HOUR), 9 * HOUR - 10 * MINUTE),
    ],
)
def test_when_rows_are_late(given: dict[str, Any], watermarks: Any, newest: tuple[int, int], horizon: int) -> None:
    bounds = dovetail.window(time="1 hour", slide="10 minutes", on="ts", **given).with_watermarks(watermarks)
    assert bounds.horizon(newest) == horizon


def test_rows_that_are_counted_have_no_watermark() -> None:
    rows = dovetail.window(rows=10)
    assert rows.with_watermarks((HOUR, HOUR)) == rows


def test_delays_say_where_they_come_from() -> None:
    default = dovetail.window(time="1 hour", slide="10 minutes", on=("sent", "received"))
    assert default.delay_lines == (
        "0:10:00 behind the newest row of both inputs: a slide, because no input has a watermark",
    )
    given = dovetail.window(time="1 hour", on="ts", delay="5 minutes").with_watermarks((HOUR, HOUR))
    assert given.delay_lines == ("0:05:00 behind the newest row of both inputs: as given",)
    assert default.with_watermarks((None, 2 * HOUR)).delay_lines == (
        "0:10:00 for l.sent: a slide, it has no watermark",
        "2:00:00 for r.received: its watermark",
    )
