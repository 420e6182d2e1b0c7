"""dovetail-postgresql: a table or query of PostgreSQL, read in the order of a key."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, ClassVar

from dovetail.sources import postgres
from dovetail.sources.protocol import Position
from dovetail.spark.sources.remote import RemoteFormat
from dovetail.spark.sources.settings import MAX_ROWS, number, seconds, text

FETCHED_ROWS = 10_000  # at once, at most


class PostgresFormat(RemoteFormat):
    OPTIONS: ClassVar = ("dsn", "table", "query", "key", "pollSeconds")

    @classmethod
    def name(cls) -> str:
        return "dovetail-postgresql"

    def connected(self, options: MutableMapping[str, str]) -> Any:
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
