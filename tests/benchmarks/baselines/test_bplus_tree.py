import numpy as np
import pytest
from benchmarks.baselines.bplus_tree import BPlusTree
from benchmarks.baselines.predicates import OPERATORS
from benchmarks.baselines.work import Work
from tests.benchmarks.window_oracle import HOLDS, NAMES, VALUES, WIDTH
from tests.seed import seeded


@pytest.mark.parametrize("order", [3, 4, 16])
def test_insert_delete_probe(order: int) -> None:
    rng = seeded(order)
    tree, work = BPlusTree(order), Work()
    stored: list[tuple[float, int]] = []
    for step in range(900):
        # The tree grows, shrinks to nothing, and grows again.
        if stored and rng.random() < (0.3 if step < 300 or step > 650 else 0.9):
            entry = stored.pop(rng.randrange(len(stored)))
            assert tree.delete(*entry, work.counts)
            assert not tree.delete(*entry, work.counts)
        else:
            stored.append((rng.choice(VALUES), step))
            tree.insert(*stored[-1], work.counts)
        assert len(tree) == len(stored)
        if step % 50 == 0:
            keys, rows = tree.sorted(work.counts)
            assert list(zip(keys, rows, strict=True)) == sorted(stored)
            x = rng.choice(VALUES)
            for name in NAMES:
                found = tree.probe(OPERATORS[name], WIDTH, x, work.counts)
                assert sorted(found) == sorted(row for key, row in stored if HOLDS[name](x, key))


def test_height_and_comparisons_are_logarithmic() -> None:
    tree = BPlusTree(4)
    for row, key in enumerate(np.random.default_rng(0).random(4000)):
        work = Work()
        tree.insert(key, row, work.counts)
        assert work.comparisons <= 3 * (tree.height + 1)
    assert 5 <= tree.height <= 11


def test_empty() -> None:
    tree, work = BPlusTree(), Work()
    assert len(tree.probe(OPERATORS["!="], 0.0, 1.0, work.counts)) == 0
    assert not tree.delete(1.0, 0, work.counts)
    with pytest.raises(ValueError, match="order of at least 3"):
        BPlusTree(2)
