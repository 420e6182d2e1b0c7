"""The building blocks of RPJ's experiments."""

import pytest
from benchmarks.papers.rpj_runs import online

ROWS = 6000
BLOCK = 30  # rows that arrive at once


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("flush", "like"), [("largest", "xjoin"), ("adaptive", "hmj")])
def test_rpj_with_the_policy_of_another_finds_as_much(flush: str, like: str) -> None:
    ours = online("rpj", "reverse", 1, ROWS, block_rows=BLOCK, flush=flush, n_flush=0.0)
    assert ours.share == online(like, "reverse", 1, ROWS, block_rows=BLOCK).share
