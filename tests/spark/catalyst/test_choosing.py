"""Which joins Dovetail runs, by number of pairs and by equal keys with few values, and how explain shows them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.spark.catalyst.queries import taken

import dovetail
from dovetail.errors import InputError
from dovetail.spark.catalyst import replacing
from dovetail.spark.session.java import ensure_java

pytestmark = pytest.mark.spark

ROWS = 3000


@pytest.fixture(scope="module")
def session(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with two tables of Parquet files, one of which has several row groups."""
    session = spark.newSession()
    place = tmp_path_factory.mktemp("choosing")
    n = np.arange(ROWS)
    table = pa.table(
        {"id": n, "x": n * 7919 % 100_003, "y": n, "few": n % 3, "many": n // 2, "city": [f"c{i % 4}" for i in n]}
    )
    pq.write_table(table, place / "one.parquet", row_group_size=1000)
    pq.write_table(table.set_column(1, "x", pa.array(n * 104729 % 100_003)), place / "other.parquet")
    for name in ("one", "other"):
        session.read.parquet(str(place / f"{name}.parquet")).createOrReplaceTempView(name)
    session.conf.set(replacing.LEAST_PAIRS, str(ROWS * ROWS / 10))
    with dovetail.enable(session):
        yield session


CHOICES = {
    "a range": ("a.x BETWEEN b.x AND b.y", True),
    "few equal numbers": ("a.few = b.few AND a.x BETWEEN b.x AND b.x + 30", True),
    "few equal texts": ("a.city = b.city AND a.x BETWEEN b.x AND b.x + 30", True),
    "two keys with few values": ("a.city = b.city AND a.few = b.few AND a.x < b.x", False),
    "a remainder": ("a.id % 2 = b.id % 2 AND a.x BETWEEN b.x AND b.x + 30", True),
    "a truth": ("(a.y > 7) = (b.y > 9) AND a.x BETWEEN b.x AND b.x + 30", True),
    "many equal keys": ("a.many = b.many AND a.x < b.x", False),
    "equal keys alone": ("a.few = b.few", False),
}


@pytest.mark.parametrize("name", CHOICES)
def test_equal_keys(name: str, session: SparkSession) -> None:
    on, expected = CHOICES[name]
    query = session.sql(f"SELECT a.id, b.id FROM one a JOIN other b ON {on}")
    assert taken(query) == expected, dovetail.explain(query)


def test_rows_of_equal_keys_and_a_range(session: SparkSession) -> None:
    on = " UNION ALL ".join(
        f"SELECT a.id, b.id FROM one a {how} other b ON {CHOICES[name][0]}"
        for name, how in (("few equal numbers", "JOIN"), ("few equal texts", "LEFT JOIN"), ("a remainder", "FULL JOIN"))
    )
    found = Counter(session.sql(on).collect())
    session.conf.set("spark.dovetail.enabled", "false")
    try:
        assert Counter(session.sql(on).collect()) == found
    finally:
        session.conf.unset("spark.dovetail.enabled")


def test_keys_by_statistics(session: SparkSession) -> None:
    session.sql("DROP TABLE IF EXISTS analysed")
    session.sql("CREATE TABLE analysed USING json AS SELECT * FROM one")
    try:
        query = "SELECT a.id, b.id FROM analysed a JOIN analysed b ON a.few = b.few AND a.x < b.x"
        session.conf.set("spark.sql.cbo.enabled", "true")
        assert not taken(session.sql(query))
        session.sql("ANALYZE TABLE analysed COMPUTE STATISTICS FOR ALL COLUMNS")
        assert taken(session.sql(query))
    finally:
        session.conf.unset("spark.sql.cbo.enabled")
        session.sql("DROP TABLE analysed")


def test_rows_of_parquet_files_are_known(session: SparkSession) -> None:
    """Estimated from bytes, the number would be a fraction of it."""
    joins = dovetail.explain(
        session.sql("SELECT 1 FROM one a JOIN (SELECT * FROM other WHERE id > 5) b ON a.x < b.x")
    ).joins
    assert [round(rows, -2) for rows in joins[0].rows] == [ROWS, ROWS]


def test_explain(session: SparkSession) -> None:
    query = session.sql("""
        SELECT count(*) FROM one a JOIN other b ON a.many = b.many LEFT JOIN one c ON c.x BETWEEN a.x AND a.x + 5
        WHERE a.id > (SELECT avg(p.id) FROM one p JOIN other q ON p.x < q.x AND p.y > q.y AND q.id < 100)""")
    explained = dovetail.explain(query)
    assert sorted((join.how, join.taken) for join in explained.joins) == [
        ("inner", False),
        ("inner", True),
        ("left outer", True),
    ]
    assert explained.taken == 2
    text = str(explained)
    assert "run by     Spark: it has equal keys" in text
    assert "run by     Dovetail: Spark would compare all these pairs" in text
    assert "pairs      about 9.0e6" in text
    dovetail.disable(session)
    try:
        assert "dovetail.enable(spark) has not been called" in str(dovetail.explain(query))
    finally:
        dovetail.enable(session)
    assert str(dovetail.explain(session.range(3))) == "The query has no joins."
    assert dovetail.explain(session.range(3), session.range(3), "l.id < r.id").how == "inner"


def test_explain_says_what_it_takes() -> None:
    with pytest.raises(InputError, match="one DataFrame of Spark; got one Table"):
        dovetail.explain(pa.table({"a": [1]}))


PROGRAM = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.range(10).createOrReplaceTempView("a")
query = spark.sql("SELECT /*+ RANGE_JOIN(b, 5), NOT_KNOWN(b) */ count(*) FROM a JOIN a b ON a.id < b.id")
print(sys.argv[1:], __name__, query.collect(), "DovetailJoin" in query._jdf.queryExecution().executedPlan().toString())
"""


@pytest.mark.slow
@pytest.mark.parametrize("on", ["true", "false"])
def test_a_program_that_is_not_edited(on: str, tmp_path: Path) -> None:
    program = tmp_path / "job.py"
    program.write_text(PROGRAM)
    settings = {"spark.dovetail.enabled": on, "spark.dovetail.leastPairs": "0"}
    submitted = " ".join(f"--conf {name}={value}" for name, value in settings.items()) + " pyspark-shell"
    command = [sys.executable, "-m", "dovetail.spark.run", str(program), "--its", "arguments"]
    environment = {**os.environ, "PYSPARK_SUBMIT_ARGS": submitted, "JAVA_HOME": str(ensure_java())}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True, env=environment)
    assert done.stdout.strip() == f"['--its', 'arguments'] __main__ [Row(count(1)=45)] {on == 'true'}"
    assert "NOT_KNOWN" in done.stderr
    assert ("RANGE_JOIN" in done.stderr) == (on == "false")
