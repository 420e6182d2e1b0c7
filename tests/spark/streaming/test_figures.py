"""The table of figures: it has everything that cells count, and the sources of former names."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from tests.spark.streaming.test_state import stream_join
from tests.spark.streaming.window_cells import played, query

from dovetail.core.figures import FIGURES, FORMER
from dovetail.core.metrics import Estimate
from dovetail.spark.streaming.reports import Totals
from dovetail.spark.streaming.stream_cell import StreamCell
from dovetail.spark.streaming.window_cell import WindowCell
from dovetail.storage.blocks import BlockStore
from dovetail.window import window


def test_what_is_counted_is_in_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = pa.table({"x": [1], "left_row": [0]}), pa.table({"x": [0], "right_row": [0]})
    run = query(tables, "l.x < r.x", "inner", window(rows=10), tmp_path, cells=1)
    played(monkeypatch).query, windowed = run, run.join
    within = WindowCell(windowed, windowed.labels[0], None)
    within.open(BlockStore(tmp_path))
    list(within.run(None, 0))
    counted = {"results", "cell_us", *within.figures(), *StreamCell(stream_join(tmp_path), None).figures()}
    counted |= Totals(1, Estimate(2.0, 1.0, 3.0, 0.95)).figures(limit_reached=False).keys()
    assert counted == FIGURES.keys()
    assert {part for parts in FORMER.values() for part in parts} < counted
    assert not FORMER.keys() & counted
