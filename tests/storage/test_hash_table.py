from collections import defaultdict

import numpy as np
import pytest
from tests.seed import generator

from dovetail.kernels.hashing import hash_codes
from dovetail.storage.hash_table import CompactTable, HashTable


@pytest.mark.parametrize("distinct", [1, 7, 3000, 10**9])
@pytest.mark.parametrize("most_pairs", [1, 50, 10**6])
def test_finds_what_a_dictionary_finds(distinct: int, most_pairs: int) -> None:
    rng = generator(distinct)
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


@pytest.mark.parametrize("distinct", [1, 7, 3000, 10**9])
@pytest.mark.parametrize("most_pairs", [1, 50, 10**6])
def test_a_compact_table_finds_all_that_a_dictionary_finds_and_little_more(distinct: int, most_pairs: int) -> None:
    rng = generator(distinct)
    table = CompactTable()
    held = np.empty(0, np.int64)
    wrong = right = 0
    for _ in range(12):
        hashes = hash_codes(rng.integers(-distinct, distinct, 60 if distinct == 1 else 400))
        table.insert(hashes, lambda held=held: np.array_split(held, 3))
        held = np.concatenate([held, hashes])
        gone = rng.random(len(held)) < rng.choice([0.0, 0.2, 0.9])
        kept = held[~gone]
        table.remove(gone, lambda kept=kept: [kept])
        held = kept
        assert len(table) == len(held)
        probes = hash_codes(rng.integers(-distinct, distinct, 50))
        pieces = list(table.find(probes, most_pairs))
        assert all(len(mine) <= max(most_pairs, len(probes)) for mine, _ in pieces)
        found = {pair for mine, theirs in pieces for pair in zip(mine.tolist(), theirs.tolist(), strict=True)}
        assert len(found) == sum(len(mine) for mine, _ in pieces)
        expected = {(i, int(row)) for i, h in enumerate(probes) for row in np.flatnonzero(held == h)}
        assert expected <= found
        wrong, right = wrong + len(found - expected), right + len(found)
    assert wrong <= 0.02 * right + 30


def test_a_compact_table_takes_few_bytes_per_row() -> None:
    rng = np.random.default_rng(0)
    table = CompactTable()
    held = np.empty(0, np.int64)
    for _ in range(100):
        hashes = hash_codes(rng.integers(0, 10**9, 500))
        assert table.nbytes_with(500) >= table.nbytes
        expected = table.nbytes_with(500)
        table.insert(hashes, lambda held=held: [held])
        held = np.concatenate([held, hashes])
        assert table.nbytes == expected
    assert table.nbytes < 7.5 * len(table)
    assert table.nbytes >= 5 * len(table)
    table.remove(np.arange(len(held)) >= 100, lambda: [held[:100]])
    assert table.nbytes < 3000  # frees memory that it does not need
