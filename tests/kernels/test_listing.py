import numpy as np

from dovetail.kernels.listing import apart


def test_only_pairs_from_different_sources_are_left() -> None:
    rng = np.random.default_rng(0)
    lefts, rights = (rng.integers(0, 50, 300).astype(np.int32) for _ in range(2))
    left_sources, right_sources = (rng.integers(0, 3, 50).astype(np.int16) for _ in range(2))
    wanted = left_sources[lefts] != right_sources[rights]
    expected = lefts[wanted].tolist(), rights[wanted].tolist()
    found = apart(lefts, rights, left_sources, right_sources)
    assert (found[0].tolist(), found[1].tolist()) == expected
