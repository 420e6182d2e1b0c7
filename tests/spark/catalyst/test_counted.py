"""Queries that only count the rows of a join: pairs are counted, in tasks or on the driver, but not produced."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.spark.catalyst.queries import plan

import dovetail
from dovetail.errors import DovetailError
from dovetail.spark.batch import counts, small_files
from dovetail.spark.catalyst import lazy_joins, replacing

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("two_partitions")]

HOWS = ("inner", "left", "right", "full", "left_semi", "left_anti")
COUNTED = "DovetailJoin number of rows"
ONS = ("l.x BETWEEN r.lo AND r.hi AND r.band % 7 > 0", "l.k = r.k AND l.x < r.lo AND l.id * r.band % 3 <> 1")

Tables = Callable[[str], DataFrame]


@pytest.fixture(scope="module", params=["rows", "files"])
def tables(request: pytest.FixtureRequest, session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """Tables computed by Spark, or Parquet files."""
    places: dict[str, Path] = {}
    if request.param == "files":
        for name in ("points", "bands"):
            places[name] = tmp_path_factory.mktemp("counted") / name
            session.table(name).drop("d").write.parquet(str(places[name]))
    return lambda name: session.read.parquet(str(places[name])) if places else session.table(name)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("on", ONS)
@pytest.mark.parametrize("cells", [None, 3])
def test_the_number_of_rows(how: str, on: str, cells: int | None, tables: Tables) -> None:
    joined = dovetail.join(tables("points").where("id % 3 > 0"), tables("bands"), on, how, cells=cells)
    query = joined.agg(F.count("*").alias("n"), (F.count(F.lit(1)) + 1).alias("m"), F.lit("a"))
    known = len(joined.collect())
    assert COUNTED in plan(query)
    assert query.schema["n"].nullable is False
    assert [tuple(row) for row in query.collect()] == [(known, known + 1, "a")]
    assert joined.count() == known
    assert known


@pytest.mark.parametrize("how", ["INNER", "LEFT", "FULL", "LEFT SEMI"])
def test_plain_sql(how: str, session: SparkSession) -> None:
    query = f"SELECT count(*) AS n FROM points {how} JOIN bands ON x BETWEEN lo AND hi AND band > 5"
    known = session.sql(query).collect()
    with dovetail.enable(session):
        counted = session.sql(query)
        assert COUNTED in plan(counted)
        assert counted.collect() == known
        assert counted.columns == ["n"]


def test_spark_counts_what_dovetail_could_not(session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise DovetailError("a fault")

    query = "SELECT count(*) FROM points JOIN bands ON x BETWEEN lo AND hi"
    known = session.sql(query).collect()
    monkeypatch.setattr(replacing, "count_rows", fail)
    with dovetail.enable(session), pytest.warns(RuntimeWarning, match="a fault"):
        assert session.sql(query).collect() == known


def test_each_join_runs_once(session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    counted = lazy_joins.Runner._counted
    monkeypatch.setattr(lazy_joins.Runner, "_counted", lambda *given: asked.append(1) or counted(*given))
    joined = dovetail.join(session.table("points"), session.table("bands"), ONS[0])
    for adaptive in ("true", "false"):
        session.conf.set("spark.sql.adaptive.enabled", adaptive)
        assert joined.count() == dovetail.count(session.table("points"), session.table("bands"), ONS[0])
    session.conf.unset("spark.sql.adaptive.enabled")
    assert len(asked) == 2


@pytest.mark.parametrize(
    "ask",
    [
        lambda joined: joined.agg(F.count("k")),
        lambda joined: joined.agg(F.countDistinct("x")),
        lambda joined: joined.agg(F.count("*"), F.max("x")),
        lambda joined: joined.groupBy("s").count(),
        lambda joined: joined.limit(5).groupBy().count(),
        lambda joined: joined.selectExpr("count(*) FILTER (WHERE x > 9)"),
    ],
)
def test_rows_that_are_read_are_made(ask: Callable[[DataFrame], DataFrame], session: SparkSession) -> None:
    points = session.table("points").select("id", "x", "k", "s")
    joined = dovetail.join(points, session.table("bands").select("lo", "hi"), "l.x BETWEEN r.lo AND r.hi")
    by_spark = points.join(session.table("bands").select("lo", "hi"), F.expr("x BETWEEN lo AND hi"))
    assert COUNTED not in plan(ask(joined))
    assert sorted(map(repr, ask(joined).collect())) == sorted(map(repr, ask(by_spark).collect()))


def test_a_count_among_other_queries(session: SparkSession) -> None:
    joined = dovetail.join(session.table("points"), session.table("bands"), "l.x BETWEEN r.lo AND r.hi")
    number = joined.groupBy().count()
    both = number.unionAll(joined.where("band < 20").groupBy().count()).crossJoin(
        number.withColumnRenamed("count", "m")
    )
    most, fewer = sorted(both.collect(), reverse=True)
    assert most[0] == most[1] == fewer[1] == len(joined.collect())
    assert fewer[0] == len(joined.where("band < 20").collect())


def test_nothing_to_count(session: SparkSession) -> None:
    empty = session.table("points").where("id < 0")
    assert dovetail.join(empty, session.table("bands"), "l.x BETWEEN r.lo AND r.hi").count() == 0
    assert dovetail.join(session.table("bands"), empty, "l.lo < r.x AND l.hi > r.x", "left").count() == 200


def test_a_condition_that_calls_a_function_of_the_user(session: SparkSession) -> None:
    session.udf.register("plus_one", lambda value: value + 1, "bigint")
    joined = dovetail.join(
        session.table("points"),
        session.table("bands"),
        "l.x BETWEEN r.lo AND r.hi AND plus_one(l.x) < r.hi",
        trusted=True,
    )
    assert joined.count() == len(joined.collect())


def test_the_driver_counts_small_files(tmp_path: Path, session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("points", "bands"):
        session.table(name).drop("d").write.parquet(str(tmp_path / name))
    points, bands = (session.read.parquet(str(tmp_path / name)) for name in ("points", "bands"))
    known = dovetail.count(points, bands, ONS[0])
    used = []
    in_tasks = counts.look_at
    monkeypatch.setattr(counts, "look_at", lambda *given, **options: used.append(1) or in_tasks(*given, **options))
    assert dovetail.count(points, bands, ONS[0]) == known
    assert not used
    monkeypatch.setattr(small_files, "COUNTED_CANDIDATES", 10)  # with a check, for which pairs have to be produced
    assert dovetail.count(points, bands, ONS[1]) == dovetail.join(points, bands, ONS[1]).count()
    monkeypatch.setattr(small_files, "COUNTED_BYTES", 10)
    assert dovetail.count(points, bands, ONS[0]) == known
    assert len(used) == 3
