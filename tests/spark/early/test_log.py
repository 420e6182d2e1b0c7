"""The log of a progressive join in a directory that other users can write to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dovetail.errors import StateError
from dovetail.spark.early.files import WaveFiles
from dovetail.spark.early.log import DONE, FORMAT, PLAN, WaveLog
from dovetail.spark.session.shared_directory import SharedDirectory
from dovetail.storage.open_store import open_store


def read(place: Path, drawn: str, given: str) -> WaveLog | None:
    """A log with one block of rows, and one of results."""
    block: dict[str, Any] = {"rows": 1, "nbytes": 1, "checksum": 0}
    plan = {"blocks": [[0, {**block, "name": drawn}, [0]]], "cells": [0], "weights": [1.0], "seed": 0}
    (place / PLAN).write_text(json.dumps({"format": FORMAT, "layout": {}, "scouts": None, "drawn": plan}))
    done = [{"values": [1.0], "block": {**block, "name": given}}]
    (place / DONE).write_text(json.dumps({"found": [], "done": done}))
    return WaveLog.read(WaveFiles(SharedDirectory(open_store(place))), {})


def test_blocks_are_in_its_directory(tmp_path: Path) -> None:
    assert read(tmp_path, "l-1.arrow", "results-1.arrow") is not None
    for name in ("../victim", "/etc/passwd", "..", "", "a/b.arrow"):
        with pytest.raises(StateError, match=r"is damaged: .* is not the name of a block"):
            read(tmp_path, name, "results-1.arrow")
        with pytest.raises(StateError, match=r"is damaged: .* is not the name of a block"):
            read(tmp_path, "l-1.arrow", name)
