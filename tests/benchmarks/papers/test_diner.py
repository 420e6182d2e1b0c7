"""The building blocks of DINER's experiments."""

import os
import tempfile

import numpy as np
import pytest
from benchmarks.papers.diner_runs import (
    DINER,
    OURS,
    TENTH,
    WHOLE,
    Contender,
    Setting,
    placed,
    run_of,
    share_in_bytes,
    skewed,
)
from benchmarks.papers.diner_stalls import disk

from benchmarks.papers import progressive_workloads


@pytest.fixture(autouse=True)
def no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many small blocks: only their number matters here."""
    if os.path.isdir("/dev/shm"):
        monkeypatch.setattr(tempfile, "tempdir", "/dev/shm")


def test_keys_are_placed_in_order() -> None:
    line = progressive_workloads.zipf_keys(1, (300, 300), 0)
    for before, after in zip(line.tables, placed(line).tables, strict=True):
        old, new = np.asarray(before["k"]), np.asarray(after["k"])
        assert (np.argsort(old, kind="stable") == np.argsort(new, kind="stable")).all()
        assert len(np.unique(old)) == len(np.unique(new))


def test_pages_cost_the_same_share_of_the_transmission_at_every_size() -> None:
    assert disk(WHOLE).pages_read_random == pytest.approx(1e-2)
    for setting in (TENTH, Setting(4000, blocks=20)):
        pages = 2 * setting.rows / setting.block_rows
        assert pages * disk(setting).pages_read_random / (1e-3 * setting.rows) == pytest.approx(0.4)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("contender", [DINER, pytest.param(OURS, marks=pytest.mark.slow)], ids=lambda c: c.operator)
def test_a_budget_in_bytes_holds_fewer_rows(contender: Contender) -> None:
    """Indexes and buffers count, so the share in bytes is slightly below that in rows."""
    setting = Setting(4000, blocks=20)
    line = skewed(1, 0, setting)
    assert 0.3 * run_of(contender, line, setting).share < share_in_bytes(contender, line, setting)
