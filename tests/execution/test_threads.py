"""The same rows in the same order for any number of threads, as a table and as a reader."""

import gc
import threading

import numpy as np
import pyarrow as pa
import pytest

import dovetail
from dovetail.errors import InputError, PlanError

ROWS = 9_000  # both sides together are worth a thread
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
    rng = np.random.default_rng(seed)
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
def test_threads_change_nothing(name: str) -> None:
    on, how = CONDITIONS[name], HOW[list(CONDITIONS).index(name) % len(HOW)]
    for kind in dict.fromkeys(("inner", how)):
        alone = dovetail.join(LEFT, RIGHT, on, kind, threads=1)
        assert alone.num_rows or kind != "inner"
        for threads in (2, 5):
            assert dovetail.join(LEFT, RIGHT, on, kind, threads=threads).equals(alone)
    assert dovetail.count(LEFT, RIGHT, on, threads=3) == dovetail.count(LEFT, RIGHT, on, threads=1)


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
    with pytest.raises(InputError, match="to is one of table, reader; got 'pandas'"):
        dovetail.join(LEFT, RIGHT, "l.k = r.k", to="pandas")
    with pytest.raises(InputError, match="threads is a number of threads"):
        dovetail.join(LEFT, RIGHT, "l.k = r.k", threads=0)
    with pytest.raises(PlanError, match="progress= is for to='table'"):
        dovetail.join(LEFT, RIGHT, "l.k = r.k", to="reader", progress=True)
