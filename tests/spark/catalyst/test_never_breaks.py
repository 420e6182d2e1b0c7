"""Dovetail in a session does not break other features of queries, sessions and programs: rows are the same."""

from __future__ import annotations

import signal
import threading
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.effort import some
from tests.spark.catalyst.queries import rows, taken

import dovetail
from dovetail.spark.catalyst import replacing

pytestmark = pytest.mark.spark

LEFT = """
    SELECT id, (id * 37) % 101 AS x, IF(id % 6 = 0, NULL, id % 4) AS k,
        CASE WHEN id % 9 = 0 THEN CAST('NaN' AS DOUBLE) WHEN id % 7 = 0 THEN -0.0D ELSE id / 8 - 3 END AS f,
        CAST(id AS DECIMAL(20, 3)) / 7 AS d, TIMESTAMP '2024-03-30 22:00:00' + make_dt_interval(0, 0, id * 5) AS at,
        TIMESTAMP_NTZ '2024-03-30 22:00:00' + make_dt_interval(0, 0, id * 5) AS wall,
        make_dt_interval(0, id) AS span, make_ym_interval(0, CAST(id AS INT)) AS months,
        IF(id % 2 = 0, 'ä', 'Z') || id % 10 AS s, array(id, NULL) AS items, struct(id AS a, 'b' AS b) AS pair,
        map('k', id) AS named, parse_json('{"n": ' || id || '}') AS any, CAST('ab' AS BINARY) AS raw
    FROM range(60)
"""
RIGHT = LEFT.replace("id * 37", "id * 53").replace("id / 8 - 3", "id / 9 - 2")
BETWEEN = "r.x BETWEEN l.x AND l.x + 7"

CONDITIONS = {
    "NaN and zeros": "l.f <= r.f AND r.x < l.x",
    "decimals": "l.d < r.d AND r.d < l.d + 1.5",
    "times": "r.at BETWEEN l.at AND l.at + INTERVAL 20 MINUTES",
    "wall clocks": "r.wall BETWEEN l.wall AND l.wall + INTERVAL 20 MINUTES",
    "times and wall clocks": "l.at < r.wall AND r.at < l.at + INTERVAL 1 HOUR",
    "dates of times": "CAST(l.at AS DATE) < CAST(r.at AS DATE) AND l.x > r.x",
    "intervals": "l.span < r.span AND r.span < l.span + INTERVAL 3 HOURS",
    "months": "l.months < r.months AND r.x < l.x",
    "texts": "l.s < r.s AND l.x < r.x",
    "collations": "collate(l.s, 'UNICODE_CI') < collate(r.s, 'UNICODE_CI') AND l.x < r.x",
    "nulls": "l.k <= r.k AND l.x < r.x",
    "null-safe": "l.k <=> r.k AND l.x < r.x",
    "overflow in a cast": "CAST(l.f AS INT) < r.x AND r.x < l.x",
    "text and number": "l.x < CAST(r.x AS STRING) AND r.x < l.x",
    "fields": "l.pair.a < r.pair.a AND r.pair.a < l.pair.a + 4",
    "elements": "element_at(l.items, 1) < r.x AND r.x < l.x",
    "maps": "l.named['k'] < r.x AND r.x < l.x",
    "variants": "variant_get(l.any, '$.n', 'int') < r.x AND r.x < l.x",
    "case": "CASE WHEN l.k = 1 THEN l.x ELSE r.x END > 40 AND l.x < r.x",
    "like": "l.s LIKE concat(substr(r.s, 1, 1), '%') AND l.x < r.x",
    "in a set": "l.k IN (1, 2) AND l.x < r.x",
    "not": "NOT (l.x >= r.x) AND NOT (r.x > l.x + 9)",
    "or": "(l.x < r.x AND r.x < l.x + 3) OR l.k = r.k + 1",
    "random": "l.x < r.x AND rand(3) < 0",
    "a constant": "l.x < r.x AND current_date() > DATE '2020-01-01'",
    "a session's time": "l.x < r.x AND l.at < current_timestamp()",
    "a date in a text": "date_format(l.at, 'yyyy-MM-dd HH') < date_format(r.at, 'yyyy-MM-dd HH') AND r.x < l.x",
    "an hour": "hour(l.at) < hour(r.at) AND r.x < l.x",
}
SETTINGS: dict[str, dict[str, str]] = {
    "as they are": {},
    "without ANSI, in Berlin": {"spark.sql.ansi.enabled": "false", "spark.sql.session.timeZone": "Europe/Berlin"},
    "fixed plans, in Sydney": {"spark.sql.adaptive.enabled": "false", "spark.sql.session.timeZone": "Australia/Sydney"},
    "no broadcasts": {"spark.sql.autoBroadcastJoinThreshold": "-1", "spark.sql.cbo.enabled": "true"},
}
QUERIES = {
    "whole rows": f"SELECT * FROM l JOIN r ON {BETWEEN}",
    "left": f"SELECT l.*, r.named FROM l LEFT JOIN r ON {BETWEEN} AND l.k = 1",
    "recursion": """WITH RECURSIVE up(n, x) AS (
        SELECT 1, x FROM l WHERE id < 3 UNION ALL
        SELECT n + 1, r.x FROM up JOIN r ON r.x > up.x AND r.x < up.x + 5 WHERE n < 4) SELECT n, x FROM up""",
    "a table twice": f"WITH j AS (SELECT l.id, r.id AS o FROM l JOIN r ON {BETWEEN}) "
    "SELECT a.id, b.o FROM j a JOIN j b ON a.id = b.id AND a.o < b.o UNION ALL SELECT id, o FROM j",
    "three": f"SELECT l.id, r.id, t.id FROM l JOIN r ON {BETWEEN} JOIN l t ON t.x > r.x AND t.x < r.x + 5",
    "a scalar subquery": f"SELECT l.id FROM l JOIN r ON {BETWEEN} AND l.id > (SELECT avg(id) FROM r)",
    "a filtered input": f"SELECT l.id FROM (SELECT * FROM l WHERE x > (SELECT min(x) FROM r)) l JOIN r ON {BETWEEN}",
    "the same subquery": "SELECT (SELECT count(*) FROM {0}), (SELECT count(*) FROM {0})".format(
        f"l JOIN r ON {BETWEEN}"
    ),
    "exists or not": "SELECT id FROM l WHERE EXISTS (SELECT 1 FROM r WHERE r.x > l.x AND r.x < l.x + 2) "
    "AND NOT EXISTS (SELECT 1 FROM r WHERE r.f > l.f AND r.x < l.x)",
    "lateral": "SELECT l.id, q.n FROM l, LATERAL (SELECT count(*) AS n FROM r WHERE r.x > l.x) q",
    "a window": "SELECT id, rank() OVER (PARTITION BY k ORDER BY o) "
    f"FROM (SELECT l.id, l.k, r.id AS o FROM l JOIN r ON {BETWEEN})",
    "a limit": f"SELECT count(*) FROM (SELECT l.id FROM l JOIN r ON {BETWEEN} ORDER BY l.id LIMIT 7)",
    "no rows": f"SELECT l.id, r.id FROM l LEFT JOIN (SELECT * FROM r WHERE id < 0) r ON {BETWEEN}",
    "no columns": f"SELECT count(*) FROM l JOIN r ON {BETWEEN}",
    "random inputs": f"SELECT count(*) > 0 FROM (SELECT *, rand() AS u FROM l) l JOIN r ON {BETWEEN} AND l.u < 2",
    "explode": f"SELECT l.id, i FROM l JOIN r ON {BETWEEN} LATERAL VIEW explode(l.items) AS i",
    "pivot": f"SELECT * FROM (SELECT l.k, r.id FROM l JOIN r ON {BETWEEN}) PIVOT (count(id) FOR k IN (1, 2))",
    "range hint": f"SELECT /*+ RANGE_JOIN(r, 10) */ l.id, r.id FROM l JOIN r ON {BETWEEN}",
    "a hint": f"SELECT /*+ SHUFFLE_REPLICATE_NL(r) */ l.id, r.id FROM l JOIN r ON {BETWEEN}",
    "a result broadcast": "SELECT /*+ BROADCAST(j) */ j.id, r.x "
    f"FROM (SELECT l.id FROM l JOIN r ON {BETWEEN}) j JOIN r ON j.id = r.id",
}


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    session = spark.newSession()
    session.conf.set(replacing.LEAST_PAIRS, "0")
    session.sql(LEFT).createOrReplaceTempView("l")
    session.sql(RIGHT).createOrReplaceTempView("r")
    return session


@pytest.fixture(autouse=True)
def silent() -> Iterator[None]:
    """No warnings: plans that Dovetail does not know are left alone silently."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", RuntimeWarning)
        yield
    assert not [str(one.message) for one in told if one.category is RuntimeWarning]


def outcome(session: SparkSession, query: str) -> Counter[str] | str:
    """Rows, or the class of the error that Spark raises."""
    try:
        return rows(session.sql(query))
    except Exception as error:
        return getattr(error, "getCondition", lambda: None)() or type(error).__name__


def compare(session: SparkSession, queries: list[str]) -> int:
    """Compare outcomes. Returns the number of queries that have rows."""
    expected = [outcome(session, query) for query in queries]
    with dovetail.enable(session):
        found = [outcome(session, query) for query in queries]
    for query, one, other in zip(queries, expected, found, strict=True):
        assert one == other, query
    return sum(isinstance(one, Counter) and one.total() > 0 for one in expected)


@pytest.mark.one_in(12)
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("how", ["JOIN", "LEFT ANTI JOIN", "FULL JOIN"])
def test_conditions(how: str, settings: str, session: SparkSession) -> None:
    for name, value in SETTINGS[settings].items():
        session.conf.set(name, value)
    try:
        columns = "l.id" if "ANTI" in how else "l.id AS one, r.id AS other"
        assert compare(
            session, [f"SELECT {columns} FROM l {how} r ON {on}" for on in some([*CONDITIONS.values()], of=4)]
        )
    finally:
        for name in SETTINGS[settings]:
            session.conf.unset(name)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("settings", SETTINGS)
def test_queries(settings: str, session: SparkSession) -> None:
    for name, value in SETTINGS[settings].items():
        session.conf.set(name, value)
    try:
        queries = some([*QUERIES.values()], of=3)
        assert compare(session, [*queries]) >= len(queries) - 2
    finally:
        for name in SETTINGS[settings]:
            session.conf.unset(name)


JOINED = f"SELECT l.id, r.id AS other, l.named FROM l JOIN r ON {BETWEEN}"


@pytest.fixture(scope="module")
def joined(session: SparkSession) -> Counter[str]:
    return rows(session.sql(JOINED))


@pytest.mark.parametrize("mode", ["simple", "extended", "formatted", "cost", "codegen"])
def test_every_way_to_explain(mode: str, enabled: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    enabled.sql(JOINED).explain(mode=mode)
    shown = capsys.readouterr().out
    assert mode == "codegen" or "DovetailJoin" in shown
    assert mode != "formatted" or "Join condition: ((x" in shown


def test_metrics(enabled: SparkSession, joined: Counter[str]) -> None:
    query = enabled.sql(JOINED)
    query.collect()
    plan: Any = query._jdf.queryExecution().executedPlan()
    while plan.nodeName() != "DovetailJoin":
        plan = plan.executedPlan() if plan.nodeName() == "AdaptiveSparkPlan" else plan.children().apply(0)
    assert plan.longMetric("numOutputRows").value() == joined.total()
    assert plan.longMetric("planTime").value() > 0


def test_caches_before_and_after(enabled: SparkSession, joined: Counter[str]) -> None:
    left = enabled.table("l").cache()
    left.count()
    result = enabled.sql(JOINED).cache()
    try:
        assert taken(result)
        assert rows(result) == joined
        assert rows(result.filter("id >= 0")) == joined
        enabled.catalog.clearCache()
        assert rows(result) == joined  # computed a second time
    finally:
        enabled.catalog.clearCache()


def test_the_same_frame_again_and_in_parts(enabled: SparkSession, joined: Counter[str]) -> None:
    result = enabled.sql(JOINED)
    assert rows(result) == rows(result) == joined
    assert result.count() == len(list(result.toLocalIterator())) == len(result.toPandas()) == joined.total()
    assert len(result.take(3)) == 3
    assert not result.isEmpty()
    assert result.rdd.count() == joined.total()
    both = result.unionAll(result).groupBy("id", "other").count()
    assert {row["count"] for row in both.collect()} == {2}


def test_threads(enabled: SparkSession, joined: Counter[str]) -> None:
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(rows(enabled.sql(JOINED)))
        except BaseException as error:
            found.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [joined] * 4


@pytest.mark.parametrize("make", ["newSession", "cloneSession"])
def test_other_sessions_have_their_own_settings(make: str, enabled: SparkSession) -> None:
    """A copied session inherits the strategy, but joins use the copy's own time zone."""
    made: Any = getattr(enabled._jsparkSession, make)()
    other = SparkSession(enabled.sparkContext, made)
    other.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    other.conf.set(replacing.LEAST_PAIRS, "0")
    for name, text in (("l", LEFT), ("r", RIGHT)):
        other.sql(text).createOrReplaceTempView(name)
    query = "SELECT l.id, r.id FROM l JOIN r ON CAST(l.at AS STRING) < CAST(r.at AS STRING) AND hour(l.at) > hour(r.at)"
    dovetail.disable(other)
    expected = rows(other.sql(query))
    with dovetail.enable(other):
        assert taken(other.sql(query))
        assert rows(other.sql(query)) == expected


def test_written_and_created(enabled: SparkSession, joined: Counter[str], tmp_path: Path) -> None:
    enabled.sql(JOINED).write.parquet(str(tmp_path / "out"))
    assert rows(enabled.read.parquet(str(tmp_path / "out"))) == joined
    enabled.sql("DROP TABLE IF EXISTS made_of_a_join")
    enabled.sql(f"CREATE TABLE made_of_a_join USING parquet LOCATION '{tmp_path / 'table'}' AS {JOINED}")
    try:
        assert rows(enabled.table("made_of_a_join")) == joined
        enabled.sql("INSERT INTO made_of_a_join " + JOINED)
        assert enabled.table("made_of_a_join").count() == 2 * joined.total()
    finally:
        enabled.sql("DROP TABLE made_of_a_join")


def test_columns_of_fixed_length_and_partitions(session: SparkSession, tmp_path: Path) -> None:
    session.sql(
        f"CREATE TABLE fixed_length(c CHAR(5), v VARCHAR(5), n INT, p INT) USING parquet PARTITIONED BY (p) "
        f"LOCATION '{tmp_path / 'fixed'}'"
    )
    try:
        session.sql("INSERT INTO fixed_length SELECT 'a' || id % 7, 'b' || id % 5, id, id % 3 FROM range(40)")
        queries = [
            "SELECT a.n, b.n FROM fixed_length a JOIN fixed_length b ON a.c < b.c AND a.n > b.n",
            "SELECT a.n, b.n FROM fixed_length a JOIN fixed_length b ON a.v < b.v AND a.n > b.n AND a.p = 1",
            # a partition filter that is only known when the query runs
            """SELECT f.n, q.id FROM fixed_length f JOIN (SELECT id FROM l WHERE k = 1) d ON f.p = d.id
                JOIN r q ON q.x > f.n AND q.x < f.n + 9""",
        ]
        assert compare(session, queries) == len(queries)
    finally:
        session.sql("DROP TABLE fixed_length")


def test_what_the_text_of_a_condition_does_not_say(session: SparkSession) -> None:
    """Spark prints the second 2:30 of that night like the first; a view computes in the zone where it was created."""
    late = "l.x < r.x AND l.at + INTERVAL 211 DAYS > TIMESTAMP '2024-10-27 02:30:00+01:00'"
    session.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        assert compare(session, [f"SELECT l.id AS one, r.id AS other FROM l LEFT JOIN r ON {late}"]) == 1
        session.sql("CREATE OR REPLACE TEMPORARY VIEW days AS SELECT l.id, r.id AS other FROM l JOIN r "
                    "ON CAST(l.at AS DATE) < CAST(r.at AS DATE) AND hour(l.at) > hour(r.at)")  # fmt: skip
        session.conf.set("spark.sql.session.timeZone", "America/New_York")
        session.conf.set("spark.sql.ansi.enabled", "false")
        session.sql("CREATE OR REPLACE TEMPORARY VIEW sums AS SELECT l.id, r.id AS other FROM l JOIN r "
                    "ON l.id + 9223372036854775800 < r.id AND l.x > r.x")  # fmt: skip
        session.conf.unset("spark.sql.ansi.enabled")
        assert compare(session, ["SELECT * FROM days", "SELECT * FROM sums"]) == 2
    finally:
        session.conf.unset("spark.sql.ansi.enabled")
        session.conf.unset("spark.sql.session.timeZone")


def test_a_batch_of_a_stream(enabled: SparkSession, tmp_path: Path) -> None:
    enabled.range(50).selectExpr("id AS x").write.parquet(str(tmp_path / "in"))
    found: list[int] = []

    def join_batch(batch: DataFrame, number: int) -> None:
        batch.createOrReplaceTempView("batch")
        found.append(
            batch.sparkSession.sql("SELECT * FROM batch JOIN r ON batch.x < r.x AND r.x < batch.x + 3").count()
        )

    stream = enabled.readStream.schema("x bigint").parquet(str(tmp_path / "in"))
    stream.writeStream.foreachBatch(join_batch).trigger(availableNow=True).start().awaitTermination()
    expected = enabled.sql("SELECT count(*) FROM range(50) b JOIN r ON b.id < r.x AND r.x < b.id + 3").collect()[0][0]
    assert sum(found) == expected


def test_functions_of_the_user(session: SparkSession) -> None:
    session.udf.register("plus_one", lambda x: x + 1, "bigint")
    compare(session, ["SELECT l.id, r.id FROM l JOIN r ON plus_one(l.x) < r.x AND r.x < l.x + 5",
                      "SELECT plus_one(l.id), r.id FROM l JOIN r ON l.x < r.x AND r.x < l.x + 5"])  # fmt: skip
    session.sql("CREATE OR REPLACE TEMPORARY FUNCTION twice(n BIGINT) RETURNS BIGINT RETURN 2 * n")
    compare(session, ["SELECT l.id, r.id FROM l JOIN r ON twice(l.x) < r.x AND r.x < 3 * l.x"])


def test_errors_of_rows_stay(session: SparkSession) -> None:
    """An error that Spark would raise is raised, by Spark or by us; a warning says that Spark has retried the join."""
    query = "SELECT l.id, r.id FROM l JOIN r ON 1 / (l.id - l.id) < r.x AND r.x < l.x"
    expected = outcome(session, query)
    with dovetail.enable(session), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert outcome(session, query) == expected
    assert isinstance(expected, str)


def test_a_cancelled_query_is_not_run_by_spark(enabled: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    def cancel(request: Any) -> DataFrame:
        raise RuntimeError("[SPARK_JOB_CANCELLED] Job 3 cancelled part of cancelled job group")

    monkeypatch.setattr(replacing, "join_dataframes", cancel)
    with pytest.raises(Exception, match="SPARK_JOB_CANCELLED"):
        enabled.sql(JOINED).collect()


@pytest.mark.parametrize(("owner", "name"), [(replacing.Planner, "refuse"), (replacing, "join_dataframes")])
def test_an_interrupt_ends_the_query_and_not_the_session(
    owner: Any, name: str, enabled: SparkSession, joined: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planning calls Python in the thread that receives the signal; an adaptive plan is executed in another thread."""
    if pyspark.__version__ < "4.2":
        pytest.skip("PySpark then cancels jobs over the connection that it is reading from")
    function = getattr(owner, name)

    def interrupt(*given: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return function(*given)

    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(owner, name, interrupt)
    with pytest.raises(BaseException) as raised:  # noqa: PT011
        enabled.sql(JOINED).collect()
    assert "KeyboardInterrupt" in f"{raised.value!r} {raised.value}"
    monkeypatch.undo()
    assert signal.getsignal(signal.SIGINT) is before
    assert rows(enabled.sql(JOINED)) == joined


def test_switched_off_by_a_setting(enabled: SparkSession) -> None:
    enabled.sql("SET spark.dovetail.enabled=false")
    try:
        assert not taken(enabled.sql(JOINED))
        assert "spark.dovetail.enabled is false" in str(dovetail.explain(enabled.sql(JOINED)))
    finally:
        enabled.conf.unset("spark.dovetail.enabled")


def test_python_that_fails_leaves_the_join_to_spark(
    enabled: SparkSession, joined: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> str:
        raise ZeroDivisionError("no")

    monkeypatch.setattr(replacing.Planner, "refuse", fail)
    with pytest.warns(RuntimeWarning, match="Spark runs a join that Dovetail was to run: ZeroDivisionError: no"):
        assert rows(enabled.sql(JOINED)) == joined
