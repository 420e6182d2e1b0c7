"""Every kind of join with workers, or a Connect server, on separate disks (see separate_disks.py).

A script, because a process can have only one kind of session. Expects exact results, or a clear error at the call.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.spark.session.separate_disks import HOST, cluster, connect_server
from tests.storage.s3_server import Faults, s3_server

import dovetail
from dovetail.errors import InputError, PlanError

ON = "l.k = r.k AND l.a > r.b"
REFUSED = "{}.* is not shared by all workers.* {} a place that all workers reach"


class Tables:
    def __init__(self, spark: SparkSession, place: Path) -> None:
        self.spark, self.place = spark, place
        self.left = spark.range(0, 3000, 1, 4).selectExpr("id % 50 AS k", "id AS a", "array(id, null) AS deep")
        self.right = spark.range(0, 300, 1, 2).selectExpr("cast(id % 70 AS int) AS k", "id * 7 AS b")
        self.third = spark.range(0, 300, 1, 2).selectExpr("id * 7 AS c")
        self.truth = counted(self.left.alias("l").join(self.right.alias("r"), F.expr(ON)).toArrow())

    def streams(self, files: Path) -> list[DataFrame]:
        """Write the tables as files into a directory, and return streams of them."""
        streams = []
        for name, frame in (("l", self.left), ("r", self.right), ("s", self.third)):
            frame.write.mode("overwrite").parquet(str(files / name))
            reader = self.spark.readStream.schema(frame.schema).option("maxFilesPerTrigger", 1)
            streams.append(reader.parquet(str(files / name)))
        return streams

    def run(self, joined: DataFrame, out: Path, *, timers: bool = False) -> Counter[Any]:
        """The output of a query."""
        sink = joined.writeStream.format("parquet").option("path", str(out))
        query = sink.option("checkpointLocation", f"{out}-checkpoint").trigger(availableNow=True).start()
        dovetail.finish(query) if timers else query.awaitTermination()
        return counted(self.spark.read.parquet(str(out)).toArrow())


@contextmanager
def stopping(spark: SparkSession) -> Iterator[SparkSession]:
    """Stop the session before its cluster or server in any case: otherwise a Connect client would wait for minutes."""
    try:
        yield spark
    finally:
        spark.stop()


def counted(table: pa.Table | pa.RecordBatch) -> Counter[Any]:
    return Counter(zip(table["a"].to_pylist(), table["b"].to_pylist(), strict=True))


def joins_at_rest(at: Tables) -> None:
    assert counted(dovetail.join(at.left, at.right, ON).toArrow()) == at.truth
    assert dovetail.count(at.left, at.right, ON) == at.truth.total()
    totals = dovetail.aggregate(at.left, at.right, ON, {"n": "count(*)", "sum": "sum(r.b)"}).collect()[0]
    assert (totals.n, totals.sum) == (at.truth.total(), sum(b * times for (_, b), times in at.truth.items()))
    several = dovetail.multijoin({"l": at.left, "r": at.right, "s": at.third}, f"{ON} AND r.b = s.c")
    assert counted(several.toArrow()) == at.truth


def progressive(at: Tables, work: Path | str | None) -> None:
    """Early results; with a work directory, also those of a join that is stopped and continued."""
    if work is None:
        steps = list(dovetail.progressive(at.left, at.right, ON, cells=20))
        assert steps[-1].estimate == (at.truth.total(),) * 3 + (0.95,)
    else:
        steps = list(dovetail.progressive(at.left, at.right, ON, cells=20, work_dir=str(work), until=10))
        assert 10 <= steps[-1].results < at.truth.total()
        steps += dovetail.progressive(at.left, at.right, ON, cells=20, work_dir=str(work))
    assert steps[-1].results == at.truth.total()
    assert sum((counted(step.batch) for step in steps), Counter()) == at.truth


def aggregates(at: Tables, work: Path) -> None:
    wanted = {"n": "count(*)"}
    steps = list(dovetail.progressive(at.left, at.right, ON, cells=20, work_dir=str(work), aggregate=wanted))
    assert steps[-1].aggregates == {"n": (at.truth.total(),) * 3 + (0.95,)}


def write(at: Tables, path: Path, seen_at: Path) -> None:
    assert dovetail.write(at.left, path).rows == 3000
    assert pq.read_table(seen_at).num_rows == 3000
    with pytest.raises(InputError, match="exists: give another path"):
        dovetail.write(at.left, path)
    dovetail.write(at.right, path, mode="overwrite")
    dovetail.write(at.right, path, mode="append")
    dovetail.write(at.right.where("k < 0"), path, mode="append")
    assert pq.read_table(seen_at).num_rows == 600
    dovetail.write(at.right.where("k < 0"), path, mode="overwrite")
    assert pq.read_table(seen_at).schema.names == at.right.columns
    assert not list(seen_at.parent.glob("_dovetail-*"))


def streams(at: Tables, files: Path, state: Path | str | None) -> None:
    options: dict[str, Any] = {} if state is None else {"state_dir": str(state)}
    left, right, third = at.streams(files)
    assert at.run(dovetail.join(left, right, ON, **options), files / "joined") == at.truth
    windowed = dovetail.join(left, right, ON, window=dovetail.window(rows=10_000), **options)
    assert at.run(windowed, files / "windowed") == at.truth
    inputs = {"l": left, "r": right, "s": third}
    several = dovetail.multijoin(inputs, f"{ON} AND r.b = s.c", end="available", **options)
    assert at.run(several, files / "several", timers=True) == at.truth


def on_a_cluster(place: Path) -> None:
    with cluster(place) as master:
        settings: dict[str, bool | float | int | str | None]
        settings = {"spark.driver.host": HOST, "spark.driver.bindAddress": HOST, "spark.executor.memory": "512m"}
        settings |= {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
        with stopping(SparkSession.builder.master(master).config(map=settings).getOrCreate()) as spark:
            check_a_cluster(Tables(spark, place))


def check_a_cluster(at: Tables) -> None:
    place = at.place
    what_is_refused(at)
    joins_at_rest(at)
    progressive(at, place / "shared" / "work")
    progressive(at, place / "workers" / "work")
    aggregates(at, place / "workers" / "sums")
    write(at, place / "shared" / "out", place / "shared" / "out")
    write(at, place / "workers" / "new" / "out", place / "behind" / "new" / "out")
    streams(at, place / "shared", place / "workers" / "state")
    in_a_store(at)
    along_the_diagonal(at)
    at.spark.conf.set("spark.sql.streaming.checkpointLocation", (place / "shared").as_uri())
    progressive(at, None)


def in_a_store(at: Tables) -> None:
    """Workers with separate disks share an object store."""
    with s3_server() as server:
        server.faults = Faults(error=0.03, lose=0.03)
        progressive(at, server.uri("work"))
        assert dovetail.write(at.left, server.uri("out")).rows == 3000
        assert len(server.names("out/part-")) == 4
        streams(at, at.place / "shared" / "again", server.uri("state"))


def what_is_refused(at: Tables) -> None:
    """Directories that workers do not share are rejected before anything is read."""
    own = at.place / "own"
    unread = at.left.where("raise_error('it was read') IS NULL")
    with pytest.raises(InputError, match=REFUSED.format(own, "Give work_dir=")):
        dovetail.progressive(unread, at.right, ON)
    with pytest.raises(InputError, match=REFUSED.format(own / "work", "Give work_dir=")):
        dovetail.progressive(unread, at.right, ON, work_dir=str(own / "work"))
    with pytest.raises(InputError, match=REFUSED.format(own, "Give")):
        dovetail.write(unread, own / "out")
    left, right, third = at.streams(at.place / "shared")
    window = dovetail.window(rows=10)
    calls: list[Callable[[], Any]] = [
        lambda: dovetail.join(left, right, ON),
        lambda: dovetail.join(left, right, ON, state_dir=str(own)),
        lambda: dovetail.join(left, right, ON, window=window),
        lambda: dovetail.aggregate(left, right, ON, {"n": "count(*)"}, window=window),
        lambda: dovetail.multijoin({"l": left, "r": right, "s": third}, f"{ON} AND r.b = s.c", end="available"),
    ]
    for call in calls:
        with pytest.raises(InputError, match=REFUSED.format(own, "Give state_dir=")):
            call()


def along_the_diagonal(at: Tables) -> None:
    """Shared files are read by tasks; separate copies, as on the disk of each machine, are left to Spark."""
    ids = list(range(1 << 17))
    shared, copies, behind = (at.place / name for name in ("shared", "workers", "behind"))
    for name, columns in (("one", {"id": ids}), ("many", {"id": ids, "v": ids})):
        pq.write_table(pa.table(columns), shared / f"{name}.parquet")
        for place in (copies, behind):
            shutil.copyfile(shared / f"{name}.parquet", place / f"{name}.parquet")
    one, many, one_copy, many_copy = (
        at.spark.read.parquet(str(place / f"{n}.parquet")) for place in (shared, copies) for n in ("one", "many")
    )
    assert dovetail.explain(one, many, ["id"], algorithm="diag").operator.name == "diag"
    assert dovetail.join(one, many, ["id"], algorithm="diag").count() == len(ids)
    early = dovetail.progressive(one, many, ["id"], algorithm="diag", work_dir=str(shared / "early"), cells=4)
    assert sorted(v for step in early for v in step.batch["v"].to_pylist()) == ids
    with pytest.raises(PlanError, match=r"workers do not find the same files at these paths.*use algorithm="):
        dovetail.join(one_copy, many_copy, ["id"], algorithm="diag")
    assert dovetail.join(one_copy, many_copy, ["id"]).count() == len(ids)


def over_connect(place: Path) -> None:
    with connect_server(place) as address, stopping(SparkSession.builder.remote(address).getOrCreate()) as spark:
        check_a_client(Tables(spark, place))


def check_a_client(at: Tables) -> None:
    place = at.place
    joins_at_rest(at)
    progressive(at, None)
    progressive(at, place / "own" / "work")
    progressive(at, place / "shared" / "work")
    aggregates(at, place / "workers" / "sums")
    write(at, place / "shared" / "out", place / "shared" / "out")
    write(at, place / "workers" / "new" / "out", place / "behind" / "new" / "out")
    streams(at, place / "workers", None)
    with pytest.raises(PlanError, match=r"a Connect session does not show which files .* use algorithm="):
        dovetail.join(at.left, at.right, ["k"], algorithm="diag")
    assert not list((place / "workers").iterdir())
    # The empty directory of leases stays: other joins of the user may be about to use it.
    assert [entry.name for entry in (place / "own").rglob("*") if "leases" not in entry.name] == []


if __name__ == "__main__":
    os.environ["PYSPARK_PYTHON"] = sys.executable
    {"cluster": on_a_cluster, "connect": over_connect}[sys.argv[1]](Path(sys.argv[2]))
