import numpy as np
import pytest
from tests.seed import generator

from dovetail.kernels.searching import expand, find_hashes, find_sorted


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("spread", [3, 2**62])
@pytest.mark.parametrize("size", [0, 1, 2, 500])
def test_find_hashes(seed: int, spread: int, size: int) -> None:
    rng = generator(seed)
    resident = np.sort(rng.integers(-spread, spread, size))
    probing = np.concatenate([rng.integers(-spread, spread, 100), resident[:50], [-(2**63), 2**63 - 1]])
    starts, counts = find_hashes(resident, probing)
    first = np.searchsorted(resident, probing, side="left")
    found = counts > 0
    assert counts.tolist() == (np.searchsorted(resident, probing, side="right") - first).tolist()
    assert starts[found].tolist() == first[found].tolist()


@pytest.mark.parametrize("seed", range(30))
def test_find_sorted(seed: int) -> None:
    rng = generator(seed)
    resident = np.sort(rng.integers(-20, 20, rng.integers(0, 60)))
    probing = rng.integers(-25, 25, rng.integers(0, 60))
    if seed % 2:
        probing = np.sort(probing)
    starts, counts = find_sorted(resident, probing)
    assert starts.tolist() == np.searchsorted(resident, probing).tolist()
    assert counts.tolist() == [int((resident == word).sum()) for word in probing]


def test_ranges_become_pairs() -> None:
    starts, counts = np.array([5, 0, 9]), np.array([2, 0, 3])
    probing, positions = expand(starts, counts, 0, 3, 5)
    assert probing.tolist() == [0, 0, 2, 2, 2]
    assert positions.tolist() == [5, 6, 9, 10, 11]
