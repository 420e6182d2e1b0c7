"""What a join must give, by two oracles: the definition, and DuckDB.

    definition   cross product and filter, evaluated by Dovetail: any condition, any types
    duckdb       the same join as SQL, where DuckDB means the same by it as Spark

DuckDB agrees with Spark on nulls, on NaN (equal to itself, larger than all numbers), on -0.0 = 0.0 and on the order of
strings. It is asked about comparisons, `<=>`, IS NULL, BETWEEN, IN, AND, OR, NOT, `+`, `-` and abs over `alias.column`
of the types in `SAME_TYPES`, and not about
    *  /  %  div       results of another type, scale or rounding; an error on overflow
    float32            mixed with integers DuckDB computes in float32, Spark in double
    other types        unsigned integers, times without a zone, binary, lists and structs are cast or compared otherwise
    functions, casts   many have another name or another meaning
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import pyarrow as pa
from sqlglot import exp

from dovetail.condition import matching
from dovetail.condition.sql import parse_text
from dovetail.core.join_types import JoinType
from dovetail.core.rows import Rows, Side, one_batch
from dovetail.errors import InputError
from dovetail.simulation.laboratory import ROW, bind_condition, name_inputs

Result = tuple[int | None, ...]
"""Row numbers in the order of the inputs; None where a join type emits a row without one of that input."""

ORACLES = ("definition", "duckdb")

SAME_TYPES = (
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float64(), pa.bool_(), pa.string(), pa.date32()),
    pa.timestamp("us", "UTC"),
)
"""Types of which DuckDB and Spark mean the same; decimals of up to 38 digits besides."""

SAME_NODES = (
    *(exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.Is, exp.Between, exp.In),
    *(exp.And, exp.Or, exp.Not, exp.Paren, exp.Add, exp.Sub, exp.Neg, exp.Abs),
    *(exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Null),
)

OUTER = {JoinType.INNER: "JOIN", JoinType.LEFT: "LEFT JOIN", JoinType.RIGHT: "RIGHT JOIN", JoinType.FULL: "FULL JOIN"}
# As SQL spells them; DuckDB's own SEMI JOIN and ANTI JOIN disagree with its inner join on several inequalities (2.0.0).
ONE_SIDED = {
    JoinType.LEFT_SEMI: "SELECT l.{row}, NULL FROM l WHERE l.{row} IN (SELECT l.{row} FROM l JOIN r ON {on})",
    JoinType.LEFT_ANTI: "SELECT l.{row}, NULL FROM l WHERE l.{row} NOT IN (SELECT l.{row} FROM l JOIN r ON {on})",
}


def choose_oracles(oracle: str | None) -> tuple[str, ...]:
    """The oracles of that name; None: the definition, and DuckDB if it is installed."""
    if oracle is None:
        return ORACLES if find_spec("duckdb") else ORACLES[:1]
    if oracle not in ORACLES:
        raise InputError(f"oracle must be one of {', '.join(ORACLES)}, or None for all there are; got {oracle!r}.")
    if oracle == "duckdb" and find_spec("duckdb") is None:
        raise InputError("the oracle duckdb needs the package of that name: pip install duckdb, or ask the definition.")
    return (oracle,)


def definition(left: Any, right: Any = None, on: Any = None) -> list[tuple[int, ...]]:
    """Cross product + filter: the combinations of row numbers that an inner join must give, in the order of the inputs.

    Takes the inputs as `simulate` does: two tables, or a mapping of names to tables.
    """
    tables = name_inputs(left, right)
    graph = bind_condition(on, {alias: table.schema for alias, table in tables.items()})
    batches = {alias: one_batch(table, table.schema) for alias, table in tables.items()}
    rows: dict[str, Rows] = {}
    for alias, batch in batches.items():
        alive = graph.passing(alias, batch)
        mine = np.arange(batch.num_rows) if alive is None else np.flatnonzero(alive)
        size = len(next(iter(rows.values()))) if rows else 1
        rows = {a: np.repeat(taken, len(mine)) for a, taken in rows.items()}
        rows[alias] = np.tile(mine, size)
        for edge in graph.edges:
            if edge.ends <= rows.keys() and alias in edge.ends:
                ends = (edge.left, edge.right)
                (left_batch, right_batch), (left_rows, right_rows) = [batches[a] for a in ends], [rows[a] for a in ends]
                good = matching(edge.condition.conjuncts, left_batch, left_rows, right_batch, right_rows)
                rows = {a: taken[good] for a, taken in rows.items()}
    complete = graph.checked(batches, rows)
    if complete is not None:
        rows = {a: taken[complete] for a, taken in rows.items()}
    return list(zip(*(rows[alias].tolist() for alias in graph.aliases), strict=True))


def results_by_definition(tables: Mapping[str, pa.Table], on: Any, how: JoinType) -> list[Result]:
    """The results of a join of any type; other types than inner are of two inputs."""
    tuples = definition(tables, on=on)
    found: list[Result] = [*tuples] if how.emits_pairs else []
    for side in how.tracked:
        rows = {row[side] for row in tuples}
        if how is not JoinType.LEFT_SEMI:
            rows = set(range(list(tables.values())[side].num_rows)) - rows
        found += [(row, None) if side is Side.LEFT else (None, row) for row in rows]
    return found


def results_by_duckdb(tables: Mapping[str, pa.Table], on: str, how: JoinType) -> list[Result]:
    """The same by DuckDB; only for conditions that `duckdb_sql` has a text for."""
    text = duckdb_sql(on, {alias: table.schema for alias, table in tables.items()})
    if text is None:
        raise InputError(f"DuckDB does not mean the same as Spark by {on}: ask the definition.")
    row = exp.to_identifier(ROW, quoted=True).sql()
    if how in ONE_SIDED:
        query = ONE_SIDED[how].format(row=row, on=f"({text})")
    else:
        columns = ", ".join(f"{alias}.{row}" for alias in tables)
        joined = f" {OUTER[how]} ".join(tables) + f" ON ({text})" if len(tables) == 2 else ", ".join(tables)
        query = f"SELECT {columns} FROM {joined}" + ("" if len(tables) == 2 else f" WHERE {text}")
    with _connection().cursor() as cursor:
        for alias, table in tables.items():
            cursor.register(alias, table.append_column(ROW, pa.array(np.arange(table.num_rows))))
        return cursor.execute(query).fetchall()  # type: ignore[no-any-return]  # imported at run time only


def duckdb_sql(on: Any, schemas: Mapping[str, pa.Schema]) -> str | None:
    """The condition in DuckDB's dialect, or None where it would not mean the same."""
    if not isinstance(on, str):
        return None
    tree = parse_text(on)
    for node in tree.walk():
        if not isinstance(node, SAME_NODES):
            return None
        if isinstance(node, exp.Column):
            if len(node.parts) != 2 or node.table not in schemas or node.name not in schemas[node.table].names:
                return None
            type_ = schemas[node.table].field(node.name).type
            if type_ not in SAME_TYPES and not pa.types.is_decimal128(type_):
                return None
    return tree.sql(dialect="duckdb", identify=True)


@cache
def _connection() -> Any:
    connection = import_module("duckdb").connect()
    connection.execute("SET threads = 1; SET TimeZone = 'UTC'")
    return connection
