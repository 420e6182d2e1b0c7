import numpy as np
import pytest
from tests.seed import generator

from dovetail.kernels import three_inequalities, two_inequalities
from dovetail.kernels.cross import GREATER, LESS_EQUAL
from dovetail.kernels.three_inequalities import BLOCK, ThreeInequalities

OPERATORS = (LESS_EQUAL, GREATER)


def random_join(seed: int, left: int, right: int, domain: int) -> tuple[ThreeInequalities, np.ndarray]:
    """A random join, and its pairs."""
    rng = generator(seed)
    lefts, rights = ([rng.integers(-domain, domain, size) for _ in range(3)] for size in (left, right))
    probes = two_inequalities.arrange((lefts[0], lefts[1]), OPERATORS)
    two = two_inequalities.probe(probes, two_inequalities.build((rights[0], rights[1]), OPERATORS), OPERATORS)
    pairs = (lefts[0][:, None] <= rights[0]) & (lefts[1][:, None] > rights[1]) & (lefts[2][:, None] <= rights[2])
    return three_inequalities.prepare(two, lefts[2], rights[2]), pairs


@pytest.mark.one_in(8)
@pytest.mark.parametrize("sizes", [(0, 0), (0, 3), (3, 0), (1, 1), (7, 5), (60, 90), (BLOCK, BLOCK), (700, 900)])
@pytest.mark.parametrize("domain", [1, 3, 10_000])
def test_as_the_definition(sizes: tuple[int, int], domain: int) -> None:
    join, pairs = random_join(sum(sizes), *sizes, domain)
    rng = np.random.default_rng(1)
    numbers, codes = rng.integers(-9, 9, sizes[1]), rng.integers(-9, 9, sizes[1])
    assert three_inequalities.row_counts(join).tolist() == pairs.sum(1).tolist()
    assert three_inequalities.count(join) == pairs.sum()
    assert three_inequalities.row_exists(join).tolist() == pairs.any(1).tolist()
    assert three_inequalities.row_sums(join, numbers).tolist() == (pairs * numbers).sum(1).tolist()
    assert np.allclose(three_inequalities.row_sums(join, numbers / 7), (pairs * numbers / 7).sum(1))
    partners = three_inequalities.smallest_partners(join, codes)
    for row, partner in enumerate(partners.tolist()):
        smallest = min(codes[pairs[row]].tolist(), default=None)
        assert (None if partner < 0 else codes[partner]) == smallest
        assert partner < 0 or pairs[row, partner]


def test_pairs_by_chunks() -> None:
    join, pairs = random_join(5, 40, 50, 20)
    chunks = list(three_inequalities.pairs(join, 16))
    assert max(len(lefts) for lefts, _ in chunks) <= 16
    found = sorted((int(a), int(b)) for lefts, rights in chunks for a, b in zip(lefts, rights, strict=True))
    assert found == [(int(a), int(b)) for a, b in np.argwhere(pairs)]


def test_infinities_do_not_spread() -> None:
    join, pairs = random_join(6, 300, 2 * BLOCK, 50)
    values = np.zeros(2 * BLOCK)
    values[7] = np.inf
    sums = three_inequalities.row_sums(join, values)
    assert (np.isinf(sums) == pairs[:, 7]).all()
