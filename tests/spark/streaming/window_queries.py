"""The queries of the SPO-Join paper on real data.

Q1  two streams, two inequalities, a window of rows       readings of a household's meter
Q2  a self-join, a band in two dimensions, by time        taxi pickups
Q3  a self-join, two inequalities, a window of rows       taxi rides
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from unittest import SkipTest

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from benchmarks.datasets import read_columns
from tests.spark.streaming.window_oracle import Holds, WindowOracle

import dovetail
from dovetail.window import Window


class Query(NamedTuple):
    left: pa.Table
    right: pa.Table
    on: str
    holds: Holds
    size: dict[str, Any]  # of the window, as keyword arguments of dovetail.window

    @property
    def window(self) -> Window:
        return dovetail.window(**self.size)

    def oracle(self) -> WindowOracle:
        window, times = self.window, None
        if window.on is not None:
            tables = zip((self.left, self.right), window.on, strict=True)
            left, right = (table[name].cast(pa.int64()).to_pylist() for table, name in tables)
            times = left, right
        return WindowOracle(window, "inner", self.holds, times)


def read(name: str, rows: int) -> Query:
    """A query over this many rows of each stream; skips the test if the data is missing."""
    try:
        return QUERIES[name](rows)
    except SkipTest as missing:
        pytest.skip(str(missing))


def _q1(rows: int) -> Query:
    readings = read_columns("household_power_2007h1", "active_kw", "reactive_kw").slice(0, 2 * rows)
    left, right = (readings.take(np.arange(first, 2 * rows, 2)) for first in (0, 1))
    return _inequalities(left, right, "active_kw", "reactive_kw", {"rows": 300, "slide": 50})


def _q2(rows: int) -> Query:
    rides = read_columns("nyc_taxi_2013_lonlat", "src", "pickup_ts", "pickup_lon", "pickup_lat")
    rides = rides.filter(pc.equal(rides["src"], "debs")).drop_columns("src").slice(0, rows)
    lon, lat = _column(rides, "pickup_lon"), _column(rides, "pickup_lat")
    return Query(
        _numbered(rides, "left_row"),
        _numbered(rides, "right_row"),
        "abs(l.pickup_lon - r.pickup_lon) < 0.03 AND abs(l.pickup_lat - r.pickup_lat) < 0.03",
        lambda a, b: (np.abs(lon[a] - lon[b]) < 0.03) & (np.abs(lat[a] - lat[b]) < 0.03),
        {"time": "2 minutes", "slide": "20 seconds", "on": "pickup_ts"},
    )


def _q3(rows: int) -> Query:
    rides = read_columns("nyc_green_2020", "trip_distance", "fare_amount").slice(100_000, rows)
    return _inequalities(rides, rides, "fare_amount", "trip_distance", {"rows": 400})


QUERIES: dict[str, Callable[[int], Query]] = {"Q1": _q1, "Q2": _q2, "Q3": _q3}


def _inequalities(left: pa.Table, right: pa.Table, less: str, more: str, size: dict[str, Any]) -> Query:
    x, y, v, w = _column(left, less), _column(left, more), _column(right, less), _column(right, more)
    on = f"l.{less} < r.{less} AND l.{more} > r.{more}"
    return Query(
        _numbered(left, "left_row"),
        _numbered(right, "right_row"),
        on,
        lambda a, b: (x[a] < v[b]) & (y[a] > w[b]),
        size,
    )


def _numbered(table: pa.Table, name: str) -> pa.Table:
    return table.append_column(name, pa.array(range(table.num_rows)))


def _column(table: pa.Table, name: str) -> Any:
    return np.asarray(table[name].cast(pa.float64()))  # NaN for null: comparisons with it are false
