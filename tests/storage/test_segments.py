"""Data derived from mapped segments is cached for the next micro-batch, as long as the segments are unchanged."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from dovetail.storage.blocks import Block
from dovetail.storage.segments import SegmentStore

ROWS = pa.record_batch({"a": [1, 2, 3]})


@pytest.fixture
def block(tmp_path: Path) -> Block:
    store = SegmentStore(tmp_path, 1)
    block = store.write(ROWS, "l")
    store.read(block)
    store.keep_made([block.name], "made")
    return block


def test_found_in_the_next_micro_batch(tmp_path: Path, block: Block) -> None:
    assert SegmentStore(tmp_path, 2).find_made([block.name]) == "made"
    assert SegmentStore(tmp_path / "other", 2).find_made([block.name]) is None


def test_not_found_when_a_segment_has_changed(tmp_path: Path, block: Block) -> None:
    os.utime(tmp_path / block.name, ns=(1, 1))
    assert SegmentStore(tmp_path, 2).find_made([block.name]) is None


def test_not_found_when_a_segment_is_missing(tmp_path: Path, block: Block) -> None:
    (tmp_path / block.name).unlink()
    assert SegmentStore(tmp_path, 2).find_made([block.name]) is None


def test_let_go_with_the_segments(tmp_path: Path, block: Block) -> None:
    store = SegmentStore(tmp_path, 3)
    assert store.sweep(1, [block.name]) == 0
    assert store.find_made([block.name]) == "made"
    store.sweep(2, [])
    assert store.find_made([block.name]) is None


def test_nothing_is_kept_where_memory_is_limited(tmp_path: Path) -> None:
    store = SegmentStore(tmp_path, 1, stay_mapped=False)
    block = store.write(ROWS, "l")
    store.read(block)
    store.keep_made([block.name], "made")
    assert store.find_made([block.name]) is None
