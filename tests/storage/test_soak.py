"""Ten thousand small micro-batches with their state in an object store: objects, bytes and memory do not grow."""

from __future__ import annotations

import os
import random
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
NOTED = 500  # micro-batches between two looks
WARM = 2_000  # micro-batches after which nothing grows any more
CACHE_BYTES = 1 << 20


class Look(NamedTuple):
    """What there is at some time."""

    objects: int
    stored: int  # bytes
    cached: int  # bytes, on the worker
    memory: int  # bytes, of this process without the server's objects
    requests: int


def look(server: S3Server, cache: Path) -> Look:
    with server.lock:
        found = [entry for name, entry in server.objects.items() if name.startswith("state/")]
        requests = sum(server.requests.values())
    stored = sum(len(entry.data) for entry in found)
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    cached = sum(path.stat().st_size for path in cache.rglob("*") if path.is_file())
    return Look(len(found), stored, cached, resident - stored, requests)


@pytest.mark.slow
def test_ten_thousand_micro_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running = played(monkeypatch)
    cache = tmp_path / "cache"
    monkeypatch.setattr(object_store, "FIRST_PAUSE_S", 0.001)
    kept = LocalCache(cache, CACHE_BYTES)
    monkeypatch.setattr(object_store, "worker_cache", lambda: kept)
    for known in (state_dir._known_layouts, reports._last_listing):
        known.clear()
    rng, draw = random.Random(0), np.random.default_rng(0)
    rows = BATCHES * ROWS
    tables = tuple(
        pa.table({"k": draw.integers(0, 8, rows), "x": draw.random(rows), f"{side}_row": np.arange(rows)})
        for side in ("left", "right")
    )
    with s3_server() as server:
        server.faults = Faults(1, error=0.002, lose=0.002)
        bounds = dovetail.window(rows=WINDOW)
        place = server.uri("state")
        played_query = query(tables, "l.k = r.k AND l.x < r.x", "inner", bounds, place, cells=CELLS)  # type: ignore[arg-type]
        running.query = played_query
        looks, results = [], 0
        for number in range(BATCHES):
            chunk = list(range(number * ROWS, (number + 1) * ROWS))
            found, _ = played_query.micro_batch([(0, chunk), (1, chunk)], rng)
            results += found.total()
            if (number + 1) % NOTED == 0:
                looks.append(look(server, cache))
        assert server.failed > 0
    assert results > BATCHES  # of each row, some among the last ones of the other side
    warm, late = looks[: WARM // NOTED], looks[WARM // NOTED :]
    for name in ("objects", "stored"):
        assert max(getattr(one, name) for one in late) <= 1.5 * max(getattr(one, name) for one in warm), looks
    assert max(one.cached for one in looks) <= 2 * CACHE_BYTES
    assert late[-1].memory - warm[-1].memory < 32 << 20, looks
    steps = np.diff([one.requests for one in looks])
    assert max(steps[WARM // NOTED :]) <= 1.2 * max(steps[: WARM // NOTED]), looks
