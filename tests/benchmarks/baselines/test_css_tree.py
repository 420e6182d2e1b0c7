import numpy as np
import pytest
from benchmarks.baselines.css_tree import CssTree
from benchmarks.baselines.predicates import OPERATORS
from benchmarks.baselines.work import Work
from tests.benchmarks.window_oracle import HOLDS, NAMES, VALUES, WIDTH
from tests.seed import generator


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 16, 17, 100])
@pytest.mark.parametrize("order", [2, 4, 5])
def test_probe(size: int, order: int) -> None:
    rng = generator(size)
    keys = np.sort(rng.choice(VALUES, size))
    tree, work = CssTree(keys, rng.permutation(size), order), Work()
    for x in (*VALUES, -9.0, 99.0):
        for name in NAMES:
            found = tree.probe(OPERATORS[name], WIDTH, x, work.counts)
            assert sorted(found) == sorted(r for k, r in zip(keys, tree.rows, strict=True) if HOLDS[name](x, k))


def test_children_are_found_by_arithmetic() -> None:
    tree = CssTree(np.arange(20.0), np.arange(20), order=4)
    assert tree.depth == 2
    assert [tree.width_at(depth) for depth in (0, 1, 2)] == [1, 2, 5]
    levels = np.split(tree.directory.entries, tree.directory.ends[:-1])
    assert [list(level) for level in levels[1:]] == [[3, 7, 11, 15, 19], [15, 19]]
