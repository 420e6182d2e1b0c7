"""DuckDB, with its own tables in memory and results as Arrow tables."""

from __future__ import annotations

from typing import Any

from benchmarks.nonequi.case import Case, Files
from benchmarks.nonequi.contender import Contender
from benchmarks.nonequi.question import AsOf, Nearest, Streams
from benchmarks.nonequi.sql import select


class DuckDB(Contender):
    title = "DuckDB"
    packages = ("duckdb",)
    first_by = "a reader that streams the result"

    @classmethod
    def cannot(cls, case: Case) -> str | None:
        return "does not read streams" if isinstance(case.question, Streams) else None

    def load(self, files: Files) -> None:
        import duckdb

        self.connection = duckdb.connect()
        self.connection.execute("SET enable_progress_bar = false")
        for name, file in zip("lr", files, strict=True):
            self.connection.execute(f"CREATE OR REPLACE TABLE {name} AS FROM '{file}'")

    def rows(self) -> Any:
        return self.connection.sql(self._query()).to_arrow_table()

    def count(self) -> int:
        found: Any = self.connection.execute(f"SELECT count(*) FROM ({self._query()})").fetchall()
        return int(found[0][0])

    def first(self, rows: int) -> int:
        found = 0
        reader: Any = self.connection.execute(self._query()).to_arrow_reader(rows)
        for batch in reader:
            found += batch.num_rows
            if found >= rows:
                break
        return found

    def _query(self) -> str:
        match self.case.question:
            case AsOf(left_time, right_time, keys):
                equal = f"l.{keys[0]} = r.{keys[1]} AND " if keys else ""
                return f"SELECT l.*, r.* FROM l ASOF LEFT JOIN r ON {equal}l.{left_time} >= r.{right_time}"
            case Nearest((lx, ly), (rx, ry), k):
                distance = f"(l.{lx} - r.{rx}) ** 2 + (l.{ly} - r.{ry}) ** 2"
                return f"SELECT l.*, s.* FROM l, LATERAL (SELECT * FROM r ORDER BY {distance} LIMIT {k}) s"
            case question:
                return select(question, anti="ANTI JOIN")
