"""Directories that tasks must share: checked at the call, and accessed by tasks if the driver does not see them.

On a single machine nothing is checked, so these sessions pretend not to know where they run. `/proc/self/cwd` is then a
directory that tasks see and the driver does not, once the driver has changed its working directory.
"""

from __future__ import annotations

import os
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import dovetail
from dovetail.errors import InputError
from dovetail.spark.early.files import FETCHED_BYTES, BlockPages, WaveFiles
from dovetail.spark.session import shared_directory
from dovetail.spark.session.shared_directory import SharedDirectory, working_directory
from dovetail.spark.session.task_calls import call_in_each_task, call_in_task
from dovetail.storage.blocks import BlockStore
from dovetail.storage.open_store import open_store

ADVICE = "Give state_dir= another one."
ON = "l.k = r.k AND l.a > r.b"


@pytest.fixture
def anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide from sessions that all tasks run on this machine."""
    monkeypatch.setattr(shared_directory, "_is_one_machine", lambda spark: False)


@pytest.fixture
def unseen(spark: SparkSession, anywhere: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`tmp_path / "there"` for tasks, something else for the driver."""
    directory = call_in_task(spark, os.getcwd)
    elsewhere = tmp_path / "here" / "and" / "there"
    elsewhere.mkdir(parents=True)
    monkeypatch.chdir(elsewhere)
    return Path("/proc/self/cwd") / os.path.relpath(tmp_path / "there", directory)


def test_tasks_of_two_machines(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    there.mkdir()
    assert shared_directory._begin(partial(shared_directory._make, open_store(here), ADVICE), "t") == open_store(here)
    assert shared_directory._is_seen(open_store(here), "t")
    assert not shared_directory._is_seen(open_store(there), "t")
    assert not shared_directory._is_seen(open_store(tmp_path / "nowhere"), "t")
    answers = [shared_directory._answer(open_store(path), "t", number) for number, path in enumerate((here, there))]
    assert answers == [True, False]
    assert not list(there.iterdir())
    assert shared_directory._count_markers(open_store(here), "t", 2) == 1
    assert not list(here.iterdir())


def test_a_directory_that_is_seen_but_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=f"{tmp_path}/file/x cannot be written to: Not a directory. {ADVICE}"):
        shared_directory._make(open_store(tmp_path / "file" / "x"), ADVICE)


@pytest.mark.spark
def test_functions_in_tasks(spark: SparkSession) -> None:
    def fail() -> None:
        raise InputError("as it is")

    assert call_in_task(spark, os.getpid) != os.getpid()
    cores = spark.sparkContext.defaultParallelism
    assert call_in_each_task(spark, lambda number: number) == list(range(cores))
    with pytest.raises(InputError, match=r"^as it is$"):
        call_in_task(spark, fail)


@pytest.mark.spark
def test_one_machine_needs_no_task(spark: SparkSession, tmp_path: Path) -> None:
    made = shared_directory.shared_directory(spark, lambda: open_store(tmp_path / str(os.getpid())), ADVICE)
    assert made == SharedDirectory(open_store(tmp_path / str(os.getpid())))


@pytest.mark.spark
def test_a_directory_that_all_see(spark: SparkSession, anywhere: None, tmp_path: Path) -> None:
    found = working_directory(spark, (tmp_path / "new").as_uri(), ADVICE)
    assert found == SharedDirectory(open_store(tmp_path / "new"))
    assert not list((tmp_path / "new").iterdir())
    with pytest.raises(InputError, match="/proc/x cannot be written to"):
        working_directory(spark, "/proc/x", ADVICE)


@pytest.mark.one_in(2)
@pytest.mark.spark
def test_files_that_only_tasks_see(spark: SparkSession, tmp_path: Path) -> None:
    """Pages are read in order, several at a time; pending requests are completed first."""
    store, files = BlockStore(tmp_path), WaveFiles(SharedDirectory(open_store(tmp_path), spark))
    large = pa.RecordBatch.from_pydict({"a": [b"x" * (FETCHED_BYTES // 2)]})
    batches = [large, *(pa.RecordBatch.from_pydict({"a": [bytes([i])]}) for i in range(5))]
    blocks = []
    for some in (batches[:3], batches[3:], [large, large, large]):
        paged = store.open_paged(large.schema, "results")
        for batch in some:
            paged.write(batch)
        blocks.append(paged.close())
    wanted = [BlockPages(7, blocks[0], 1), BlockPages(8, blocks[1], 0), BlockPages(9, blocks[2], 1)]
    assert list(files.pages(wanted)) == [
        *((7, batch) for batch in batches[1:3]),
        *((8, batch) for batch in batches[3:]),
        (9, large),
        (9, large),
    ]
    files.replace("done.json", "1", soon=True)
    files.remove(blocks[0])
    assert not (tmp_path / "done.json").exists()
    assert files.read("plan.json") is None
    assert (tmp_path / "done.json").read_text() == files.read("done.json") == "1"
    assert not (tmp_path / blocks[0].name).exists()
    files.remove_all()
    assert not tmp_path.exists()


@pytest.mark.slow
@pytest.mark.spark
def test_a_driver_that_does_not_see_the_files(spark: SparkSession, unseen: Path, tmp_path: Path) -> None:
    left = spark.range(0, 2000, 1, 4).selectExpr("id % 50 AS k", "id AS a", "array(id, null) AS deep")
    right = spark.range(0, 300, 1, 2).selectExpr("id % 70 AS k", "id * 7 AS b")
    truth = counted(dovetail.join(left, right, ON).toArrow())
    first = list(dovetail.progressive(left, right, ON, cells=10, work_dir=str(unseen), until=10))
    assert first[-1].results < truth.total()
    rest = list(dovetail.progressive(left, right, ON, cells=10, work_dir=str(unseen)))
    assert rest[-1].results == truth.total()
    assert sum((counted(step.batch) for step in [*first, *rest]), Counter()) == truth
    assert not list((tmp_path / "there").glob("results-*"))
    dovetail.write(left, unseen / "out")
    dovetail.write(right, unseen / "out", mode="overwrite")
    dovetail.write(right, unseen / "out", mode="append")
    dovetail.write(right.where("k < 0"), unseen / "none")
    with pytest.raises(InputError, match="exists: give another path"):
        dovetail.write(left, unseen / "out")
    assert pq.read_table(tmp_path / "there" / "out").num_rows == 600
    assert pq.read_table(tmp_path / "there" / "none").schema.names == right.columns
    assert not list(tmp_path.glob("there/**/_dovetail-*"))
    assert not list(Path.cwd().iterdir())


def counted(table: pa.Table | pa.RecordBatch) -> Counter[Any]:
    return Counter(zip(table["a"].to_pylist(), table["b"].to_pylist(), strict=True))
