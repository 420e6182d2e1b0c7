from typing import Any

import numpy as np
import pytest
from tests.seed import generator, seeded

from dovetail.storage.ordered_index import OrderedIndex


def keys_of(values: list[Any]) -> Any:
    return np.array(values, np.int64) if isinstance(values[0], int) else np.array(values, object)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("strings", [False, True])
def test_behaves_like_a_sorted_list(seed: int, strings: bool) -> None:
    rng = seeded(seed)
    index = OrderedIndex()
    model: list[tuple[Any, int]] = []  # (key, row), in key order, ties by row

    def key() -> Any:
        number = rng.randrange(-6, 6)
        return f"k{number + 6:02d}" if strings else number

    row = 0
    for _ in range(40):
        if rng.random() < 0.6:
            batch = [key() for _ in range(rng.choice([1, 2, 5, 30]))]
            rows = np.arange(row, row + len(batch))
            index.insert(keys_of(batch), rows)
            model += zip(batch, rows.tolist(), strict=True)
            row += len(batch)
        elif model:
            gone = rng.sample(model, rng.randrange(1, len(model) + 1))
            index.delete(np.array([r for _, r in gone]))
            model = [entry for entry in model if entry not in gone]
        model.sort()
        assert len(index) == len(model)
        count = rng.randrange(0, 10)
        assert index.smallest(count)[1].tolist() == [r for _, r in model[:count]]
        assert index.largest(count)[1].tolist() == [r for _, r in model[::-1][:count]]
        assert index.scan()[1].tolist() == [r for _, r in model]
        probes = [key() for _ in range(4)]
        wide = [key() for _ in range(4)]
        low_closed, high_closed = rng.random() < 0.5, rng.random() < 0.5
        low = keys_of(probes) if rng.random() < 0.8 else None
        high = keys_of(wide) if low is None or rng.random() < 0.8 else None
        mine, theirs = index.lookup(low, high, low_closed, high_closed)
        expected = [
            (i, r)
            for i in range(4)
            for k, r in model
            if (low is None or (probes[i] <= k if low_closed else probes[i] < k))
            and (high is None or (k <= wide[i] if high_closed else k < wide[i]))
        ]
        assert sorted(zip(mine.tolist(), theirs.tolist(), strict=True)) == sorted(expected)


@pytest.mark.parametrize("seed", range(6))
def test_rows_can_be_numbered_anew(seed: int) -> None:
    rng = generator(seed)
    index = OrderedIndex()
    keys = rng.integers(0, 5, 40)
    for start in range(0, 40, 7):
        rows = np.arange(start, min(start + 7, 40))
        index.insert(keys[rows], rows)
    index.delete(np.array([3, 4]))
    stay = rng.random(40) < 0.6
    stay[[3, 4]] = False
    index.renumber(np.where(stay, np.cumsum(stay) - 1, -1))
    kept = keys[stay]
    index.insert(np.array([2]), np.array([len(kept)]))
    expected = sorted(zip([*kept.tolist(), 2], range(len(kept) + 1), strict=True))
    assert list(zip(*(column.tolist() for column in index.scan()), strict=True)) == expected
    assert len(index) == len(expected)
