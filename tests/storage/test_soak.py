"""Ten thousand small micro-batches, with state in a directory or an object store: nothing grows.

`--log-cli-level info` shows the measurements while the test runs.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from tests.spark.streaming.window_cells import played, query
from tests.storage.s3_server import Faults, S3Server, s3_server

import dovetail
from dovetail.spark.streaming import reports, state_dir
from dovetail.storage import object_store
from dovetail.storage.local_cache import LocalCache

BATCHES, ROWS, WINDOW, CELLS = 10_000, 6, 60, 2
NOTED = 500  # micro-batches between two measurements
WARM = 2_000  # micro-batches after which nothing grows
CACHE_BYTES = 1 << 20

log = logging.getLogger(__name__)


class Look(NamedTuple):
    """Measurements after some micro-batches."""

    files: int
    stored: int  # bytes
    cached: int  # bytes, on the worker
    memory: int  # bytes, of this process without the server's objects
    requests: int = 0


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    for known in (state_dir._known_layouts, reports._last_listing):
        known.clear()
    monkeypatch.setattr(object_store, "FIRST_PAUSE_S", 0.001)


@pytest.mark.slow
def test_micro_batches_with_state_in_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "cache"
    kept = LocalCache(cache, CACHE_BYTES)
    monkeypatch.setattr(object_store, "worker_cache", lambda: kept)
    with s3_server() as server:
        server.faults = Faults(1, error=0.002, lose=0.002)
        looks = run(monkeypatch, server.uri("state"), lambda: look_into(server, cache))
        assert server.failed > 0
    assert_nothing_grows(looks)
    assert max(one.cached for one in looks) <= 2 * CACHE_BYTES
    steps = np.diff([one.requests for one in looks])
    assert max(steps[WARM // NOTED :]) <= 1.2 * max(steps[: WARM // NOTED]), looks


@pytest.mark.slow
def test_micro_batches_with_state_in_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_nothing_grows(run(monkeypatch, str(tmp_path), lambda: Look(*files_below(tmp_path), 0, resident_bytes())))


def run(monkeypatch: pytest.MonkeyPatch, place: str, look: Callable[[], Look]) -> list[Look]:
    """Run all micro-batches of a query with its state in `place`."""
    running = played(monkeypatch)
    rng, draw = random.Random(0), np.random.default_rng(0)
    rows = BATCHES * ROWS
    left, right = (
        pa.table({"k": draw.integers(0, 8, rows), "x": draw.random(rows), f"{side}_row": np.arange(rows)})
        for side in ("left", "right")
    )
    bounds = dovetail.window(rows=WINDOW)
    played_query = query((left, right), "l.k = r.k AND l.x < r.x", "inner", bounds, place, cells=CELLS)
    running.query = played_query
    looks, results = [], 0
    for number in range(BATCHES):
        chunk = list(range(number * ROWS, (number + 1) * ROWS))
        found, _ = played_query.micro_batch([(0, chunk), (1, chunk)], rng)
        results += found.total()
        if (number + 1) % NOTED == 0:
            looks.append(look())
            log.info("after %d micro-batches: %s", number + 1, looks[-1])
    assert results > BATCHES  # each row has some among the last rows of the other side
    return looks


def assert_nothing_grows(looks: list[Look]) -> None:
    warm, late = looks[: WARM // NOTED], looks[WARM // NOTED :]
    for name in ("files", "stored"):
        assert max(getattr(one, name) for one in late) <= 1.5 * max(getattr(one, name) for one in warm), looks
    assert late[-1].memory - warm[-1].memory < 32 << 20, looks


def look_into(server: S3Server, cache: Path) -> Look:
    with server.lock:
        found = [entry for name, entry in server.objects.items() if name.startswith("state/")]
        requests = sum(server.requests.values())
    stored = sum(len(entry.data) for entry in found)
    _, cached = files_below(cache)
    return Look(len(found), stored, cached, resident_bytes() - stored, requests)


def files_below(directory: Path) -> tuple[int, int]:
    sizes = [path.stat().st_size for path in directory.rglob("*") if path.is_file()]
    return len(sizes), sum(sizes)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
