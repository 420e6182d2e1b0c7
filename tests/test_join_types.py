"""Every join type for every class of predicate, against DuckDB."""

from collections import Counter

import duckdb
import pyarrow as pa
import pytest
from tests.effort import repeat
from tests.seed import seeded

import dovetail
from dovetail.testing import CONDITIONS, random_table

DUCKDB = {
    "inner": "JOIN",
    "left": "LEFT JOIN",
    "right": "RIGHT JOIN",
    "full": "FULL JOIN",
    "left_semi": "SEMI JOIN",
    "left_anti": "ANTI JOIN",
}


def rows(table: pa.Table) -> Counter[str]:
    return Counter(str(list(row.values())) for row in table.to_pylist())


@pytest.mark.one_in(2)
@pytest.mark.parametrize("how", DUCKDB)
@pytest.mark.parametrize("on", CONDITIONS)
def test_rows_equal_those_of_duckdb(on: str, how: str) -> None:
    rng = seeded(f"{on}{how}")
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for _ in range(repeat(3)):
        left, right = random_table(rng), random_table(rng)
        connection.register("l", left)
        connection.register("r", right)
        columns = "l.*" if how in ("left_semi", "left_anti") else "l.*, r.*"
        query = f"SELECT {columns} FROM l {DUCKDB[how]} r ON ({on.replace('<=>', 'IS NOT DISTINCT FROM')})"
        expected = connection.sql(query).to_arrow_table()
        found = dovetail.join(left, right, on, how)
        assert rows(found) == rows(expected.rename_columns(found.column_names).cast(found.schema))


def test_a_side_that_may_be_missing_is_nullable() -> None:
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False)])
    table = pa.table({"k": [1, 2]}, schema)
    for how, nullable in {"left": [False, True], "right": [True, False], "full": [True, True]}.items():
        assert [field.nullable for field in dovetail.join(table, table, "l.k = r.k", how).schema] == nullable
        assert [field.nullable for field in dovetail.join(table, table, "k", how).schema] == [False]


@pytest.mark.parametrize("alias", ["leftouter", "LEFT_OUTER", "outer", "semi", "leftanti"])
def test_aliases_of_join_types(alias: str) -> None:
    table = pa.table({"k": [1, 2]})
    assert dovetail.join(table, table.slice(1), ["k"], alias).num_rows in (1, 2)
