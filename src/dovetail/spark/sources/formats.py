"""dovetail-flight: a dataset of an Arrow Flight server."""

from __future__ import annotations

from collections.abc import MutableMapping
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

from dovetail.errors import InputError
from dovetail.sources import postgres
from dovetail.sources.arrow_flight import FlightSource
from dovetail.sources.protocol import Position
from dovetail.spark.sources.remote import RemoteFormat
from dovetail.spark.sources.settings import MAX_ROWS, flag, number, seconds, text

FETCHED_ROWS = 10_000  # at once, at most


class PostgresFormat(RemoteFormat):
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

    def ranges(self) -> list[tuple[Position, Position]]:
        return [(None, None)]

    def remedy(self) -> str:
        return 'Name columns that are unique and not null, as in .option("key", "id").'


HEADER = "header."
PIECES = 8  # of a full micro-batch: rows come in batches of other sizes, and a piece is not cut


class FlightFormat(RemoteFormat):
    OPTIONS: ClassVar = ("location", "dataset", "sameOrder", "numPartitions", "tlsRootCerts", f"{HEADER}<name>")
    PREFIX: ClassVar = HEADER

    source: FlightSource

    @classmethod
    def name(cls) -> str:
        return "dovetail-flight"

    def open_source(self, options: MutableMapping[str, str]) -> FlightSource:
        self._partitions = number(options, "numPartitions", 1)
        certificates = options.get("tlsRootCerts")
        return FlightSource(
            text(options, "location", "grpc://host:8815"),
            text(options, "dataset", "orders"),
            flag(options, "sameOrder"),
            {name[len(HEADER) :]: value for name, value in options.items() if name.startswith(HEADER)},
            batch_rows=-(-number(options, "maxRowsPerTrigger", MAX_ROWS) // PIECES),
            **({"tls_root_certs": _content(certificates)} if certificates else {}),
        )

    def ranges(self) -> list[tuple[int | None, int | None]]:
        rows = self.source.available() if self.source.offsets else None
        if rows is None:
            return [(None, None)]
        parts = max(1, min(self._partitions, rows))
        bounds = [rows * part // parts for part in range(parts + 1)]
        return list(pairwise(bounds))

    def now(self, start: Position) -> int | None:
        rows = self.source.available() if self.source.rows < 0 else None
        return None if rows is None else max(rows, start or 0)  # a server that started anew may be behind us

    def remedy(self) -> str:
        return 'If it always sends the same rows in the same order, set .option("sameOrder", "true").'


def _content(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"tlsRootCerts cannot be read: {error}.") from error
