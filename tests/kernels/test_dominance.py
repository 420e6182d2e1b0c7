import numpy as np
import pytest
from tests.seed import generator

from dovetail.kernels.dominance import count_dominating, smallest_dominating, sum_dominating


@pytest.mark.parametrize("size", [1, 63, 64, 65, 4095, 4096, 4097, 9000])
def test_over_several_words_and_blocks(size: int) -> None:
    """Left rows query positions around every border; the last 200 additions are made one by one."""
    rng = generator(size)
    added = rng.permutation(size).astype(np.int32)
    borders = np.arange(0, size, 64)[:, None] + np.arange(-1, 2)
    start = rng.permutation(np.clip(np.append(borders.ravel(), [size - 1, size]), 0, size))[:200].astype(np.int32)
    reach = np.sort(size - rng.integers(0, min(size, 200) + 1, len(start))).astype(np.int32)
    values, ranks = rng.integers(-9, 9, size), rng.permutation(size).astype(np.int32)
    partners = [np.flatnonzero(added[low:] >= first) + low for first, low in zip(start, reach, strict=True)]

    counts = np.empty(len(start), np.int64)
    total = count_dominating(start, reach, added, counts)
    assert counts.tolist() == [len(some) for some in partners]
    assert total == counts.sum()
    assert count_dominating(start, reach, added, np.empty(0, np.int64)) == total
    assert sum_dominating(start, reach, added, values).tolist() == [values[some].sum() for some in partners]
    assert smallest_dominating(start, reach, added, ranks, np.int32(size)).tolist() == [
        min(ranks[some].tolist(), default=size) for some in partners
    ]
