"""Count and sum over a window of a hundred partners around each row."""

from __future__ import annotations

from benchmarks.nonequi.case import Case
from benchmarks.nonequi.cases.bands import line
from benchmarks.nonequi.question import Band, WindowSums

REACH = 5_000

CASES = [
    Case(
        "window", "count and sum over 100 partners", line, WindowSums((Band("l_x", "r_x", REACH),), "r_v"),
        bin_width=2 * REACH,
    )
]  # fmt: skip
