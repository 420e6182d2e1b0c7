"""The best partners of rows of DataFrames, against the definition, for all execution strategies."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.best_oracle import ROW, Keys, check, numbered, partners
from tests.seed import generator

import dovetail
from dovetail.condition.best import Best, parse_best
from dovetail.condition.spellings import spell_asof, spell_nearest
from dovetail.errors import InputError, PlanError
from dovetail.spark.best import ranges

pytestmark = pytest.mark.spark

Tables = tuple[pa.Table, pa.Table]
Frames = tuple[DataFrame, DataFrame]


def _rows(name: str, rows: int) -> pa.Table:
    """A table with many equal times, one key in half of the rows, nulls and NaN."""
    rng = generator("best on spark", name)
    unknown = rng.random(rows) < 0.06
    second = np.where(rng.random(rows) < 0.5, 7, rng.integers(0, 12, rows))
    x = np.where(rng.random(rows) < 0.04, np.nan, rng.integers(-40, 40, rows) / 4)
    x[rng.random(rows) < 0.02] = np.inf
    x[rng.random(rows) < 0.02] = -0.0
    table = pa.table(
        {
            "t": pa.array(rng.integers(0, 90, rows) * 500_000, pa.timestamp("us", "UTC"), mask=unknown),
            "k": pa.array(second, mask=rng.random(rows) < 0.05),
            "s": pa.array([f"S{number}" for number in second], mask=rng.random(rows) < 0.05),
            "x": pa.array(x, mask=rng.random(rows) < 0.03),
            "y": rng.normal(0, 4, rows),
            "n": rng.integers(-60, 60, rows),
            "d": pa.array(rng.integers(0, 30, rows).astype("datetime64[D]"), mask=unknown),
            "end": rng.integers(0, 20, rows),
        }
    )
    table = table.set_column(7, "end", pa.array(np.asarray(table["n"]) + np.asarray(table["end"])))
    return numbered(table)


@pytest.fixture(scope="module")
def tables() -> Tables:
    return _rows("left", 400), _rows("right", 300)


@pytest.fixture(scope="module")
def frames(spark: SparkSession, tables: Tables) -> Frames:
    left, right = (spark.createDataFrame(table).repartition(2).cache() for table in tables)
    return left, right


@pytest.fixture(scope="module")
def files(spark: SparkSession, tables: Tables, tmp_path_factory: pytest.TempPathFactory) -> Frames:
    """The same rows in Parquet files of several row groups."""
    place = tmp_path_factory.mktemp("best")
    for name, table in zip(("left", "right"), tables, strict=True):
        pq.write_table(table, place / f"{name}.parquet", row_group_size=90)
    return spark.read.parquet(str(place / "left.parquet")), spark.read.parquet(str(place / "right.parquet"))


@pytest.fixture
def cut_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Split time ranges even for few rows, and for keys with half of them."""
    monkeypatch.setattr(ranges, "SAMPLE", 256)
    monkeypatch.setattr(ranges, "ENOUGH", 0.5)
    monkeypatch.setattr(ranges, "HEAVY", 0.5)


def _check(found: DataFrame, how: str, on: str, best: Best, tables: Tables) -> None:
    rows = found.select(f"`{ROW}`", f"`{ROW}_right`").toArrow()
    keys = partners(on, best, *tables)
    check(_ordered(rows, keys), how, best, keys, tables[0].num_rows)


def _ordered(rows: pa.Table, keys: Keys) -> pa.Table:
    """Rows sorted by the left side, then the best partner first, since frames have no order."""
    pairs = list(zip(rows[ROW].to_pylist(), rows[f"{ROW}_right"].to_pylist(), strict=True))
    pairs.sort(key=lambda pair: (pair[0], () if pair[1] is None else keys[pair]))
    return pa.table({ROW: [pair[0] for pair in pairs], f"{ROW}_right": [pair[1] for pair in pairs]})


AS_OF: list[dict[str, Any]] = [
    {"on": "t", "by": "k"},
    {"on": "t", "by": ["k", "s"], "direction": "forward", "how": "inner"},
    {"on": "t", "by": "s", "direction": "nearest", "tolerance": timedelta(seconds=2)},
    {"on": "t", "direction": "nearest", "exact": False},
    {"on": "x", "direction": "nearest"},
    {"on": "x", "by": "k", "direction": "nearest", "tolerance": 0.5},
    {"on": "x", "exact": False, "tolerance": 1},
    {"on": "n", "direction": "forward", "exact": False, "tolerance": 3},
    {"on": "n", "by": "x", "direction": "nearest", "how": "inner"},
    {"on": "d", "tolerance": "1 day", "exact": False},
    {"on": "s", "by": "k", "direction": "forward"},
    {"on": "t", "direction": "nearest", "by": "k", "exact": False, "tolerance": "1s"},  # in cells
]


def _check_as_of(case: int, frames: Frames, tables: Tables) -> None:
    options = {"how": "left", **AS_OF[case]}
    found = dovetail.asof(*frames, **options)
    schemas = (tables[0].schema, tables[1].schema)
    spelled = spell_asof(
        schemas,
        options["on"],
        options.get("by"),
        options.get("direction", "backward"),
        options.get("tolerance"),
        options.get("exact", True),
    )
    best = parse_best(1, spelled.order_by, "any", schemas, is_distance=spelled.is_distance)
    _check(found, options["how"], spelled.on, best, tables)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("case", range(len(AS_OF)))
def test_as_of_is_the_definition(frames: Frames, tables: Tables, cut_early: None, case: int) -> None:
    _check_as_of(case, frames, tables)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("case", range(len(AS_OF)))
def test_as_of_of_files_is_the_definition(files: Frames, tables: Tables, cut_early: None, case: int) -> None:
    _check_as_of(case, files, tables)


def test_files_are_sampled_without_a_job(files: Frames, cut_early: None, monkeypatch: pytest.MonkeyPatch) -> None:
    context = files[0].sparkSession.sparkContext
    context.setJobGroup("sampling", "nothing")
    try:
        plan = dovetail.explain(*(frame.where("n < 50") for frame in files), "t", of="asof", by="k")
        assert "ranges for one heavy key" in str(plan)
        assert len(context.statusTracker().getJobIdsForGroup("sampling")) == 0
        monkeypatch.setattr(ranges, "READ_HERE", 0)
        assert "ranges for one heavy key" in str(dovetail.explain(*files, "t", of="asof", by="k"))
        assert len(context.statusTracker().getJobIdsForGroup("sampling")) == 1
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]


NEAREST: list[dict[str, Any]] = [
    {"on": "x"},
    {"on": "x", "by": "k", "k": 3, "ties": "all"},
    {"on": ["x", "y"], "k": 2},
    {"on": ["x", "y"], "k": 2, "within": 1.5, "how": "inner"},
    {"on": ("n", "end"), "by": "s"},
    {"on": ("n", "end"), "direction": "upstream"},
]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("case", range(len(NEAREST)))
def test_nearest_is_the_definition(frames: Frames, tables: Tables, cut_early: None, case: int) -> None:
    options = {"how": "left", **NEAREST[case]}
    found = dovetail.nearest(*frames, **options)
    schemas = (tables[0].schema, tables[1].schema)
    spelled = spell_nearest(
        schemas, options["on"], options.get("by"), options.get("within"), options.get("direction", "both")
    )
    ties = options.get("ties", "any")
    best = parse_best(options.get("k", 1), spelled.order_by, ties, schemas, is_distance=spelled.is_distance)
    _check(found, options["how"], spelled.on, best, tables)


TOP: list[tuple[str, dict[str, Any]]] = [
    ("l.k = r.k", {"top": 1}),
    ("l.k = r.k AND l.x < r.x", {"top": 2, "order_by": ["abs(l.n - r.n)", "r.s DESC"]}),
    ("l.n < r.n AND l.y > r.y", {"top": 1, "order_by": "r.t DESC NULLS FIRST", "how": "inner"}),
    ("abs(l.x - r.x) <= 1 OR l.n = r.n", {"top": 3, "order_by": "r.y", "ties": "all"}),
    ("l.t >= r.t AND l.n > 0", {"top": 1, "order_by": "r.t DESC"}),
    ("levenshtein(l.s, r.s) < 1 AND l.n = r.n", {"top": 2, "order_by": "r.y"}),  # computed by Spark
]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("case", range(len(TOP)))
def test_top_is_the_definition(frames: Frames, tables: Tables, cut_early: None, case: int) -> None:
    on, options = TOP[case]
    options = {"how": "left", **options}
    found = dovetail.join(*frames, on, **options)
    schemas = (tables[0].schema, tables[1].schema)
    best = parse_best(options["top"], options.get("order_by"), options.get("ties", "any"), schemas)
    _check(found, options["how"], on.replace("levenshtein(l.s, r.s) < 1", "l.s = r.s"), best, tables)


def test_names_and_columns_are_those_of_joins_in_process(frames: Frames, tables: Tables) -> None:
    wanted = dovetail.asof(*tables, "t", by="k", suffix="_of_quote")
    assert dovetail.asof(*frames, "t", by="k", suffix="_of_quote").columns == wanted.column_names
    options: dict[str, Any] = {"how": "left", "top": 1, "order_by": "r.t DESC", "columns": ["y_right", "n"]}
    found = dovetail.join(*frames, "l.t >= r.t AND l.k = r.k", **options)
    assert found.columns == ["y_right", "n"]
    assert found.count() == tables[0].num_rows


@pytest.mark.parametrize("by", [None, "k"])
def test_without_adaptive_execution_and_without_a_sample(
    spark: SparkSession, frames: Frames, tables: Tables, cut_early: None, by: str | None
) -> None:
    schemas = (tables[0].schema, tables[1].schema)
    spelled = spell_asof(schemas, "t", by, "backward", None, exact=True)
    best = parse_best(1, spelled.order_by, "any", schemas)
    _check(dovetail.asof(*frames, "t", by=by, sample=False), "left", spelled.on, best, tables)
    before = spark.conf.get("spark.sql.adaptive.enabled")
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    try:
        _check(dovetail.asof(*frames, "t", by=by), "left", spelled.on, best, tables)
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", before or "true")


def test_explain_says_which_way(frames: Frames, cut_early: None) -> None:
    def plan(on: str, **options: Any) -> str:
        return str(dovetail.explain(*frames, on, **options))

    of_time = plan("l.t >= r.t AND l.k = r.k", top=1, order_by="r.t DESC")
    assert "spark: as-of by Spark's own operators" in of_time
    assert "ranges for one heavy key" in of_time
    assert "by Spark's own operators" in plan("l.t >= r.t", top=1, order_by="r.t DESC", sample=False)
    assert "kernel     lists" in plan("l.k = r.k", top=2, order_by="r.y")
    assert "only Spark can evaluate" in plan("l.k = r.k", top=1, order_by="soundex(r.s)")


def test_named_algorithms_are_refused(frames: Frames) -> None:
    with pytest.raises(PlanError, match="algorithm= is for joins with all partners"):
        dovetail.join(*frames, "l.k = r.k", top=1, algorithm="shj")
    with pytest.raises(InputError, match="give top=1"):
        dovetail.join(*frames, "l.k = r.k", order_by="r.y")


def test_chunks_of_the_right_side_give_the_same(frames: Frames, tables: Tables) -> None:
    options: dict[str, Any] = {"how": "left", "top": 2, "order_by": ["r.n", "r.y"], "ties": "all"}
    found = dovetail.join(*frames, "l.k = r.k AND l.x < r.x", memory="8KB", **options)
    schemas = (tables[0].schema, tables[1].schema)
    best = parse_best(2, options["order_by"], "all", schemas)
    _check(found, "left", "l.k = r.k AND l.x < r.x", best, tables)


def test_sql(spark: SparkSession) -> None:
    """The syntax of DuckDB and Spark 4.3; Spark's parser has ASOF off by default, and does not know DuckDB's."""
    rng = generator("best on spark", "sql")
    columns = {"k": rng.integers(0, 4, 40), "t": rng.permutation(40), "x": np.arange(40)}
    left, right = pa.table(columns), pa.table({**columns, "t": rng.permutation(40)}).rename_columns(["k", "t", "y"])
    views = {"a": spark.createDataFrame(left), "b": spark.createDataFrame(right)}
    asof = "SELECT x, y FROM a ASOF LEFT JOIN b ON a.k = b.k AND a.t >= b.t"
    match = "SELECT x, y FROM a ASOF JOIN b MATCH_CONDITION (b.t > a.t) USING (k) WHERE y > 5"
    near = "SELECT x, abs(a.t - b.t) AS y FROM a JOIN b EXACT NEAREST 2 BY DISTANCE abs(a.t - b.t)"
    query = f"{asof} UNION ALL {match} UNION ALL {near}"
    found = dovetail.sql(spark, query, **views).toArrow().sort_by([("x", "ascending"), ("y", "ascending")])
    wanted = pa.concat_tables([dovetail.sql(one, a=left, b=right) for one in (asof, match, near)])
    assert found.equals(wanted.sort_by([("x", "ascending"), ("y", "ascending")]))
    with pytest.raises(InputError, match="one comparison by"):
        dovetail.sql(spark, "SELECT x FROM a ASOF JOIN b ON a.k = b.k", **views)
