"""Two streams of files, joined on two inequalities while they arrive; all rows are in the window."""

from __future__ import annotations

from benchmarks.nonequi.case import Case
from benchmarks.nonequi.cases.two_inequalities import TERMS, generate
from benchmarks.nonequi.question import Streams

CASES = [Case("streams", "two streams by two inequalities", generate, Streams(TERMS, files=4))]
