"""SedonaDB: spatial joins of points, with tables in memory that have a geometry column."""

from __future__ import annotations

from typing import Any

from benchmarks.nonequi.case import Case, Files
from benchmarks.nonequi.contender import Contender
from benchmarks.nonequi.question import Band, Nearest, Pairs


class SedonaDB(Contender):
    title = "SedonaDB"
    packages = ("sedonadb",)
    first_by = "a reader that streams the result"

    @classmethod
    def cannot(cls, case: Case) -> str | None:
        match case.question:
            case Nearest() | Pairs((Band(), Band()), "inner"):
                return None
        return "its joins are spatial; for others it has DataFusion's"

    def load(self, files: Files) -> None:
        import sedonadb

        self.context = sedonadb.connect()
        for name, file in zip("lr", files, strict=True):
            self.context.read_parquet(str(file)).to_view("read", overwrite=True)
            shape = self._shape(name)
            table = self.context.sql(f"SELECT *, {shape} AS {name}_shape FROM read").to_memtable()
            table.to_view(name, overwrite=True)

    def rows(self) -> Any:
        return self.context.sql(self._query("l_id, l_v, r_id, r_v")).to_arrow_table()

    def count(self) -> int:
        return int(self.context.sql(self._query("l_id")).count())

    def first(self, rows: int) -> int:
        found = 0
        for batch in self.context.sql(self._query("l_id, l_v, r_id, r_v")).to_arrow_reader():
            found += batch.num_rows
            if found >= rows:
                break
        return found

    def _shape(self, side: str) -> str:
        """A point; for a band, the right side is the square around the point."""
        match self.case.question:
            case Pairs((Band(left, right, reach), Band(left_y, right_y, reach_y))):
                if side == "r":
                    corners = f"{right} - {reach}, {right_y} - {reach_y}, {right} + {reach}, {right_y} + {reach_y}"
                    return f"ST_MakeEnvelope({corners})"
                x, y = left, left_y
            case Nearest(left_xy, right_xy):
                x, y = left_xy if side == "l" else right_xy
        return f"ST_Point({x}, {y})"

    def _query(self, columns: str) -> str:
        match self.case.question:
            case Nearest(_, _, k):
                on = f"ST_KNN(l.l_shape, r.r_shape, {k}, FALSE)"
            case _:
                on = "ST_Intersects(l.l_shape, r.r_shape)"
        return f"SELECT {columns} FROM l JOIN r ON {on}"
