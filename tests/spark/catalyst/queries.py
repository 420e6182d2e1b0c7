"""For tests of plain SQL: the rows of a query, and the plan that Spark runs."""

from __future__ import annotations

from collections import Counter

from pyspark.sql import DataFrame

ROWS = 200
POINTS = f"""
    SELECT id, (id * 7919) % 1009 AS x, id % 40 AS bucket, IF(id % 7 = 0, NULL, (id * 31) % 53) AS k,
        CAST(id * 1.5 AS DECIMAL(12, 2)) AS d, DATE '2024-01-01' + CAST(id % 90 AS INT) AS day,
        TIMESTAMP '2024-01-01 00:00:00' + make_dt_interval(0, 0, id) AS at,
        CASE WHEN id % 11 = 0 THEN CAST('NaN' AS DOUBLE) WHEN id % 13 = 0 THEN -0.0D ELSE id / 3.0D END AS f,
        concat('p', id % 17) AS s, array(id) AS unused
    FROM range({ROWS})
"""
BANDS = f"""
    SELECT id AS band, (id * 104729) % 1009 AS lo, (id * 104729) % 1009 + 30 AS hi, IF(id % 5 = 0, NULL, id % 53) AS k,
        CAST(id * 1.25 AS DECIMAL(10, 3)) AS d, DATE '2024-01-10' + CAST(id % 60 AS INT) AS day,
        TIMESTAMP '2024-01-01 00:00:00' + make_dt_interval(0, 0, id * 2) AS at,
        CASE WHEN id % 7 = 0 THEN CAST('NaN' AS DOUBLE) WHEN id % 9 = 0 THEN 0.0D ELSE id / 2.0D END AS f,
        concat('p', id % 13) AS s
    FROM range({ROWS})
"""


def rows(frame: DataFrame) -> Counter[str]:
    return Counter(map(repr, frame.collect()))


def plan(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def taken(frame: DataFrame) -> int:
    """The number of joins of the query that Dovetail runs."""
    return plan(frame).count("DovetailJoin")
