"""Any number of threads returns the same rows in the same order, as a table and as a reader."""

import gc
import threading

import numpy as np
import pyarrow as pa
import pytest
from tests.seed import generator

import dovetail
import dovetail.core.threads
from dovetail.errors import InputError, PlanError

ROWS = 9_000  # both sides together are enough for a thread
HOW = ("inner", "left", "full", "left_semi", "left_anti")
CONDITIONS = {
    "equality": "l.k = r.k",
    "strings": "l.s = r.s",
    "composite": "l.k = r.k AND l.s = r.s",
    "one inequality": "l.x < r.x - 0.999",
    "two inequalities": "l.x < r.x AND l.y > r.y",
    "band": "abs(l.x - r.x) <= 0.0002",
    "two bands": "abs(l.x - r.x) <= 0.01 AND abs(l.z - r.z) <= 0.01",
    "distance": "sqrt(pow(l.x - r.x, 2) + pow(l.z - r.z, 2)) <= 0.01",
    "rectangles": "l.x <= r.y AND l.y >= r.x AND l.z <= r.top AND l.top >= r.z AND l.k < 40",
    "unequal": "l.g != r.g",
    "equality and inequality": "l.k = r.k AND l.x < r.x",
    "large groups": "l.g = r.g AND l.x < r.x AND l.y > r.y",
    "disjunction": "l.k = r.k OR abs(l.x - r.x) <= 0.0001",
    "checked": "l.x < r.x AND l.y > r.y AND l.k + r.k > 4000",
}


def table(seed: int) -> pa.Table:
    rng = generator(seed)
    x, z, k = rng.random(ROWS), rng.random(ROWS), rng.integers(0, ROWS, ROWS)
    return pa.table(
        {
            "row": np.arange(ROWS),
            "k": pa.array(k, mask=rng.random(ROWS) < 0.05),
            "g": np.where(np.arange(ROWS) % 4_000 == 1, 2, 1),
            "s": [f"name {number}" for number in k],
            "x": x,
            "y": x + rng.random(ROWS) / 1_000,
            "z": z,
            "top": z + rng.random(ROWS) / 50,
        }
    )


LEFT, RIGHT = table(0), table(1)


@pytest.mark.parametrize("name", CONDITIONS)
def test_threads_change_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dovetail.core.threads, "RANGE", 256)  # so that several threads sort and hash even this few rows
    on, how = CONDITIONS[name], HOW[list(CONDITIONS).index(name) % len(HOW)]
    for kind in dict.fromkeys(("inner", how)):
        alone = dovetail.join(LEFT, RIGHT, on, kind, threads=1)
        assert alone.num_rows or kind != "inner"
        for threads in (2, 5, 64):
            assert dovetail.join(LEFT, RIGHT, on, kind, threads=threads).equals(alone)
    assert dovetail.count(LEFT, RIGHT, on, threads=3) == dovetail.count(LEFT, RIGHT, on, threads=1)


EMPTY = LEFT.schema.empty_table()
NULLS = pa.table({name: pa.nulls(2 * ROWS, LEFT.schema.field(name).type) for name in LEFT.column_names})
MANY = pa.concat_tables([LEFT, LEFT])
NO_PARTNER = {
    "empty left": (EMPTY, MANY),
    "empty right": (MANY, EMPTY),
    "both empty": (EMPTY, EMPTY),
    "nulls": (MANY, NULLS),
}
VECTORS = "distance(l.v, r.v) <= 0.01"


def with_vectors(table: pa.Table) -> pa.Table:
    points = [None if x is None else [x, 0.0, 1.0, 2.0] for x in table["x"].to_pylist()]
    return table.append_column("v", pa.array(points, pa.list_(pa.float64())))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("on", [*CONDITIONS.values(), VECTORS])
@pytest.mark.parametrize("inputs", NO_PARTNER)
def test_threads_with_nothing_to_find(inputs: str, on: str) -> None:
    """Without candidates there is no work to divide: the result is empty, or has only rows without a partner."""
    left, right = (with_vectors(table) if on == VECTORS else table for table in NO_PARTNER[inputs])
    expected = {
        "inner": 0,
        "left": len(left),
        "right": len(right),
        "full": len(left) + len(right),
        "left_anti": len(left),
    }
    for how, rows in {**expected, "left_semi": 0}.items():
        assert dovetail.join(left, right, on, how, threads=2).num_rows == rows
    assert dovetail.count(left, right, on, threads=2) == 0


def test_threads_with_nothing_to_find_among_rows_far_away() -> None:
    away = LEFT.set_column(4, "x", pa.array(LEFT["x"].to_numpy() + 10))
    for name in ("two bands", "distance"):
        assert dovetail.join(LEFT, away, CONDITIONS[name], "full", threads=2).num_rows == 2 * ROWS


def test_threads_of_several_inputs_with_nothing_to_find() -> None:
    on = "abs(a.x - b.x) <= 0.01 AND abs(a.z - b.z) <= 0.01 AND b.k = c.k"
    assert dovetail.multijoin({"a": MANY, "b": NULLS, "c": LEFT}, on, threads=2).num_rows == 0


@pytest.mark.parametrize("how", HOW)
def test_a_reader_has_the_same_rows(how: str) -> None:
    on = CONDITIONS["two inequalities"]
    reader = dovetail.join(LEFT, RIGHT, on, how, to="reader", threads=2)
    assert isinstance(reader, pa.RecordBatchReader)
    assert reader.read_all().equals(dovetail.join(LEFT, RIGHT, on, how))


def test_a_reader_of_few_rows_and_of_none() -> None:
    assert dovetail.join(LEFT, RIGHT, "l.k = r.k", to="reader", limit=0).read_all().num_rows == 0
    assert dovetail.join(LEFT, RIGHT, "l.k = r.k", to="reader", limit=7).read_all().num_rows == 7
    assert dovetail.join(LEFT, RIGHT, "l.k = r.k", to="reader", memory="1MB").read_all().num_rows > 7


def test_a_reader_that_is_left_early_ends_its_threads() -> None:
    reader = dovetail.join(LEFT, RIGHT, "l.g = r.g", to="reader", threads=3)
    assert reader.read_next_batch().num_rows
    assert [thread for thread in threading.enumerate() if thread.name == "dovetail"]
    del reader
    gc.collect()
    assert not [thread for thread in threading.enumerate() if thread.name == "dovetail"]


def test_what_is_refused() -> None:
    with pytest.raises(InputError, match="to must be one of table, reader; got 'pandas'"):
        dovetail.join(LEFT, RIGHT, "l.k = r.k", to="pandas")
    with pytest.raises(InputError, match="threads must be an integer, 1 or more; got 0"):
        dovetail.join(LEFT, RIGHT, "l.k = r.k", threads=0)
    with pytest.raises(PlanError, match="progress=True needs to='table'"):
        dovetail.join(LEFT, RIGHT, "l.k = r.k", to="reader", progress=True)
