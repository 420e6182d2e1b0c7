"""pandas: its own `merge_asof`, and `conditional_join` of pyjanitor."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from benchmarks.nonequi.case import Case, Files
from benchmarks.nonequi.contender import Contender
from benchmarks.nonequi.question import AsOf, EitherEqual, Nearest, Pairs, Streams, Term, WindowSums, comparisons


class Pandas(Contender):
    title = "pandas, pyjanitor"
    packages = ("pandas", "pyjanitor", "janitor-rs")
    first_by = "the whole result"

    @classmethod
    def cannot(cls, case: Case) -> str | None:
        match case.question:
            case Streams():
                return "does not read streams"
            case Nearest():
                return "has no join by distance; SciPy is a column of its own"
            case Pairs((EitherEqual(),)):
                return None
            case Pairs(terms) if comparisons(terms) is None:
                return "`conditional_join` compares columns, not expressions of both sides"
        return None

    def load(self, files: Files) -> None:
        import pandas as pd

        self.left, self.right = (pd.read_parquet(file) for file in files)

    def rows(self) -> Any:
        import pandas as pd

        match self.case.question:
            case AsOf(left_time, right_time, keys):
                by = {"left_by": keys[0], "right_by": keys[1]} if keys else {}
                return pd.merge_asof(self.left, self.right, left_on=left_time, right_on=right_time, **by)
            case WindowSums(terms, value):
                pairs = self._join(terms, "inner", {"left": ["l_id"], "right": [value]})
                sums = pairs.groupby("l_id")[value].agg(n="count", total="sum")
                found = self.left[["l_id"]].join(sums, on="l_id")
                return found.assign(n=found["n"].fillna(0))
            case Pairs((EitherEqual(pairs),)):
                joins = []
                for number, (left, right) in enumerate(pairs):
                    joined = self.left.merge(self.right, left_on=left, right_on=right)
                    for a, b in pairs[:number]:
                        joined = joined[joined[a] != joined[b]]
                    joins.append(joined)
                return pd.concat(joins)
            case Pairs(terms, how):
                return self._join(terms, how)
        raise NotImplementedError(self.case.question)

    def count(self) -> int:
        match self.case.question:
            case Pairs((EitherEqual(),)):
                return len(self.rows())
            case Pairs(terms, how):
                only = {"left": [], "right": ["r_id"]} if how == "right" else {"left": ["l_id"], "right": []}
                return len(self._join(terms, how, only))
        raise NotImplementedError(self.case.question)

    def first(self, rows: int) -> int:
        return len(self.rows().head(rows))

    def arrow(self, result: Any) -> pa.Table:
        return pa.Table.from_pandas(result, preserve_index=False)

    def _join(self, terms: tuple[Term, ...], how: str, columns: Any = None) -> Any:
        import janitor  # noqa: F401  gives data frames the method

        conditions, shifted = [], {}
        for number, one in enumerate(comparisons(terms) or ()):
            name = one.right
            if one.shift:
                name = f"r_shifted{number}"
                shifted[name] = self.right[one.right] + one.shift
            conditions.append((one.left, name, "==" if one.operator == "=" else one.operator))
        right = self.right.assign(**shifted) if shifted else self.right
        kind = "outer" if how == "full" else how
        return self.left.conditional_join(right, *conditions, how=kind, output_columns=columns)
