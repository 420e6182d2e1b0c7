"""The window slides with the position in RN: contiguous, around the expected place, each table loaded once."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from dovetail.diag.ring import FOREVER, KeyedRows, Met, Repeats, Ring, RingTable, Stay, zigzag


def tables(rows: int, size: int, keep: int = 1) -> Iterator[RingTable]:
    """Keys 0, 1, 2, … that are their own hashes; a filter keeps every `keep`-th."""
    kept = np.arange(0, rows, keep)
    low = 0
    for start in range(0, len(kept), size):
        positions = kept[start : start + size]
        high = rows if start + size >= len(kept) else int(positions[-1]) + 1
        yield RingTable(pa.record_batch({"k": positions}), positions, positions, low, high)
        low = high


def slide(ring: Ring, target: int, now: int = 0) -> list[RingTable]:
    return list(ring.advance(target, now))


def test_the_search_goes_outwards_from_the_middle() -> None:
    assert list(zigzag(2, 5)) == [2, 3, 1, 4, 0]
    assert list(zigzag(0, 3)) == [0, 1, 2]
    assert list(zigzag(2, 3)) == [2, 1, 0]
    assert list(zigzag(0, 0)) == []


@pytest.mark.parametrize("size", range(1, 8))
def test_tables_are_in_a_row_around_the_expected_place(size: int) -> None:
    ring = Ring(size, tables(100, 7))
    loaded = [table.low for table in slide(ring, 0)]
    assert loaded == [7 * k for k in range((size + 1) // 2)]  # the first is the middle one
    last = -(-100 // 7) - 1
    for target in range(100):
        loaded += [table.low for table in slide(ring, target)]
        numbers = [table.low // 7 for table in ring.resident]
        assert numbers == list(range(numbers[0], numbers[-1] + 1))
        middle = target // 7
        ahead = min(last, middle + (size + 1) // 2 - 1)
        assert numbers[-1] == ahead
        assert numbers[0] == max(0, ahead - size + 1)
        assert ring.reach >= 100 if middle == last else ring.reach == 7 * (middle + 1)
        hits, missing = ring.search(np.array([target]))
        assert len(hits) == 1
        assert not len(missing)
    assert loaded == [7 * k for k in range(last + 1)]


@pytest.mark.parametrize(("ones", "many"), [(100, 190), (100, 400), (190, 100), (97, 13), (7, 7), (1, 50)])
def test_each_row_finds_its_expected_place_in_the_middle(ones: int, many: int) -> None:
    """For any ratio of the sizes, integer or not, above or below one."""
    ring = Ring(3, tables(ones, 7))
    loaded: list[int] = []
    looked = 0
    for start in range(0, many, 30):  # batches
        positions = np.arange(start, min(many, start + 30))
        batch = KeyedRows(pa.record_batch({"k": positions}), positions, positions)
        for piece in ring.follow(batch, ones, many, lambda table, now: loaded.append(table.low)):
            looked += len(piece.positions)
            middle = ring.resident[ring._middle]
            assert all(middle.low <= at < middle.high for at in (piece.positions * ones // many).tolist())
    assert looked == many
    assert loaded == sorted(set(loaded))


def test_only_the_missing_go_on() -> None:
    ring = Ring(3, tables(30, 10))
    slide(ring, 10)
    hits, missing = ring.search(np.array([25, 12, 99, 3, 12]))
    assert {(hit.table.low, row) for hit in hits for row in hit.probing.tolist()} == {(10, 1), (10, 4), (20, 0), (0, 3)}
    assert missing.tolist() == [2]
    assert ring.searched == 5 + 3 + 2


def test_a_jump_hashes_no_table_that_it_passes() -> None:
    ring = Ring(3, tables(100, 10))
    passed = slide(ring, 95)
    ring.search(np.array([95]))
    assert [table.low for table in passed if table._index is not None] == [90]
    assert [table.low for table in ring.resident] == [70, 80, 90]


def test_tables_of_a_filtered_input_are_full_and_cover_what_was_left_out() -> None:
    ring = Ring(3, tables(100, 5, keep=4))
    slide(ring, 50)
    assert [(table.low, table.high, len(table)) for table in ring.resident] == [(17, 37, 5), (37, 57, 5), (57, 77, 5)]


def test_rows_that_are_dead_are_not_found_and_stays_are_known() -> None:
    ring = Ring(1, tables(20, 10))
    [first] = slide(ring, 0, now=0)
    first.forget(np.array([4]))
    assert ring.search(np.array([4, 5]))[1].tolist() == [0]
    slide(ring, 10, now=33)
    assert [tuple(stay) for stay in ring.stays] == [(0, 0, 33), (10, 33, FOREVER)]


def test_no_tables_at_all() -> None:
    ring = Ring(5, iter(()))
    assert slide(ring, 0) == []
    assert ring.reach == FOREVER
    assert ring.search(np.array([1, 2]))[1].tolist() == [0, 1]


def test_who_has_met_the_first_of_a_repeated_key() -> None:
    repeats = Repeats(10)
    assert not len(repeats.note(np.array([10, 20, 30]), now=0))
    assert repeats.note(np.array([40, 20]), now=40).tolist() == [20]
    assert repeats.note(np.array([20, 30]), now=80).tolist() == [20, 30]
    assert len(repeats) == 2
    repeats.look(np.array([10, 20, 30, 40]), np.arange(4))
    repeats.look(np.array([20, 20, 30]), np.arange(4, 7))
    met = repeats.resolved_probes([Stay(0, 0, 60), Stay(3, 40, 90), Stay(5, 80, FOREVER)])
    assert met.hashes.tolist() == [20, 30]
    assert met.first.tolist() == [1, 2]
    assert met.until.tolist() == [40, 60]  # seen again; or cleared, if that was before
    found = met.position_of(np.array([20, 20, 30, 30, 70]), np.array([39, 40, 59, 60, 0]))
    assert found.tolist() == [1, -1, 2, -1, -1]


def test_twice_in_one_table_is_never_found() -> None:
    repeats = Repeats(10)
    assert repeats.note(np.array([5, 5]), now=7).tolist() == [5]
    repeats.look(np.array([5, 5]), np.arange(2))
    met = repeats.resolved_probes([Stay(0, 7, FOREVER)])
    assert met.position_of(np.array([5]), np.array([7])).tolist() == [-1]


def test_nothing_was_met() -> None:
    assert Met.nothing().position_of(np.array([1]), np.array([0])).tolist() == [-1]
