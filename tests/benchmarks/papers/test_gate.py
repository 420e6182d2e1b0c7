"""The gate fails when an operator is broken on purpose: each fault changes a verdict."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from benchmarks.papers.registry import Run
from benchmarks.papers.scale import SCALES
from benchmarks.papers.suite import compare, read_expected
from benchmarks.papers.verdicts import Finding

from benchmarks.papers import diner_skew, pmj, rpj
from dovetail.core.metrics import Estimate
from dovetail.core.rows import Side
from dovetail.estimation.estimate import Estimator
from dovetail.operators.blockwise.regions import Regions
from dovetail.operators.hashing import flushing

ONE_SEED = replace(SCALES["ci"], seed_count=1)


def changes(run: Run) -> list[str]:
    findings: list[Finding] = list(run(ONE_SEED))
    return compare(findings, read_expected(SCALES["ci"]))


@pytest.mark.slow
def test_diner_that_evicts_its_best_region(monkeypatch: pytest.MonkeyPatch) -> None:
    benefits = Regions.benefits
    monkeypatch.setattr(Regions, "benefits", lambda self: [(-gain, rank, r) for gain, rank, r in benefits(self)])
    assert any(change.startswith("C-DN-5b") for change in changes(diner_skew.share_of_bound))


def random_flush(held: flushing.ResidentCounts, need: int) -> list[flushing.Victim]:
    """Whole partitions of either side, in any order."""
    rng = np.random.default_rng(int(held.rows.sum()))

    def victims() -> Iterator[flushing.Victim]:
        missing = need
        for place in rng.permutation(held.rows.size):
            side, j = divmod(int(place), held.rows.shape[1])
            rows = min(int(held.rows[side, j]), missing)
            if rows:
                yield flushing.Victim(Side(side), j, rows)
                missing -= rows

    return list(victims())


def test_rpj_that_flushes_at_random(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpj, "optimal_flush", random_flush)
    assert changes(rpj.worked_example) == [
        "C-RP-10: contradicted, expected reproduced.",
        "C-RP-10: does not hold any more: exactly.",
    ]


@pytest.mark.slow
def test_rpj_that_flushes_at_random_delivers_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flushing, "optimal_flush", random_flush)
    assert {"C-RP-1", "C-RP-2"} <= {change.partition(":")[0] for change in changes(rpj.flushing)}


@pytest.mark.slow
def test_pmj_with_half_of_its_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    estimate = Estimator.estimate

    def half(*given: object, **named: object) -> Estimate | None:
        found = estimate(*given, **named)  # type: ignore[arg-type]
        if found is None:
            return None
        low, high = ((found.total + end) / 2 for end in (found.low, found.high))
        return found._replace(low=low, high=high)

    monkeypatch.setattr(Estimator, "estimate", half)
    assert any(change.startswith("C-PM-8") for change in changes(pmj.estimates))
