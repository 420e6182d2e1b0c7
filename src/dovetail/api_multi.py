"""The call that users make for more than two inputs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from dovetail.condition.graph import parse_graph
from dovetail.errors import InputError, PlanError
from dovetail.operators import check_parameters, multi_operator_class
from dovetail.runtimes.multi_tables import join_several, multi_schema
from dovetail.state.budget import Budget, Shares, parse_bytes
from dovetail.tables import arrow_table

FEWEST = 3


def multijoin(
    inputs: Mapping[str, Any],
    on: str | Sequence[str],
    *,
    memory: str | int | None = None,
    algorithm: str = "auto",
    **options: Any,
) -> Any:
    """The inner join of three and more inputs on any condition that connects them.

        multijoin({"o": orders, "c": customers, "n": nations}, "o.custkey = c.custkey AND c.nationkey = n.nationkey")

    Spark DataFrames give a DataFrame; pyarrow, pandas or Polars tables give a pyarrow.Table. `on` is SQL text with the
    names of the inputs as aliases. The result has the columns of all inputs in their order; a name that several of them
    have becomes alias_name.

    In process, `algorithm` is "auto" (kernels that see the inputs complete, two at a time), or "miner", "mjoin" or
    "pmj", which keep to `memory` by writing rows to disk; their parameters are further options.
    """
    _check_names(inputs)
    memory_bytes = None if memory is None else parse_bytes(memory)
    spark = [type(table).__module__.startswith("pyspark.sql") for table in inputs.values()]
    if any(spark):
        if not all(spark):
            raise InputError("some inputs are Spark DataFrames and others are not: give all of the same kind.")
        from dovetail.spark import multijoin_dataframes

        return multijoin_dataframes(inputs, on, memory_bytes=memory_bytes, algorithm=algorithm, **options)
    if options and algorithm == "auto":
        raise InputError(f"{', '.join(options)}: not an option of a join of tables in process.")
    tables = {alias: arrow_table(table) for alias, table in inputs.items()}
    graph = parse_graph(on, {alias: table.schema for alias, table in tables.items()})
    schema = multi_schema(graph.schemas)
    Shares(Budget(memory_bytes), 1, len(tables))  # refuses a budget that is too small, before any work
    if algorithm != "auto":
        kind = multi_operator_class(algorithm)
        if (reason := kind.refuses(graph)) is not None:
            raise PlanError(f"algorithm={algorithm!r} cannot run {graph.text}: {reason}.")
        check_parameters(kind, options)
    return pa.Table.from_batches(join_several(graph, tables, schema, algorithm, memory_bytes, options), schema)


def _check_names(inputs: Mapping[str, Any]) -> None:
    if not isinstance(inputs, Mapping):
        raise InputError(f"the inputs are a dictionary of names and tables; got {type(inputs).__name__}.")
    if len(inputs) < FEWEST:
        raise InputError(
            f"a join of several inputs takes {FEWEST} and more; got {len(inputs)}. For two: dovetail.join."
        )
    for alias in inputs:
        if not re.fullmatch(r"[A-Za-z_]\w*", str(alias)):
            raise InputError(f"{alias!r} cannot be the name of an input: use letters, digits and underscores.")
    if len({alias.casefold() for alias in inputs}) < len(inputs):
        raise InputError(f"names of inputs differ in case only: {', '.join(inputs)}.")
