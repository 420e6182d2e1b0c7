"""Invariants of a spilling hash join after every event."""

from __future__ import annotations

import numpy as np

from dovetail.core.rows import Side
from dovetail.operators.hashing.runs import HashRun, read_run
from dovetail.operators.hashing.spilling import SpillingHash


def check_invariants(operator: SpillingHash) -> None:
    known, arrivals = operator._reported, operator._arrivals
    assert operator._budget.limit is None or operator._budget.used <= operator._budget.limit
    assert (known.memory_pairs >= 0).all()
    assert (known.disk_pairs >= 0).all()
    if not any(arrivals.ended) and arrivals.total.any(axis=1).all():
        assert np.isclose(arrivals.probabilities().sum(), 1)
    ticks: dict[str, set[int]] = {"arrived": set(), "left": set()}
    for side in Side:
        sizes = operator._residents[side].sizes
        assert sizes.sum() == len(operator._residents[side])
        if not any(arrivals.ended):  # after an end, rows without further partners are dropped
            assert (arrivals.total[side] == sizes + known.spilled[side]).all()
        for j, matches in enumerate(operator._matches):
            rows = 0
            for match in matches:
                if (run := match.run_of(side)) is not None:
                    rows += run.rows
                    _check_run(operator, side, run, ticks)
            assert rows == known.spilled[side, j]
            if len(matches) <= 1:
                assert known.disk_pairs[j] == 0
    assert not ticks["arrived"] & ticks["left"]  # every tick belongs to one event
    if operator.paired:
        _check_pairs(operator)


def _check_run(operator: SpillingHash, side: Side, run: HashRun, ticks: dict[str, set[int]]) -> None:
    pages = read_run(operator._store, run, operator._schemas[side], 0, run.pages)
    assert [len(page.hashes) for page in pages] == np.diff(run.starts).tolist()
    assert [page.hashes[0] for page in pages] == run.firsts.tolist()
    hashes = np.concatenate([page.hashes for page in pages])
    assert (np.diff(hashes) >= 0).all()
    for page in pages:
        assert (page.arrived < page.left).all()
        ticks["arrived"].update(page.arrived.tolist())
        ticks["left"].update(page.left.tolist())


def _check_pairs(operator: SpillingHash) -> None:
    """A flush has a single tick, and a merge combines whole flushes, so both sides have the same ticks."""
    for matches in operator._matches:
        seen: set[int] = set()
        for match in matches:
            ticks: set[int] = set()
            for side in Side:
                if (run := match.run_of(side)) is not None:
                    pages = read_run(operator._store, run, operator._schemas[side], 0, run.pages)
                    ticks.update(tick for page in pages for tick in page.left.tolist())
            assert not ticks & seen  # a flush is in only one match, on both sides
            seen |= ticks
