"""dovetail-state: the state of streaming joins as a table. Works while a query runs, and after it was stopped.

spark.read.format("dovetail-state").load("/shared/dovetail")                                    a row for each cell
spark.read.format("dovetail-state").option("table", "rows").option("input", "left").load(…)     the rows they keep
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from datetime import UTC, datetime

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import BooleanType, IntegerType, LongType, StructField, StructType

from dovetail.core.rows import Side
from dovetail.errors import InputError
from dovetail.spark.sources.columns import spark_schema
from dovetail.spark.sources.remote import check_names, text
from dovetail.spark.versions import utc_schema
from dovetail.storage.open_store import open_store
from dovetail.storage.store import Store
from dovetail.storage.stored_state import StoredJoin, last_commit, stored_joins

OPTIONS = ("path", "table", "query", "join", "input", "checkpoint")
CELLS, ROWS = "cells", "rows"
ABOUT = StructType(
    [StructField("cell", IntegerType()), StructField("row_number", LongType()), StructField("settled", BooleanType())]
)
CELL_SCHEMA = (
    "query string, join string, algorithm string, how string, condition string, cell int, rows bigint, bytes bigint, "
    "segments int, batch bigint, written timestamp"
)


class StateFormat(DataSource):
    """Planned by the driver, which must have access to the state. Tasks read the cells."""

    @classmethod
    def name(cls) -> str:
        return "dovetail-state"

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        check_names(options, OPTIONS)
        directory = open_store(text(options, "path", "/shared/dovetail"))
        query, self._committed = options.get("query"), None
        if "checkpoint" in options:
            found, self._committed = last_commit(options["checkpoint"])
            if query not in (None, found):
                raise InputError(f"the checkpoint is that of query {found}, not of {query}. Leave one of them out.")
            query = found
        self._table = options.get("table", CELLS)
        if self._table not in (CELLS, ROWS):
            raise InputError(f"table must be {CELLS} or {ROWS}; got {self._table!r}.")
        self._joins = [j for j in stored_joins(directory, query) if options.get("join") in (None, j.name)]
        if self._table == ROWS:
            self._join = _only(self._joins, directory)
            self._join.check_copies()
            self._input = _alias(self._join, text(options, "input", "left"))

    def schema(self) -> StructType | str:
        if self._table == CELLS:
            return CELL_SCHEMA
        stored = spark_schema(_input_schema(self._join, self._input, self._committed), marks_end=False)
        return StructType([*ABOUT.fields, *stored.fields])

    def reader(self, schema: StructType) -> DataSourceReader:
        if self._table == CELLS:
            return CellsReader(schema, self._joins, self._committed)
        return RowsReader(schema, self._join, self._input, self._committed)


def _only(joins: Sequence[StoredJoin], directory: Store) -> StoredJoin:
    if len(joins) == 1:
        return joins[0]
    found = "; ".join(f"query {join.query}, join {join.name}" for join in joins) or "none"
    raise InputError(
        f'rows are of one join: name it by .option("query", …) and .option("join", …). {directory}: {found}.'
    )


def _alias(join: StoredJoin, given: str) -> str:
    """The alias of an input that is given by side or by name."""
    sides = {side.name.lower(): side.alias for side in Side} if set(join.columns) == {s.alias for s in Side} else {}
    alias = sides.get(given.lower(), given)
    if alias not in join.columns:
        raise InputError(f"the join has no input {given!r}: there are {', '.join([*(sides or join.columns)])}.")
    return alias


def _input_schema(join: StoredJoin, alias: str, committed: int | None) -> pa.Schema:
    """The columns of an input, with their stored types."""
    for number in join.numbers():
        for rows in join.read(number, alias, committed):
            return rows.batch.schema
    raise InputError(f"{join.directory} keeps no rows of {alias}.")


class _Part(InputPartition):
    """A join, or one of its cells."""

    def __init__(self, join: StoredJoin, number: int | None = None) -> None:
        self.join, self.number = join, number


class CellsReader(DataSourceReader):
    def __init__(self, schema: StructType, joins: Sequence[StoredJoin], committed: int | None) -> None:
        self._schema = utc_schema(schema)
        self._joins, self._committed = joins, committed

    def partitions(self) -> Sequence[InputPartition]:
        return [_Part(join) for join in self._joins]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Part)
        join = partition.join
        known = (join.query, join.name, join.algorithm, join.how, join.condition)
        lines = [
            (*known, c.number, c.rows, c.nbytes, c.segments, c.batch, datetime.fromtimestamp(c.written, UTC))
            for c in join.cells(self._committed)
        ]
        columns = zip(*lines, strict=True) if lines else [()] * len(self._schema)
        arrays = [pa.array(c, field.type) for c, field in zip(columns, self._schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class RowsReader(DataSourceReader):
    """A partition for each cell."""

    def __init__(self, schema: StructType, join: StoredJoin, alias: str, committed: int | None) -> None:
        self._schema = utc_schema(schema)
        self._join, self._alias, self._committed = join, alias, committed

    def partitions(self) -> Sequence[InputPartition]:
        return [_Part(self._join, number) for number in self._join.numbers()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Part)
        assert partition.number is not None
        for batch, numbers, settled in partition.join.read(partition.number, self._alias, self._committed):
            cell = pa.repeat(pa.scalar(partition.number, pa.int32()), batch.num_rows)
            columns = zip([cell, pa.array(numbers), pa.array(settled), *batch.columns], self._schema, strict=True)
            yield pa.RecordBatch.from_arrays([c.cast(field.type) for c, field in columns], schema=self._schema)
