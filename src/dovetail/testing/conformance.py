"""Test an operator or a router: every result exactly once, compared with the definition of a join and with DuckDB.

    check_operator("diner")                            random tables, conditions, schedules, budgets, restarts
    check_operator("miner", inputs=[4])                the same for four inputs only
    check_router(router, left, right, on="l.k = r.k")  every matching pair meets in exactly one cell
    check_sweep(left, right, on="l.x < r.x")           a sweep finds every pair; also for custom predicates

The definition is the cross product, filtered. Rows are compared by identity, never by value.

The other oracle is DuckDB, which runs the same join as SQL if it has the same meaning as in Spark.

DuckDB agrees with Spark on nulls, on NaN (equal to itself, larger than all numbers), on -0.0 = 0.0 and on the order of
strings. It is used for comparisons, `<=>`, IS NULL, BETWEEN, IN, AND, OR, NOT, `+`, `-` and abs over `alias.column` of
the types in `SAME_TYPES`. It is not used for
    *  /  %  div       results of another type, scale or rounding; an error on overflow
    float32            mixed with integers DuckDB computes in float32, Spark in double
    other types        unsigned integers, times without a zone, binary, lists and structs are cast or compared otherwise
    functions, casts   many have another name or another meaning
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import cycle, repeat
from typing import Any

import numpy as np
import pyarrow as pa
from sqlglot import exp

from dovetail.columns.batches import one_batch
from dovetail.condition import matching
from dovetail.condition.sql import parse_text
from dovetail.core.join_types import JoinType
from dovetail.core.rows import Rows, Side
from dovetail.core.tables import arrow_table
from dovetail.errors import BudgetError, InputError
from dovetail.operators.protocol import JoinOperator
from dovetail.operators.registry import operator_class, operator_names
from dovetail.routing.routers import Router
from dovetail.testing.random_joins import CONDITIONS, SEVERAL, TWO, random_condition, random_schedule, random_table
from dovetail.testing.simulation import ROW, ScriptedRun, bind_condition, name_inputs, simulate

Result = tuple[int | None, ...]
"""Row numbers in the order of the inputs; None for an input without a row in this result."""

MOST_INPUTS = len(SEVERAL)
MOST_ROWS = {2: 20, 3: 14, 4: 8, 5: 5, 6: 4}  # per input: the definition tries every combination
MOST_REFUSED = 200  # conditions in a row, of which an operator must accept one
ORACLES = ("definition", "duckdb")

SAME_TYPES = (
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float64(), pa.bool_(), pa.string(), pa.date32()),
    pa.timestamp("us", "UTC"),
)
"""Types with the same meaning in DuckDB and Spark, besides decimals of up to 38 digits."""

SAME_NODES = (
    *(exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.Is, exp.Between, exp.In),
    *(exp.And, exp.Or, exp.Not, exp.Paren, exp.Add, exp.Sub, exp.Neg),
    *(exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Null),
)

OUTER = {JoinType.INNER: "JOIN", JoinType.LEFT: "LEFT JOIN", JoinType.RIGHT: "RIGHT JOIN", JoinType.FULL: "FULL JOIN"}
# As in SQL; DuckDB's own SEMI JOIN and ANTI JOIN disagree with its inner join on several inequalities (2.0.0).
ONE_SIDED = {
    JoinType.LEFT_SEMI: "SELECT l.{row}, NULL FROM l WHERE l.{row} IN (SELECT l.{row} FROM l JOIN r ON {on})",
    JoinType.LEFT_ANTI: "SELECT l.{row}, NULL FROM l WHERE l.{row} NOT IN (SELECT l.{row} FROM l JOIN r ON {on})",
}


def check_operator(
    name: str,
    *,
    inputs: Sequence[int] | None = None,
    cases: int = 200,
    seed: int = 0,
    on: Sequence[str] | None = None,
    oracle: str | None = None,
) -> None:
    """Run an operator on random cases. The first failure raises AssertionError with everything needed to reproduce it.

    `inputs`: the possible numbers of inputs; by default all numbers from two to six that the operator supports, in
    turn. With two inputs, all its join types are tested. `on`: your own conditions, over l and r, or over a, b, c, …
    for more inputs; conditions that the operator refuses are skipped. `oracle` is "definition" or "duckdb". By default
    every run is compared with the definition, and also with DuckDB if it is installed and the condition has the same
    meaning there. With oracle="duckdb" all other conditions are skipped.
    """
    rng = random.Random(seed)
    counts = [n for n in inputs or range(2, MOST_INPUTS + 1) if inputs or name in operator_names(n)]
    texts = {n: None if on is None else [text for text in on if len(_aliases_in(text)) == n] for n in counts}
    counts = [n for n in counts if texts[n] != []]
    assert counts, f"no condition for a number of inputs that {name} takes"
    draws = {n: _conditions(rng, operator_class(name, n), n, texts[n], oracle) for n in counts}
    for case in range(cases):
        count = counts[case % len(counts)]
        kind = operator_class(name, count)
        condition = next(draws[count])
        most = MOST_ROWS[count]
        rows = [rng.choice([0, 1, 2, most // 2, most, most]) for _ in range(count)]
        tables = {alias: random_table(rng, n) for alias, n in zip(_aliases(count), rows, strict=True)}
        schedule = random_schedule(rng, dict(zip(tables, rows, strict=True)))
        block_rows = rng.choice([1, 2, 3, 5])
        # The smallest budget that an operator must accept is two blocks and one row per input.
        memory_rows = (count + rng.choice([2, 3, 6, 14])) * block_rows if rng.random() < 0.8 else None
        setting: dict[str, Any] = {"memory_rows": memory_rows, "block_rows": block_rows, "seed": case}
        others = [how for how in kind.spec.join_types if how != JoinType.INNER]
        if count == len(Side) and others and rng.random() < 0.5:
            setting["how"] = str(rng.choice(others))
        check_run(name, tables, on=condition, schedule=schedule, oracle=oracle, **setting)


def check_run(
    name: str,
    left: Any,
    right: Any = None,
    on: Any = None,
    schedule: Iterable[Sequence[Any]] = (),
    *,
    oracle: str | None = "definition",
    **setting: Any,
) -> ScriptedRun:
    """Simulate one run and compare its results with those of the oracle. Inputs and settings are those of `simulate`.

    DuckDB is used only for conditions that have the same meaning there.
    """
    schedule = list(schedule)
    tables = name_inputs(left, right)
    schemas = {alias: table.schema for alias, table in tables.items()}
    shown = {key: value for key, value in setting.items() if key != "watch"}
    repeated = f"simulate({name!r}, tables, on={on!r}, schedule={schedule}, **{shown})"
    spills = operator_class(name, len(tables)).spec.spills
    try:
        run = simulate(name, tables, None, on, schedule, **setting)
    except Exception as error:
        if spills or not isinstance(error, BudgetError):
            error.add_note(repeated)
            raise
        # Operators that do not spill may refuse a budget; another test covers that.
        run = simulate(name, tables, None, on, schedule, **{**setting, "memory_rows": None})
    how = JoinType.read(setting.get("how", "inner"))
    found = Counter(_results(run, len(tables)))
    for asked in choose_oracles(oracle):
        if asked == "definition":
            expected = Counter(results_by_definition(tables, on, how))
        elif duckdb_sql(on, schemas) is not None:
            expected = Counter(results_by_duckdb(tables, on, how))
        else:
            continue
        assert found == expected, (
            f"{repeated}\ncompared with {asked}\nmissing: {list((expected - found).elements())[:20]}\n"
            f"too many: {list((found - expected).elements())[:20]}\n"
            + "\n".join(f"{alias} = pa.table({table.to_pydict()})" for alias, table in tables.items())
        )
    assert len(run.phases) == len(run.tuples), repeated
    memory_rows = setting.get("memory_rows")
    if memory_rows is not None and spills:
        assert run.counters.peak_rows_in_memory <= memory_rows, f"{repeated}: over its budget"
    return run


def _results(run: ScriptedRun, inputs: int) -> list[Result]:
    """All results of a run; rows that are results alone have None for the other inputs."""
    alone = [tuple(row if number == n else None for n in range(inputs)) for number, row in run.alone]
    return [*run.tuples, *alone]


def _conditions(
    rng: random.Random, kind: type[JoinOperator], inputs: int, on: Sequence[str] | None, oracle: str | None
) -> Iterator[str]:
    """An endless series of conditions for a number of inputs that the operator accepts and the oracle supports."""
    aliases = _aliases(inputs)
    schemas = dict.fromkeys(aliases, random_table(rng, 0).schema)
    candidates: Iterator[str] = cycle(CONDITIONS if on is None else on)
    if on is None and inputs > len(Side):
        candidates = (random_condition(rng, aliases) for _ in repeat(None))
    refused = 0
    for text in candidates:
        answered = oracle != "duckdb" or duckdb_sql(text, schemas) is not None
        if answered and kind.refuses(bind_condition(text, schemas)) is None:
            refused = 0
            yield text
        else:
            refused += 1
            assert refused < MOST_REFUSED, f"{kind.spec.name} refuses every condition for {inputs} inputs"


def _aliases(inputs: int) -> tuple[str, ...]:
    return TWO if inputs == len(TWO) else SEVERAL[:inputs]


def _aliases_in(on: str) -> tuple[str, ...]:
    """The aliases of the inputs in a condition."""
    named = {column.table for column in parse_text(on).find_all(exp.Column)}
    return TWO if named <= set(TWO) else SEVERAL[: 1 + max(map(SEVERAL.index, named))]


def check_router(
    router: Router,
    left: Any,
    right: Any,
    on: Any,
    *,
    unique: Side | None = None,
    spread: Sequence[np.ndarray[Any, Any]] | None = None,
) -> None:
    """Route both tables and check that each matching pair shares exactly one cell.

    With `unique`, rows of that side must visit at most one cell, as outer and semi joins require.
    """
    tables = [arrow_table(left), arrow_table(right)]
    cells_of: list[dict[int, list[int]]] = []
    for side in Side:
        batch = one_batch(tables[side], tables[side].schema)
        numbers = np.arange(batch.num_rows) * 7919 if spread is None else spread[side]
        visits = router.route(side, batch, numbers)
        visited: dict[int, list[int]] = {}
        for row, cell in zip(visits.rows.tolist(), visits.cells.tolist(), strict=True):
            assert 0 <= cell < router.cells, f"row {row} of {side.alias} visits cell {cell} of {router.cells}"
            visited.setdefault(row, []).append(cell)
        for row, cells in visited.items():
            assert len(cells) == len(set(cells)), f"row {row} of {side.alias} visits a cell twice: {cells}"
            assert side is not unique or len(cells) == 1, f"row {row} of {side.alias} visits several cells: {cells}"
        cells_of.append(visited)
    for left_row, right_row in definition(tables[0], tables[1], on):
        ours = set(cells_of[0].get(left_row, [])) & set(cells_of[1].get(right_row, []))
        assert len(ours) == 1, f"rows {left_row} and {right_row} match and meet in {len(ours)} cells: {sorted(ours)}"


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
    """Cross product + filter: the row numbers that an inner join must return, in the order of the inputs.

    Takes inputs like `simulate`: two tables, or a mapping from names to tables.
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
    """The results of a join of any type; for more than two inputs, only inner joins."""
    tuples = definition(tables, on=on)
    found: list[Result] = [*tuples] if how.emits_pairs else []
    for side in how.tracked:
        rows = {row[side] for row in tuples}
        if how is not JoinType.LEFT_SEMI:
            rows = set(range(list(tables.values())[side].num_rows)) - rows
        found += [(row, None) if side is Side.LEFT else (None, row) for row in rows]
    return found


def results_by_duckdb(tables: Mapping[str, pa.Table], on: str, how: JoinType) -> list[Result]:
    """The same, computed by DuckDB; only for conditions that `duckdb_sql` can translate."""
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
    """The condition in DuckDB's dialect, or None if it has another meaning there."""
    if not isinstance(on, str):
        return None
    tree = parse_text(on)
    for node in tree.walk():
        is_abs = isinstance(node, exp.Anonymous) and node.name.lower() == "abs"
        if not is_abs and not isinstance(node, SAME_NODES):
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
