"""What all remote formats have in common: a table of partitions read by tasks, a stream of what has come.

A stream's offset is a position in the source. A micro-batch takes its rows from memory, where they have come by
themselves (prefetch.py); one that is run again after a restart asks the source for the same range.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from dovetail.errors import InputError, SourceError
from dovetail.sources.protocol import Position, Ranged, joined_schema
from dovetail.sources.reader import Reader
from dovetail.spark.sources.columns import Columns, spark_schema
from dovetail.spark.sources.offsets import Offset
from dovetail.spark.sources.prefetch import ADVICE, PrefetchBuffer
from dovetail.spark.sources.settings import COMMON, Settings, check_names

FIRST_WAIT_S = 1.0  # for the first rows, so that the first micro-batch is not empty without need


class RemoteFormat(DataSource):
    """A format. Made once by the driver, which asks the server what the rows are; then sent to where it is needed."""

    OPTIONS: ClassVar[tuple[str, ...]] = ()
    PREFIX: ClassVar[str] = ""  # of options whose names are free
    poll_s: float | None = None

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        check_names(options, (*self.OPTIONS, *COMMON), self.PREFIX)
        self.settings = Settings.read(options)
        self.source = self.open_source(options)

    @abstractmethod
    def open_source(self, options: MutableMapping[str, str]) -> Ranged:
        """The source, which has told its schema."""

    @abstractmethod
    def ranges(self) -> list[tuple[Position, Position]]:
        """Where tasks read from and to; None is the start or the end."""

    def now(self, start: Position) -> Position:
        """The position behind the rows that are there now, at `start` or later; None is the end."""
        return None

    def schema(self) -> StructType:
        return spark_schema(joined_schema(self.source), self.settings.marks_end)

    def reader(self, schema: StructType) -> DataSourceReader:
        if self.settings.marks_end:
            raise InputError("the option end is for streams only.")
        return TableReader(self, self._check_schema(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        if not self.source.resumable:
            raise InputError(
                f"{self.source.name} cannot be a Spark stream: it has no position to resume at after a restart. "
                f"{self.remedy()}"
            )
        return StreamReader(self, self._check_schema(schema))

    def remedy(self) -> str:
        return ""

    def read(self, start: Position, until: Position) -> Iterator[pa.RecordBatch]:
        """The rows of a range."""
        for batch, _ in Reader(self.source, self.settings.retry).pieces(start, until):
            yield batch

    def _check_schema(self, schema: StructType) -> Columns:
        told = self.schema()
        if [(f.name, f.dataType) for f in schema] != [(f.name, f.dataType) for f in told]:
            raise InputError(f"the schema of the source is {told.simpleString()}. Remove .schema(…).")
        return Columns(told)


class _Range(InputPartition):
    """Rows to be read by a task."""

    def __init__(self, start: Position, until: Position, rows: int | None = None, ended: bool = False) -> None:
        self.start, self.until, self.rows, self.ended = start, until, rows, ended


class _Rows(InputPartition):
    """Rows that have arrived."""

    def __init__(self, batches: list[pa.RecordBatch], ended: bool) -> None:
        sink = pa.BufferOutputStream()
        if batches:
            with pa.ipc.new_stream(sink, batches[0].schema) as writer:
                for batch in batches:
                    writer.write_batch(batch)
        self.payload = sink.getvalue().to_pybytes()
        self.ended = ended

    def batches(self) -> Iterator[pa.RecordBatch]:
        if self.payload:
            yield from pa.ipc.open_stream(self.payload)


class TableReader(DataSourceReader):
    def __init__(self, remote: RemoteFormat, columns: Columns) -> None:
        self._remote = remote
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        return [_Range(start, until) for start, until in self._remote.ranges()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Range)
        return self._columns.fit_batches(self._remote.read(partition.start, partition.until))


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives beside the driver; a copy without the inflow goes to each task."""

    def __init__(self, remote: RemoteFormat, columns: Columns) -> None:
        self._remote = remote
        self._columns = columns
        self._inflow: PrefetchBuffer | None = None
        self._only_now = False

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_inflow": None}

    def initialOffset(self) -> dict[str, Any]:
        return Offset().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._remote.settings.most_rows)

    def prepareForTriggerAvailableNow(self) -> None:
        self._only_now = True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        before, wait_s = Offset.read(start), 0.0
        if self._inflow is None:
            self._inflow, wait_s = self._open_buffer(before), FIRST_WAIT_S
        most_rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        reached = self._inflow.latest(before, most_rows, None if self._only_now else wait_s)
        moved = reached.rows > before.rows or (self._remote.settings.marks_end and reached.ended > before.ended)
        return reached.to_json() if moved else start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        before, after = Offset.read(start), Offset.read(end)
        if before == after:
            return []
        ended = self._remote.settings.marks_end and after.ended and not before.ended
        batches = self._inflow.rows_between(before, after) if self._inflow is not None else None
        if batches is not None:
            return [_Rows(batches, ended)]
        return [_Range(before.position, after.position, after.rows - before.rows, ended)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Rows | _Range)
        batches = partition.batches() if isinstance(partition, _Rows) else self._again(partition)
        yield from self._columns.fit_batches(batches)
        if partition.ended:
            yield self._columns.end()

    def stop(self) -> None:
        if self._inflow is not None:
            self._inflow.close()

    def _open_buffer(self, start: Offset) -> PrefetchBuffer:
        remote = self._remote
        until = remote.now(start.position) if self._only_now else None
        reader = Reader(remote.source, remote.settings.retry, advice=ADVICE)
        return PrefetchBuffer(reader, start, until, None if self._only_now else remote.poll_s)

    def _again(self, wanted: _Range) -> Iterator[pa.RecordBatch]:
        """Rows of before a restart."""
        rows = 0
        if wanted.rows:
            for batch in self._remote.read(wanted.start, wanted.until):
                rows += batch.num_rows
                yield batch
        if rows != wanted.rows:
            raise SourceError(
                f"{self._remote.source.name} has changed its rows: {rows:,} instead of {wanted.rows:,} between "
                f"{wanted.start} and {wanted.until}. The interrupted micro-batch cannot be repeated."
            )
