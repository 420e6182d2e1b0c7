"""ClickHouse in process, with tables in its Memory engine."""

from __future__ import annotations

import tempfile
from typing import Any

import pyarrow as pa

from benchmarks.nonequi.case import Case, Files
from benchmarks.nonequi.contender import Contender
from benchmarks.nonequi.question import AsOf, Nearest, Pairs, Streams
from benchmarks.nonequi.sql import select

SETTINGS = "SETTINGS join_use_nulls = 1"  # rows without a partner have nulls, as in other systems


class Chdb(Contender):
    title = "ClickHouse (chdb)"
    packages = ("chdb", "chdb-core")
    first_by = "`send_query`, which streams the result"

    @classmethod
    def cannot(cls, case: Case) -> str | None:
        match case.question:
            case Streams():
                return "does not read streams"
            case Nearest():
                return "has no join by distance"
            case Pairs(_, how) if how != "inner":
                return "outer joins need an equality"
        return None

    def __init__(self, case: Case) -> None:
        from chdb import session

        super().__init__(case)
        self.directory = tempfile.TemporaryDirectory(prefix="chdb-")
        self.session = session.Session(self.directory.name)  # only one per process

    def load(self, files: Files) -> None:
        for name, file in zip("lr", files, strict=True):
            # By default columns read from files are nullable, and as-of joins reject those.
            rule = "SETTINGS schema_inference_make_columns_nullable = 0"
            self.session.query(f"DROP TABLE IF EXISTS {name}")
            self.session.query(f"CREATE TABLE {name} ENGINE = Memory AS SELECT * FROM file('{file}', Parquet) {rule}")

    def rows(self) -> Any:
        return self.session.query(self._query(), "ArrowTable")

    def count(self) -> int:
        found = self.session.query(f"SELECT count() FROM ({select(self.case.question)}) {SETTINGS}", "CSV")
        return int(str(found).strip())

    def first(self, rows: int) -> int:
        found = 0
        with self.session.send_query(self._query(), "ArrowStream") as stream:
            for part in stream:
                found += sum(batch.num_rows for batch in pa.ipc.open_stream(part.bytes()))
                if found >= rows:
                    break
        return found

    def _query(self) -> str:
        match self.case.question:
            case AsOf(left_time, right_time, keys):
                # An as-of join needs an equality; without keys it is one of constants.
                equal = f"l.{keys[0]} = r.{keys[1]}" if keys else "l.one = r.one"
                left, right = ("l", "r") if keys else ("(SELECT *, 1 AS one FROM l) l", "(SELECT *, 1 AS one FROM r) r")
                on = f"{equal} AND l.{left_time} >= r.{right_time}"
                return f"SELECT l.*, r.* FROM {left} ASOF LEFT JOIN {right} ON {on} {SETTINGS}"
            case question:
                return f"{select(question)} {SETTINGS}"
