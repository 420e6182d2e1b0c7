"""Band joins of inputs larger than memory: the progressive merge join, its strict relatives, and DuckDB.

    l.x BETWEEN r.x - width AND r.x + width

The merge joins run the same code and differ in when they may emit results. Rows of both sides arrive in turn, in
batches of 4,096; memory is a share of both inputs. DuckDB has its tables in memory and no limit. Seconds are CPU
seconds of this process; computing the answers, which depend on every pair, is not included. Workers are timed by the
clock, and their results are whole rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import dovetail
from benchmarks.band_join import Answer, Tables, answer
from dovetail.condition import parse
from dovetail.condition.graph import Graph
from dovetail.core.metrics import Counters
from dovetail.execution.driver import Driver
from dovetail.execution.in_process import STREAM_ROWS, in_turn
from dovetail.operators.pmj.pmj import Pmj
from dovetail.operators.protocol import Workspace
from dovetail.storage.blocks import BlockStore
from dovetail.storage.budget import Budget

FIRST = 100  # results

Contender = Callable[[Tables], tuple[Answer | int, float]]


def _joined(tables: Tables, share: float, strictness: str, most: int | None) -> tuple[Answer, float]:
    """All pairs, or the first ones, and the time needed."""
    counters = Counters()
    memory = int(share * (tables.left.nbytes + tables.right.nbytes))
    width = repr(tables.width)
    condition = parse(f"l.x BETWEEN r.x - {width} AND r.x + {width}", tables.left.schema, tables.right.schema)
    blocks = BlockStore(counters=counters)
    workspace = Workspace(Graph.of(condition), Budget(memory, "bytes", counters), blocks, STREAM_ROWS, counters)
    workspace.parameters["strictness"] = strictness
    found = Answer(0, 0)
    seconds, started = 0.0, time.process_time()
    try:
        for _, pairs in Driver(Pmj(workspace), workspace).run(in_turn((tables.left, tables.right))):
            assert pairs.is_complete
            seconds += time.process_time() - started
            rows = [batch.column("row").to_numpy() for batch in (pairs.left, pairs.right)]
            new = answer([(rows[0][pairs.left_rows], rows[1][pairs.right_rows])])
            found = Answer(found.pairs + new.pairs, (found.digest + new.digest) % 2**64)
            if most is not None and found.pairs >= most:
                break
            started = time.process_time()
        else:
            seconds += time.process_time() - started
    finally:
        blocks.close()
    return found, seconds


def pmj(tables: Tables) -> tuple[Answer, float]:
    return _joined(tables, 0.1, "progressive", None)


def semi_strict(tables: Tables) -> tuple[Answer, float]:
    return _joined(tables, 0.1, "semi_strict", None)


def strict(tables: Tables) -> tuple[Answer, float]:
    return _joined(tables, 0.1, "strict", None)


def _by_workers(workers: int) -> Contender:
    def contender(tables: Tables) -> tuple[int, float]:
        memory, width = int(0.1 * (tables.left.nbytes + tables.right.nbytes)), repr(tables.width)
        on = f"l.x BETWEEN r.x - {width} AND r.x + {width}"
        before, pairs = time.perf_counter(), 0
        for step in dovetail.progressive(
            tables.left, tables.right, on, algorithm="pmj", memory=memory, workers=workers
        ):
            pairs += step.batch.num_rows
        return pairs, time.perf_counter() - before

    return contender


one_worker, two_workers = _by_workers(1), _by_workers(2)


def _first(share: float, strictness: str) -> Contender:
    def contender(tables: Tables) -> tuple[int, float]:
        found, seconds = _joined(tables, share, strictness, FIRST)
        return min(found.pairs, FIRST), seconds

    return contender


pmj_1, semi_1 = _first(0.01, "progressive"), _first(0.01, "semi_strict")
pmj_5, semi_5 = _first(0.05, "progressive"), _first(0.05, "semi_strict")
pmj_10, semi_10 = _first(0.1, "progressive"), _first(0.1, "semi_strict")
pmj_50, semi_50 = _first(0.5, "progressive"), _first(0.5, "semi_strict")
