"""What `memory=` counts: pieces of files, pending results, and rows that are no longer needed."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dovetail
from dovetail.core.rows import Matches, Phase
from dovetail.execution import in_process
from dovetail.execution.driver import Found
from dovetail.execution.output import RESULTS_SHARE, SMALLEST_BATCH, results_share
from dovetail.sources.parquet_files import ParquetSource

ROWS = 30_000
ON = ("l.k = r.k", "abs(l.x - r.x) <= 0.3", "l.x < r.x AND l.y > r.y", "l.k = r.k AND l.x < r.x", "l.x > r.x + 29700")
HOWS = ("inner", "left", "right", "full", "left_semi", "left_anti")


def table(seed: int, rows: int = ROWS) -> pa.Table:
    """Keys with nulls and a frequent value; two correlated numbers; strings."""
    rng = np.random.default_rng(seed)
    keys = np.where(rng.random(rows) < 0.002, 7, rng.integers(0, rows, rows))
    x = rng.random(rows) * rows
    return pa.table(
        {
            "k": pa.array(keys, mask=rng.random(rows) < 0.01),
            "x": pa.array(x, mask=rng.random(rows) < 0.01),
            "y": x + rng.random(rows),
            "s": [f"row {number} of {seed}" for number in range(rows)],
        }
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The left file has small row groups, the right file a single one."""
    place = tmp_path_factory.mktemp("files")
    for seed, group in ((0, 1000), (1, ROWS)):
        pq.write_table(table(seed), place / f"{seed}.parquet", row_group_size=group)
    return str(place / "0.parquet"), str(place / "1.parquet")


def rows_of(found: pa.Table) -> Counter[tuple[Any, ...]]:
    names = [name for name in ("s", "s_right") if name in found.column_names]
    return Counter(zip(*(found[name].to_pylist() for name in names), strict=True))


@pytest.mark.one_in(5)
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("on", ON)
def test_files_that_exceed_a_budget_give_what_tables_give(on: str, how: str, files: tuple[str, str]) -> None:
    expected = rows_of(dovetail.join(table(0), table(1), on, how))
    assert rows_of(dovetail.join(*files, on, how, memory="1MB")) == expected
    if on == ON[0]:  # a table and a file, a file that fits, and an operator
        assert rows_of(dovetail.join(table(0), files[1], on, how, memory="1MB")) == expected
        assert rows_of(dovetail.join(*files, on, how, memory="100MB")) == expected
        assert rows_of(dovetail.join(*files, on, how, memory="1MB", algorithm="pmj")) == expected


def test_some_rows_of_files(files: tuple[str, str]) -> None:
    whole = rows_of(dovetail.join(*files, ON[0]))
    some = rows_of(dovetail.join(*files, ON[0], memory="1MB", limit=100))
    assert some.total() == 100
    assert some <= whole


def test_files_that_exceed_a_budget_are_not_loaded(files: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    places = ParquetSource.places

    def watched(self: ParquetSource, most_rows: int, columns: Any = None) -> Iterator[Any]:
        for place in places(self, most_rows, columns):
            if columns is None:  # plans look only at keys
                read.append(place.batch.nbytes)
            yield place

    monkeypatch.setattr(ParquetSource, "places", watched)
    monkeypatch.setattr(ParquetSource, "to_table", lambda *_: pytest.fail("it is loaded whole"))
    dovetail.join(*files, ON[0], memory="1MB")
    assert sum(read) > 2_000_000
    assert max(read) < 200_000


def test_a_row_group_is_read_in_pieces(tmp_path: Path) -> None:
    """By default Arrow reads a whole file ahead."""
    rng = np.random.default_rng(0)
    numbers = pa.table({name: rng.random(500_000) for name in "abcd"})
    for group in (500_000, 50_000):
        pq.write_table(numbers, tmp_path / "numbers.parquet", row_group_size=group, use_dictionary=False)
        source = ParquetSource(pa.dataset.dataset(tmp_path / "numbers.parquet"), "numbers")
        before = pa.total_allocated_bytes()
        held = [pa.total_allocated_bytes() - before for _ in source.places(1000)]
        assert numbers.nbytes > 15_000_000
        assert max(held) < 10_000_000


def test_wide_rows_of_files_come_in_small_batches(tmp_path: Path) -> None:
    wide = pa.table({"s": ["x" * 10_000] * 5000})
    pq.write_table(wide, tmp_path / "wide.parquet")
    source = ParquetSource(pa.dataset.dataset(tmp_path / "wide.parquet"), "wide")
    pieces = [piece.batch for piece in source.open()]
    assert max(batch.nbytes for batch in pieces) < 10_000_000
    assert sum(batch.num_rows for batch in pieces) == 5000


@pytest.mark.one_in(2)
def test_multijoin_of_more_than_fits_spills(tmp_path: Path) -> None:
    tables = {name: table(seed, 5000).select(["k", "s"]) for seed, name in enumerate("abc")}
    paths = {name: tmp_path / f"{name}.parquet" for name in tables}
    for name, rows in tables.items():
        pq.write_table(rows, paths[name], row_group_size=700)
    on = "a.k = b.k AND b.k = c.k"
    whole = dovetail.multijoin(tables, on)
    order = [(name, "ascending") for name in ("a_s", "b_s", "c_s")]
    assert dovetail.explain(tables, on=on).at_rest
    assert not dovetail.explain(tables, on=on, memory="200kB").at_rest
    for inputs in (tables, paths):
        assert dovetail.multijoin(inputs, on, memory="200kB").sort_by(order).equals(whole.sort_by(order))


def test_results_under_way_are_counted() -> None:
    """Memory for two batches of results is reserved, except in a small budget, or if all rows have to fit."""
    memory = 64 << 20
    batch, aside = results_share(memory, spills=True)
    assert batch == memory // RESULTS_SHARE
    assert aside == 2 * batch
    assert results_share(memory, spills=False) == (batch, 0)
    assert results_share(1 << 20, spills=True) == (SMALLEST_BATCH, 0)
    assert results_share(None, spills=True)[1] == 0


@pytest.mark.parametrize("algorithm", ["auto", "pmj", "rpj", "diner"])
def test_batches_of_results_are_a_small_part_of_the_budget(algorithm: str) -> None:
    wide = pa.table({"k": np.arange(400) % 4, "s": ["x" * 500] * 400})
    memory = 1 << 20
    sizes = [
        step.batch.nbytes for step in dovetail.progressive(wide, wide, "l.k = r.k", memory=memory, algorithm=algorithm)
    ]
    assert sum(sizes) > 30 * memory
    assert max(sizes) <= 1.1 * SMALLEST_BATCH


def test_emitted_results_are_let_go_before_more_work_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may hold the last references to rows that an operator has released: half of the memory of a merge."""
    alive: list[bool] = []

    class Playing:
        def __init__(self, *_: Any) -> None: ...

        def run(self, _: Any) -> Iterator[Found]:
            rows = np.arange(3)
            for _ in range(3):
                values = np.arange(3)
                watched = weakref.ref(values)
                batch = pa.RecordBatch.from_arrays([pa.array(values)], names=["k"])
                found = Found(Phase.ARRIVING, Matches.pairs(batch, rows, batch, rows))
                del values, batch
                yield found
                del found
                alive.append(watched() is not None)

    monkeypatch.setattr(in_process, "Driver", Playing)
    keys = pa.table({"k": [1, 2, 3]})
    for step in dovetail.progressive(keys, keys, "l.k = r.k", memory="1MB"):
        del step
    assert alive == [False] * 3


def test_a_step_of_a_merge_holds_little_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory in use is reported at the start of each step, when freed memory may be returned."""
    from dovetail.storage.budget import Budget

    looks: list[int] = []
    monkeypatch.setattr(Budget, "look", lambda self: looks.append(self.used))
    keys = pa.table({"k": np.random.default_rng(0).permutation(20_000), "s": ["x" * 50] * 20_000})
    found = sum(s.batch.num_rows for s in dovetail.progressive(keys, keys, ON[0], memory="300kB", algorithm="pmj"))
    assert found == 20_000
    assert len(looks) > 10
    assert all(used <= 300_000 for used in looks)
    assert any(later < earlier for earlier, later in pairwise(looks))
