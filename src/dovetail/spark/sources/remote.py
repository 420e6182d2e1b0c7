"""Remote formats for Spark: a table whose partitions are read by tasks, or a stream of arriving rows.

A stream's offset is a position in the source. A micro-batch takes its rows from memory, where they were prefetched
(prefetch.py). One that is repeated after a restart reads the same range from the source again.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from dovetail.errors import InputError, SourceError
from dovetail.sources import postgres
from dovetail.sources.arrow_flight import FlightSource
from dovetail.sources.protocol import Position, Ranged, joined_schema
from dovetail.sources.reader import Reader, Retry
from dovetail.spark.sources.columns import Columns, spark_schema
from dovetail.spark.sources.prefetch import ADVICE, Offset, PrefetchBuffer
from dovetail.spark.sources.ranged import EndpointRanges, KeyRanges, RangedStreamReader, Ranges, RowRanges, Span
from dovetail.spark.versions import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow, check_stream_offsets

T = TypeVar("T")

USUAL = Retry(tries=20)  # more than a minute
MAX_ROWS = 100_000
COMMON = ("maxRowsPerTrigger", "numPartitions", "end", "tries", "firstPauseMs", "longestPauseMs")
FIRST_WAIT_S = 1.0  # for the first rows, so that the first micro-batch is rarely empty
FETCHED_ROWS = 10_000  # fetch size of PostgreSQL, at most
CERTIFICATES = {"tlsRootCerts": "tls_root_certs", "tlsCertChain": "cert_chain", "tlsPrivateKey": "private_key"}
"""Flight options that name files, and the arguments of `pyarrow.flight.connect` that they set."""
HEADER = "header."  # prefix of Flight headers
PIECES = 8  # pieces per full micro-batch: batches have other sizes, and a piece is not divided


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of all remote formats. Spark passes them as text, with case-insensitive names."""

    most_rows: int  # per micro-batch
    marks_end: bool  # whether a last row marks the end, in a separate column
    retry: Retry
    partitions: int | None  # number of parallel reading tasks; None: one for tables, the driver for streams

    @classmethod
    def read(cls, given: Mapping[str, str]) -> Settings:
        return cls(
            number(given, "maxRowsPerTrigger", MAX_ROWS),
            flag(given, "end"),
            Retry(
                number(given, "tries", USUAL.tries),
                number(given, "firstPauseMs", int(USUAL.first_pause_ms)),
                number(given, "longestPauseMs", int(USUAL.longest_pause_ms)),
            ),
            number(given, "numPartitions", 1) if given.get("numPartitions") else None,
        )


def check_names(given: Mapping[str, str], known: tuple[str, ...], prefix: str = "") -> None:
    """Refuse unknown options, except for those with the prefix."""
    lower = {name.lower() for name in known}
    unknown = sorted(name for name in given if name.lower() not in lower and not (prefix and name.startswith(prefix)))
    if unknown:
        raise InputError(f"{', '.join(unknown)}: no such option. There are {', '.join(known)}.")


def text(given: Mapping[str, str], name: str, example: str) -> str:
    if not given.get(name):
        raise InputError(f'the option {name} is missing: .option("{name}", "{example}").')
    return given[name]


def number(given: Mapping[str, str], name: str, default: int) -> int:
    return _read(given, name, default, int, "a positive number", lambda value: value > 0)


def seconds(given: Mapping[str, str], name: str) -> float | None:
    return _read(given, name, None, float, "a positive number", lambda value: value is not None and value > 0)


def flag(given: Mapping[str, str], name: str) -> bool:
    return _read(given, name, False, lambda word: {"true": True, "false": False}[word.lower()], "true or false")


def _read(
    given: Mapping[str, str],
    name: str,
    default: T,
    read: Callable[[str], T],
    wanted: str,
    fits: Callable[[T], bool] = lambda _: True,
) -> T:
    if name not in given:
        return default
    try:
        value = read(given[name])
    except (ValueError, KeyError):
        pass
    else:
        if fits(value):
            return value
    raise InputError(f"{name} must be {wanted}; got {given[name]!r}.")


class RemoteFormat(DataSource):
    """A format. Created by the driver, which asks the server for the schema; then sent to the tasks."""

    OPTIONS: ClassVar[tuple[str, ...]] = ()
    PREFIX: ClassVar[str] = ""  # of options with free names
    poll_s: float | None = None

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        check_names(options, (*self.OPTIONS, *COMMON), self.PREFIX)
        self.settings = Settings.read(options)
        self.source = self.open_source(options)

    @abstractmethod
    def open_source(self, options: MutableMapping[str, str]) -> Ranged:
        """The source, with its schema known."""

    @abstractmethod
    def spans(self) -> list[Span]:
        """The spans that the tasks of a table read."""

    def now(self, start: Position) -> Position:
        """The position after the rows available now, at `start` or later. None is the end."""
        return None

    def schema(self) -> StructType:
        return spark_schema(joined_schema(self.source), self.settings.marks_end)

    def reader(self, schema: StructType) -> DataSourceReader:
        if self.settings.marks_end:
            raise InputError("the option end is for streams only.")
        return TableReader(self, self._check_schema(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        check_stream_offsets()
        if not self.source.resumable:
            raise InputError(
                f"{self.source.name} cannot be a Spark stream: it has no position to resume at after a restart. "
                f"{self.remedy()}"
            )
        columns = self._check_schema(schema)
        parts = self.settings.partitions
        if parts is None:
            return StreamReader(self, columns)
        known = self.settings
        return RangedStreamReader(
            self.cut(parts), columns, self.source.name, known.retry, known.most_rows, known.marks_end
        )

    @abstractmethod
    def cut(self, parts: int) -> Ranges:
        """How a stream is divided for tasks."""

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
    """Rows that a task reads."""

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
        return self._remote.spans()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Span)
        source, bounds = self._remote.cut(1).source_of(partition)
        reader = Reader(source, self._remote.settings.retry)
        return self._columns.fit_batches(batch for batch, _ in reader.pieces(*bounds))


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Runs beside the driver. A copy without the buffer is sent to each task."""

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
        """Rows from before a restart."""
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


class PostgresFormat(RemoteFormat):
    """dovetail-postgresql: a table or query of PostgreSQL."""

    OPTIONS: ClassVar = ("dsn", "table", "query", "key", "pollSeconds")

    @classmethod
    def name(cls) -> str:
        return "dovetail-postgresql"

    def open_source(self, options: MutableMapping[str, str]) -> Any:
        self.poll_s = seconds(options, "pollSeconds")
        key = [column.strip() for column in options.get("key", "").split(",") if column.strip()]
        return postgres(
            text(options, "dsn", "postgresql://host/db"),
            options.get("query") or None,
            table=options.get("table") or None,
            key=key,
            batch_rows=min(number(options, "maxRowsPerTrigger", MAX_ROWS), FETCHED_ROWS),
        )

    def cut(self, parts: int) -> Ranges:
        return KeyRanges(self.source, parts, self.poll_s)

    def spans(self) -> list[Span]:
        """Key ranges may be read at different times: rows added meanwhile may be missing."""
        parts = self.settings.partitions or 1
        if parts == 1 or not self.source.resumable:
            return [Span(None, None, None)]
        source: Any = self.source
        with source.connect() as connection:
            count = connection.execute(source.count_query()).fetchone()[0]
            found = source.cut(connection, None, None, None, max(1, -(-count // parts)))
        ends = [one.until for one in found[:-1]]
        return [Span(low, high, None) for low, high in pairwise([None, *ends, None])]

    def remedy(self) -> str:
        return 'Name columns that are unique and not null, as in .option("key", "id").'


class FlightFormat(RemoteFormat):
    """dovetail-flight: a dataset of an Arrow Flight server."""

    OPTIONS: ClassVar = ("location", "dataset", "sameOrder", *CERTIFICATES, f"{HEADER}<name>")
    PREFIX: ClassVar = HEADER

    source: FlightSource

    @classmethod
    def name(cls) -> str:
        return "dovetail-flight"

    def open_source(self, options: MutableMapping[str, str]) -> FlightSource:
        certificates = {ours: _content(name, options[name]) for name, ours in CERTIFICATES.items() if options.get(name)}
        return FlightSource(
            text(options, "location", "grpc://host:8815"),
            text(options, "dataset", "orders"),
            flag(options, "sameOrder"),
            {name[len(HEADER) :]: value for name, value in options.items() if name.startswith(HEADER)},
            batch_rows=-(-number(options, "maxRowsPerTrigger", MAX_ROWS) // PIECES),
            **certificates,
        )

    def cut(self, parts: int) -> Ranges:
        return RowRanges(self.source, parts) if self.source.offsets else EndpointRanges(self.source, parts)

    def spans(self) -> list[Span]:
        """A task for each range of rows, or for each endpoint."""
        if not self.source.offsets:
            count = self.source.endpoint_count()
            return [Span(number, count, None) for number in range(count)]
        rows = self.source.available()
        return [Span(None, None, None)] if rows is None else self._cut_rows(rows)

    def _cut_rows(self, rows: int) -> list[Span]:
        return self.cut(self.settings.partitions or 1).cut(Offset(), Offset(rows))

    def now(self, start: Position) -> int | None:
        rows = self.source.available() if self.source.rows < 0 else None
        return None if rows is None else max(rows, start or 0)  # a restarted server may have fewer rows

    def remedy(self) -> str:
        return 'If it always sends the same rows in the same order, set .option("sameOrder", "true").'


def _content(name: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"{name} cannot be read: {error}.") from error
