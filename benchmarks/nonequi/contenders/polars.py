"""Polars: `join_where` for inequalities, `join_asof`, and joins on equal keys for the rest."""

from __future__ import annotations

import operator
from typing import Any

from benchmarks.nonequi.case import Case, Files
from benchmarks.nonequi.contender import Contender
from benchmarks.nonequi.question import (
    AsOf,
    EitherEqual,
    Nearest,
    Pairs,
    Streams,
    SumModulo,
    Term,
    WindowSums,
    comparisons,
)

OPERATORS = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Polars(Contender):
    title = "Polars"
    packages = ("polars",)
    first_by = "`head` on the streaming engine"

    @classmethod
    def cannot(cls, case: Case) -> str | None:
        match case.question:
            case Streams():
                return "does not read streams"
            case Nearest():
                return "has no join by distance; a cross join and a sort are left"
            case Pairs(_, "right" | "full"):
                return "`join_where` is for inner joins"
        return None

    def load(self, files: Files) -> None:
        import polars as pl

        self.left, self.right = (pl.read_parquet(file).lazy() for file in files)

    def rows(self) -> Any:
        return self._query().collect()

    def count(self) -> int:
        import polars as pl

        return int(self._query().select(pl.len()).collect().item())

    def first(self, rows: int) -> int:
        return int(self._query().head(rows).collect(engine="streaming").height)

    def arrow(self, result: Any) -> Any:
        return result.to_arrow()

    def _query(self) -> Any:
        import polars as pl

        match self.case.question:
            case AsOf(left_time, right_time, keys):
                left_key, right_key = keys or (None, None)
                return self.left.join_asof(
                    self.right, left_on=left_time, right_on=right_time, by_left=left_key, by_right=right_key,
                    coalesce=False, check_sortedness=False,
                )  # fmt: skip
            case WindowSums(terms, value):
                pairs = self._where(terms).group_by("l_id").agg(pl.len().alias("n"), total=pl.col(value).sum())
                all_rows = self.left.select("l_id").join(pairs, on="l_id", how="left")
                return all_rows.with_columns(pl.col("n").fill_null(0))
            case Pairs((EitherEqual(pairs),), "inner"):
                joins = []
                for number, (left, right) in enumerate(pairs):
                    joined = self.left.join(self.right, left_on=left, right_on=right, coalesce=False)
                    others = [pl.col(a) != pl.col(b) for a, b in pairs[:number]]
                    joins.append(joined.filter(*others) if others else joined)
                return pl.concat(joins)
            case Pairs(terms, "inner"):
                return self._where(terms)
            case Pairs(terms, how):
                found = self._where(terms)
                if how == "left_anti":
                    return self.left.join(found.select("l_id"), on="l_id", how="anti")
                return pl.concat([found, self.left.join(found, on="l_id", how="anti")], how="diagonal")
        raise NotImplementedError(self.case.question)

    def _where(self, terms: tuple[Term, ...]) -> Any:
        import polars as pl

        found = comparisons(terms)
        if found is not None:
            predicates = [OPERATORS[one.operator](pl.col(one.left), pl.col(one.right) + one.shift) for one in found]
        else:
            predicates = [
                OPERATORS[term.operator]((pl.col(term.left) + pl.col(term.right)) % term.modulus, term.remainder)
                for term in terms
                if isinstance(term, SumModulo)
            ]
        return self.left.join_where(self.right, *predicates)
