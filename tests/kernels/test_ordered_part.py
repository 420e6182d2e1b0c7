"""Parts that are sorted once and probed by batches, against the definition; with rows gone, too."""

import itertools

import numpy as np
import pytest
from tests.kernels.inequalities import MEANING, check_pairs, check_summaries, table

from dovetail.kernels import two_inequalities
from dovetail.kernels.ordered_part import arrange, build, probe, without

OPERATORS = list(itertools.product(MEANING, MEANING))


@pytest.mark.parametrize("operators", OPERATORS)
@pytest.mark.parametrize("spread", [2, 2**62])
def test_agrees_with_the_definition(operators: tuple[int, int], spread: int) -> None:
    rng = np.random.default_rng(operators)
    for sizes in [(0, 0), (0, 3), (3, 0), (1, 70), (70, 1), (12, 90)]:
        left, right = ((rng.integers(-spread, spread, n), rng.integers(-spread, spread, n)) for n in sizes)
        good = table(left[0], right[0], operators[0]) & table(left[1], right[1], operators[1])
        part, probes = build(right, operators), arrange(left, operators)
        gone = rng.random(sizes[1]) < 0.4
        for kept, expected in ((part, good), (without(part, gone), good & ~gone)):
            join = probe(probes, kept, operators)
            check_summaries(two_inequalities, join, expected, rng.integers(-3, 4, sizes[1]))
            check_pairs(two_inequalities, join, expected, int(rng.integers(1, 100)))
