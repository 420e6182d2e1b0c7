from collections import defaultdict

import numpy as np
import pytest

from dovetail.storage.hash_table import HashTable


@pytest.mark.parametrize("distinct", [1, 7, 3000, 10**9])
@pytest.mark.parametrize("most_pairs", [1, 50, 10**6])
def test_finds_what_a_dictionary_finds(distinct: int, most_pairs: int) -> None:
    rng = np.random.default_rng(distinct)
    table = HashTable()
    rows: dict[int, list[int]] = defaultdict(list)
    size = 60 if distinct == 1 else 400
    for _ in range(6):
        hashes = rng.integers(-distinct, distinct, size)
        for row, h in enumerate(hashes.tolist(), start=len(table)):
            rows[h].append(row)
        table.insert(hashes)
        probes = rng.integers(-distinct, distinct, 50)
        pieces = list(table.find(probes, most_pairs))
        found = [pair for mine, theirs in pieces for pair in zip(mine.tolist(), theirs.tolist(), strict=True)]
        assert all(len(mine) <= max(most_pairs, len(probes)) for mine, _ in pieces)
        assert sorted(found) == sorted((i, row) for i, h in enumerate(probes.tolist()) for row in rows[h])
    assert len(table) == 6 * size


def test_an_empty_table_and_an_empty_probe() -> None:
    table = HashTable()
    assert list(table.find(np.array([1, 2]), 10)) == []
    table.insert(np.empty(0, np.int64))
    assert list(table.find(np.empty(0, np.int64), 10)) == []
