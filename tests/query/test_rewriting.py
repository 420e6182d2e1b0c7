"""The joins found in a query, the placement of its conditions, and what is left to the engine. Runs without Spark."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest

from dovetail.query.rewriting import Rewritten, rewrite
from dovetail.query.text import read_query

TABLES = {"a": ["id", "x", "t", "k"], "b": ["id", "lo", "hi", "k"], "c": ["u", "x", "s"]}


class Written:
    """An engine that records its requests. It knows the columns of queries over its tables."""

    exact = False

    def __init__(self) -> None:
        self.asked: list[str] = []

    def columns(self, text: str, frames: dict[str, Any]) -> Sequence[str]:
        table = re.fullmatch(r"SELECT \* FROM (\w+)(?: AS \w+)?", text)
        if table is not None:
            return TABLES[table[1]]
        names = re.findall(r"AS `?(\w+)`?(?=,| FROM)|(?:SELECT|,) (?:\w+\.)?(\w+)(?=,| FROM)", text)
        return [one or other for one, other in names]

    def frame(self, text: str, frames: dict[str, Any]) -> str:
        self.asked.append(text.replace("`", ""))
        return text

    def join(self, left: str, right: str, on: str, how: str) -> str:
        self.asked.append(f"{how}: {on}")
        return "joined"


def rewritten(query: str) -> tuple[list[str], Rewritten]:
    engine, tree = Written(), read_query(query)
    assert tree is not None
    found = rewrite(tree, engine)
    return engine.asked, found


CASES = {
    "SELECT a.x, count(*) n FROM a JOIN b ON a.t BETWEEN b.lo AND b.hi WHERE b.k = 3 GROUP BY a.x ORDER BY n LIMIT 3": (
        "SELECT a.t AS t, a.x AS x FROM a",
        "SELECT b.hi AS hi, b.lo AS lo FROM b WHERE b.k = 3",
        "inner: l.t BETWEEN r.lo AND r.hi",
    ),
    "SELECT a.id FROM a, b WHERE t < lo AND x > 3 AND a.k + b.k > 3": (
        "SELECT a.id AS id, a.k AS k, a.t AS t FROM a WHERE a.x > 3",
        "SELECT b.k AS b_k, b.lo AS lo FROM b",
        "inner: l.t < r.lo AND l.k + r.b_k > 3",
    ),
    # Conditions on the right input of a left join can be applied before the join if they are in ON, but not in WHERE.
    "SELECT a.id FROM a LEFT JOIN b ON a.t < b.lo AND b.k > 3 AND a.x = 1 WHERE b.hi IS NULL AND a.k > 5": (
        "SELECT a.id AS id, a.t AS t, a.x AS x FROM a WHERE a.k > 5",
        "SELECT b.hi AS hi, b.lo AS lo FROM b WHERE b.k > 3",
        "left: l.t < r.lo AND l.x = 1",
    ),
    # A full join pads rows of the left input before WHERE is applied.
    "SELECT a.id FROM a FULL JOIN b ON a.t < b.lo WHERE a.k > 5 AND b.k = 1": (
        "SELECT a.id AS id, a.k AS k, a.t AS t FROM a",
        "SELECT b.k AS b_k, b.lo AS lo FROM b",
        "full: l.t < r.lo",
    ),
    # The equality join is left to Spark, and runs first.
    "SELECT a.id FROM a JOIN c ON a.x = c.x JOIN b ON a.t < b.lo AND c.u > b.hi": (
        "SELECT a.id AS id, a.t AS t, c.u AS u FROM a INNER JOIN c ON a.x = c.x",
        "SELECT b.hi AS hi, b.lo AS lo FROM b",
        "inner: l.t < r.lo AND l.u > r.hi",
    ),
    # Of three inputs connected by WHERE, those with a common condition are joined first.
    "SELECT a.id FROM a, b, c WHERE a.t < c.u AND c.x < b.lo": (
        "SELECT a.id AS id, a.t AS t FROM a",
        "SELECT c.u AS u, c.x AS x FROM c",
        "inner: l.t < r.u",
        "SELECT _dovetail_joined0.id AS id, _dovetail_joined0.x AS x FROM {joined0} AS _dovetail_joined0",
        "SELECT b.lo AS lo FROM b",
        "inner: l.x < r.lo",
    ),
    "SELECT x FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.lo > a.t AND b.k > 3)": (
        "SELECT a.t AS t, a.x AS x FROM a",
        "SELECT b.lo AS lo FROM b WHERE b.k > 3",
        "left_anti: r.lo > l.t",
    ),
    "SELECT s.id FROM (SELECT a.id, b.lo FROM a, b WHERE a.t < b.lo) s WHERE s.lo > 3": (
        "SELECT a.id AS id, a.t AS t FROM a",
        "SELECT b.lo AS lo FROM b",
        "inner: l.t < r.lo",
    ),
    # Expressions that may fail, or are not deterministic, are evaluated in place.
    "SELECT a.id FROM a, b WHERE t < lo AND 1 / a.x > 2 AND mine(b.k) AND a.x % 2 = 1": (
        "SELECT a.id AS id, a.t AS t, a.x AS x FROM a WHERE a.x % 2 = 1",
        "SELECT b.k AS k, b.lo AS lo FROM b",
        "inner: l.t < r.lo",
    ),
    "WITH q AS (SELECT * FROM a WHERE x > 1) SELECT q.x FROM q LEFT ANTI JOIN b ON q.t < b.lo": (
        "SELECT q.t AS t, q.x AS x FROM (SELECT * FROM a WHERE x > 1) AS q",
        "SELECT b.lo AS lo FROM b",
        "left_anti: l.t < r.lo",
    ),
    "SELECT /*+ RANGE_JOIN(b, 10) */ a.id FROM a JOIN b ON a.t < b.lo": (
        "SELECT a.id AS id, a.t AS t FROM a",
        "SELECT b.lo AS lo FROM b",
        "inner: l.t < r.lo",
    ),
}


@pytest.mark.parametrize("query", CASES)
def test_inputs_are_filtered_and_have_the_columns_that_are_needed(query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TABLES, "q", TABLES["a"])
    monkeypatch.setattr(Written, "columns", _columns_of_ctes(Written.columns))
    asked, found = rewritten(query)
    assert asked == list(CASES[query])
    assert found.left == []
    assert len(found.taken) == sum(": " in line for line in asked)


def _columns_of_ctes(columns: Any) -> Any:
    def known(self: Written, text: str, frames: dict[str, Any]) -> Sequence[str]:
        return TABLES["a"] if text.endswith("AS `q`") else columns(self, text, frames)

    return known


def test_the_rest_of_a_query_reads_the_join() -> None:
    _, found = rewritten(
        "SELECT a.x AS n, sum(b.lo) OVER (PARTITION BY a.k) w FROM a JOIN b ON a.t < b.lo "
        "WHERE a.x IN (SELECT x FROM c WHERE c.u = b.hi AND s = '{}') ORDER BY n, a.x"
    )
    assert found.text.replace("`", "").replace("_dovetail_joined0", "j") == (
        "SELECT j.x AS n, sum(j.lo) OVER (PARTITION BY j.k) AS w FROM {joined0} AS j "
        "WHERE j.x IN (SELECT x FROM c WHERE c.u = j.hi AND s = '{{}}') ORDER BY n, j.x"
    )


def test_outputs_come_before_columns_in_order_by() -> None:
    _, found = rewritten("SELECT -a.x AS x, a.id FROM a JOIN b ON a.t < b.lo ORDER BY x, a.x")
    assert found.text.endswith("ORDER BY x, `_dovetail_joined0`.`x`")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT a.id FROM a JOIN b ON a.k = b.k AND a.t < b.lo",
        "SELECT a.id FROM a, b WHERE a.t < b.lo AND a.k = b.k",
        "SELECT a.id FROM a, b",
        "SELECT a.id FROM a WHERE a.t < a.x",
        "SELECT a.id FROM a WHERE a.t < (SELECT max(u) FROM c)",
        "SELECT a.id FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND b.lo < a.t)",
        "SELECT a.id FROM a WHERE EXISTS (SELECT count(*) FROM b WHERE b.lo < a.t)",
        "SELECT a.id FROM a JOIN b ON a.t / b.lo < 3",
        "SELECT a.id FROM a WHERE a.x = 1 OR EXISTS (SELECT 1 FROM b WHERE b.lo < a.t)",
    ],
)
def test_nothing_is_taken_where_spark_has_an_equality_or_no_join(query: str) -> None:
    asked, found = rewritten(query)
    assert (asked, found.taken, found.left) == ([], [], [])


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT /*+ BROADCAST(b) */ a.id FROM a JOIN b ON a.t < b.lo", "is a hint to Spark"),
        ("SELECT a.id FROM a JOIN b ON a.t < b.lo AND rand() < 0.5", "not deterministic"),
        ("SELECT a.id FROM a TABLESAMPLE (5 PERCENT) JOIN b ON a.t < b.lo", "not read here"),
        ("SELECT a.id FROM a JOIN b ON a.t < b.lo LATERAL VIEW explode(x) v AS y", "not read here"),
        ("SELECT a.id FROM a JOIN (b JOIN c ON b.lo < c.u) ON a.t < b.lo", "joins in parentheses"),
        ("SELECT k FROM a JOIN b ON a.t < b.lo", "k is ambiguous"),
        ("SELECT id FROM a NATURAL JOIN c JOIN b ON a.t < b.lo", "only JOIN … ON"),
        ("WITH RECURSIVE q AS (SELECT 1 AS n) SELECT * FROM q JOIN b ON n < lo", "recursive"),
        ("SELECT sum(a.x) AS t FROM a JOIN b ON a.t < b.lo HAVING t > 3", "an output and a column"),
    ],
)
def test_what_is_not_understood_is_left_with_a_reason(query: str, reason: str) -> None:
    _, found = rewritten(query)
    assert found.taken == []
    assert any(reason in line for line in found.left), found.left


@pytest.mark.parametrize("text", ["SET x = 1", "CREATE TABLE t AS SELECT 1", "SELECT 1; SELECT 2", "SELECT FROM (", ""])
def test_what_is_no_query_is_not_read(text: str) -> None:
    assert read_query(text) is None
