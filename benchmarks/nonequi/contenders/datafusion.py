"""DataFusion, with tables in memory, loaded from Parquet files."""

from __future__ import annotations

from typing import Any

from benchmarks.nonequi.case import Case, Files
from benchmarks.nonequi.contender import Contender
from benchmarks.nonequi.question import AsOf, Nearest, Streams
from benchmarks.nonequi.sql import select


class DataFusion(Contender):
    title = "DataFusion"
    packages = ("datafusion",)
    first_by = "`execute_stream`"

    @classmethod
    def cannot(cls, case: Case) -> str | None:
        match case.question:
            case Streams():
                return "its Python package does not read streams"
            case AsOf():
                return "has no as-of join"
            case Nearest():
                return "has no join by distance"
        return None

    def load(self, files: Files) -> None:
        import datafusion

        self.context = datafusion.SessionContext()
        for name, file in zip("lr", files, strict=True):
            self.context.register_view(name, self.context.read_parquet(str(file)).cache())

    def rows(self) -> Any:
        return self._query().to_arrow_table()

    def count(self) -> int:
        return int(self._query().count())

    def first(self, rows: int) -> int:
        found = 0
        for batch in self._query().execute_stream():
            found += batch.to_pyarrow().num_rows
            if found >= rows:
                break
        return found

    def _query(self) -> Any:
        return self.context.sql(select(self.case.question))
