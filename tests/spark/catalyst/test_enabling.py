"""Joins in plain SQL and `df.join` return the same rows with and without Dovetail in the session."""

from __future__ import annotations

import re
import warnings
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.spark.catalyst.queries import plan, rows, taken

import dovetail
from dovetail.errors import DovetailError, InputError
from dovetail.spark.catalyst import replacing

pytestmark = pytest.mark.spark

TAKEN = {
    "between": "SELECT p.id, b.band FROM points p JOIN bands b ON p.x BETWEEN b.lo AND b.hi",
    "aggregate": "SELECT band % 10 AS g, count(*), sum(x) FROM points JOIN bands ON x BETWEEN lo AND hi GROUP BY g",
    "filters": "SELECT p.id FROM points p, bands b WHERE p.x > b.lo AND p.x < b.hi AND b.band < 50 AND p.s <> 'p3'",
    "left": "SELECT p.id, b.band, b.s FROM points p LEFT JOIN bands b ON p.x BETWEEN b.lo AND b.hi AND p.k < b.k",
    "right": "SELECT p.id, b.band FROM points p RIGHT JOIN bands b ON p.x < b.lo AND p.k > b.k",
    "full": "SELECT p.id, b.band FROM points p FULL JOIN bands b ON p.x BETWEEN b.lo AND b.hi AND p.id % 2 = 0",
    "exists": "SELECT id FROM points p WHERE EXISTS (SELECT 1 FROM bands b WHERE p.x BETWEEN b.lo AND b.hi)",
    "not exists": "SELECT id FROM points p WHERE NOT EXISTS (SELECT 1 FROM bands WHERE x > lo AND x < hi AND band < 9)",
    "self-join": "SELECT a.id, b.id AS other FROM points a JOIN points b ON a.x < b.x AND a.id > b.id",
    "with": "WITH near AS (SELECT * FROM bands WHERE band < 90) SELECT id, lo FROM points JOIN near ON x > hi",
    "decimals": "SELECT p.id, b.band FROM points p JOIN bands b ON p.d <= b.d AND p.x > b.lo",
    "dates": "SELECT p.id, b.band FROM points p JOIN bands b ON p.day BETWEEN b.day AND b.day + INTERVAL 3 DAYS",
    "times": "SELECT p.id, b.band FROM points p JOIN bands b ON p.at BETWEEN b.at - INTERVAL 9 SECONDS AND b.at",
    "floats": "SELECT p.id, b.band FROM points p JOIN bands b ON p.f >= b.f AND p.x < b.lo",
    "texts": "SELECT p.id, b.band FROM points p JOIN bands b ON p.s < b.s AND p.x BETWEEN b.lo AND b.hi",
    "functions": "SELECT p.id, b.band FROM points p JOIN bands b ON length(p.s) < b.lo AND abs(p.x - b.hi) <= 5",
    "not equal": "SELECT p.id, b.band FROM points p JOIN bands b ON p.k <> b.k AND p.id < 40",
    "or": "SELECT p.id, b.band FROM points p JOIN bands b ON p.x = b.lo OR p.x = b.hi",
}


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", TAKEN)
def test_rows_are_those_of_spark(name: str, session: SparkSession) -> None:
    expected = rows(session.sql(TAKEN[name]))
    with dovetail.enable(session):
        query = session.sql(TAKEN[name])
        assert taken(query) == 1
        assert rows(query) == expected
    assert expected.total()


@pytest.mark.parametrize("how", ["", "LEFT", "FULL", "LEFT SEMI"])
def test_only_needed_columns_are_made(how: str, session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = "s, id % 3 AS g, at" if "SEMI" in how else "p.s, b.s AS other, b.hi - p.k AS d, p.s AS again"
    query = f"SELECT {wanted} FROM points p {how} JOIN bands b ON p.x BETWEEN b.lo AND b.hi"
    expected = rows(session.sql(query))
    with dovetail.enable(session):
        (made,) = re.findall(r"DovetailJoin .*\[(.*)\]", plan(session.sql(query)))
        names = [name.split("#")[0] for name in made.split(", ")]
        assert names == (["id", "at", "s"] if "SEMI" in how else ["k", "s", "hi", "s"])
        assert rows(session.sql(query)) == expected

        def fail(*_: object) -> None:
            raise DovetailError("a fault")

        monkeypatch.setattr(replacing, "join_dataframes", fail)
        with pytest.warns(RuntimeWarning, match="a fault"):
            assert rows(session.sql(query)) == expected


def test_joins_of_joins_and_what_comes_after(session: SparkSession) -> None:
    query = """
        SELECT g, n, rank() OVER (ORDER BY n DESC, g) FROM (
            SELECT b.band % 5 AS g, count(DISTINCT q.id) AS n
            FROM points p JOIN bands b ON p.x BETWEEN b.lo AND b.hi JOIN points q ON q.x > b.hi AND q.x < b.hi + 9
            GROUP BY g)
        UNION ALL SELECT k, count(*), 0 FROM points JOIN bands USING (k) GROUP BY k
    """
    expected = rows(session.sql(query))
    with dovetail.enable(session):
        assert taken(session.sql(query)) >= 1
        assert rows(session.sql(query)) == expected


def test_dataframes(enabled: SparkSession) -> None:
    points, bands = enabled.table("points"), enabled.table("bands")

    def joined() -> DataFrame:
        on = (points.x >= bands.lo) & (points.x < bands.hi)
        return points.join(bands, on, "left").select(points.s, bands.band)

    assert taken(joined()) == 1
    found = rows(joined())
    dovetail.disable(enabled)
    assert taken(joined()) == 0
    assert rows(joined()) == found


@pytest.mark.parametrize(
    "query",
    [
        "SELECT p.id FROM points p JOIN bands b ON p.k = b.k AND p.x < b.lo",
        "SELECT p.id FROM points p CROSS JOIN bands b",
        "SELECT /*+ BROADCAST(b) */ p.id FROM points p JOIN bands b ON p.x < b.lo",
        "SELECT p.id FROM points p WHERE p.x > 900 OR EXISTS (SELECT 1 FROM bands b WHERE p.x < b.lo)",
        "SELECT p.id FROM points p WHERE p.k NOT IN (SELECT k FROM bands)",
    ],
    ids=["equal keys", "no condition", "hint", "existence", "not in"],
)
def test_what_is_left_to_spark(query: str, enabled: SparkSession) -> None:
    assert taken(enabled.sql(query)) == 0


def test_functions_of_the_session(session: SparkSession) -> None:
    """Spark itself moves Python functions out of a join."""
    session.udf.register("mine", lambda x: x + 1, "bigint")
    query = "SELECT p.id, b.band FROM points p JOIN bands b ON mine(p.x) < b.lo AND mine(p.x + b.lo) > 1000"
    expected = rows(session.sql(query))
    with dovetail.enable(session):
        assert rows(session.sql(query)) == expected


def test_few_pairs_are_left_to_spark(enabled: SparkSession) -> None:
    enabled.conf.set(replacing.LEAST_PAIRS, "1e9")
    try:
        assert taken(enabled.sql(TAKEN["between"])) == 0
    finally:
        enabled.conf.set(replacing.LEAST_PAIRS, "0")


def test_an_adaptive_plan_takes_what_turns_out_to_be_large(enabled: SparkSession) -> None:
    """Spark underestimates the rows of `explode`, and broadcasts one side before it knows their number."""
    enabled.conf.set(replacing.LEAST_PAIRS, "10")
    try:
        query = enabled.sql("""
            SELECT count(*) FROM (SELECT explode(sequence(1, 60)) AS x FROM range(1))
            JOIN (SELECT explode(sequence(1, 50)) AS y FROM range(1)) ON x < y""")
        assert taken(query) == 0
        assert [row[0] for row in query.collect()] == [49 * 50 // 2]
        assert taken(query) == 1
    finally:
        enabled.conf.set(replacing.LEAST_PAIRS, "0")


def test_nothing_runs_before_the_query(enabled: SparkSession) -> None:
    context = enabled.sparkContext
    context.setJobGroup("planning", "nothing")
    try:
        query = enabled.sql(TAKEN["left"])
        query.explain(True)
        assert taken(query) == 1
        assert len(context.statusTracker().getJobIdsForGroup("planning")) == 0
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]


def test_twice_is_once(session: SparkSession) -> None:
    with dovetail.enable(session), dovetail.enable(session):
        assert session._jsparkSession.experimental().extraStrategies().size() == 1  # type: ignore[attr-defined]
    assert taken(session.sql(TAKEN["between"])) == 0


def our_warnings(told: list[warnings.WarningMessage] | pytest.WarningsRecorder) -> list[warnings.WarningMessage]:
    """Our warnings only: PySpark 4.0 leaves sockets open, about which Python warns as well."""
    return [warning for warning in told if warning.category is RuntimeWarning]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("error", [DovetailError("no"), ZeroDivisionError("no")], ids=["expected", "unexpected"])
def test_what_fails_is_run_by_spark(error: Exception, session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(request: Any) -> DataFrame:
        raise error

    expected = rows(session.sql(TAKEN["left"]))
    monkeypatch.setattr(replacing, "join_dataframes", fail)
    with dovetail.enable(session), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        query = session.sql(TAKEN["left"])
        assert taken(query) == 1
        assert rows(query) == expected
    assert "Spark runs a join that Dovetail was to run: " in str(our_warnings(told)[-1].message)


def test_cached_tables_and_without_adaptive_plans(session: SparkSession) -> None:
    expected = rows(session.sql(TAKEN["aggregate"]))
    session.conf.set("spark.sql.adaptive.enabled", "false")
    try:
        with dovetail.enable(session):
            joined = session.sql(TAKEN["between"]).cache()
            assert joined.count() == joined.filter(F.col("id") >= 0).count()
            joined.unpersist()
            assert rows(session.sql(TAKEN["aggregate"])) == expected
    finally:
        session.conf.unset("spark.sql.adaptive.enabled")


def test_only_classic_sessions() -> None:
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    with pytest.raises(InputError, match="Spark Connect"):
        dovetail.enable(ConnectSession.__new__(ConnectSession))  # type: ignore[arg-type]


# Dovetail's own queries in an enabled session.


@pytest.mark.parametrize("how", ["LEFT", "FULL"])
def test_a_join_that_dovetail_itself_gives_to_spark(how: str, session: SparkSession) -> None:
    """Here an expression that only Spark can evaluate decides which rows have a partner."""
    query = f"SELECT p.id, b.band FROM points p {how} JOIN bands b ON p.x < b.lo AND levenshtein(p.s, b.s) < 2"
    points, bands = session.table("points"), session.table("bands")
    expected = rows(session.sql(query))
    with dovetail.enable(session):
        assert taken(session.sql(query)) == 0
        joined = dovetail.join(points, bands, "l.x < r.lo AND levenshtein(l.s, r.s) < 2", how)
        assert rows(joined.select("id", "band")) == expected


def test_what_fails_outside_does_not_fail_inside(session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark runs the join that fails, and Dovetail those in its inputs."""
    query = """SELECT q.id, j.band FROM points q LEFT JOIN (
        SELECT p.id, b.band FROM points p JOIN bands b ON p.x BETWEEN b.lo AND b.hi) j
        ON q.id > j.id AND q.x < j.band"""
    join_dataframes, asked = replacing.join_dataframes, []

    def fail(request: Any) -> DataFrame:
        asked.append(request.how)
        if request.how == "left":
            raise ZeroDivisionError("no")
        return join_dataframes(request)

    expected = rows(session.sql(query))
    monkeypatch.setattr(replacing, "join_dataframes", fail)
    with dovetail.enable(session), pytest.warns(RuntimeWarning, match="ZeroDivisionError") as told:
        assert rows(session.sql(query)) == expected
    assert set(asked) == {"left", "inner"}
    assert len(our_warnings(told)) == 1
