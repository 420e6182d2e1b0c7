"""Which side of the join a name means, and which column of it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  everybody's name for it
from pyspark.sql.types import ArrayType, MapType, StructField, StructType
from sqlglot import exp

from dovetail.batch import Side
from dovetail.condition import quoted
from dovetail.condition.sql import parse_text
from dovetail.errors import ConditionError
from dovetail.spark.column_sql import Sql, field

NESTED = (StructType, MapType, ArrayType)
NAME_PART = re.compile(r"`((?:[^`]|``)*)`|([^.`]+)")
OWN_ALIASES = {side.alias: side for side in Side}


def name_parts(name: str) -> list[str]:
    """The parts of a dotted name; backticks keep a part with dots together."""
    return [found[1].replace("``", "`") if found[1] is not None else found[2] for found in NAME_PART.finditer(name)]


class Names:
    """The columns of two DataFrames, by name."""

    def __init__(self, left: DataFrame, right: DataFrame) -> None:
        self.frames = (left, right)

    def of(self, side: Side, parts: Sequence[str]) -> Sql:
        """A column that is known to be of this side."""
        path = self._path(side, parts)
        if path is None:
            raise ConditionError(
                f"{'.'.join(parts)}: the {side.name.lower()} DataFrame has no such column. "
                f"It has: {', '.join(self.frames[side].columns)}."
            )
        return self._spelled(side, path)

    def anywhere(self, parts: Sequence[str]) -> Sql:
        """A column given by name alone, perhaps with the alias of a DataFrame (then l and r are aliases, too)."""
        found = [(side, path) for side in Side if (path := self._path(side, parts)) is not None]
        if not found and len(parts) > 1 and parts[0].lower() in OWN_ALIASES:
            return self.of(OWN_ALIASES[parts[0].lower()], parts[1:])
        if len(found) == 1:
            return self._spelled(*found[0])
        name = ".".join(parts)
        if found:
            raise ConditionError(
                f"{name} is on both sides. Take it from the DataFrame that is meant, as in left[{name!r}], "
                f"give the DataFrames aliases, or write l.{name} or r.{name} as SQL text."
            )
        if len(parts) > 1:
            raise ConditionError(
                f"{name}: neither DataFrame has the alias {parts[0]} or a column of that name. "
                f"Name a DataFrame with .alias({parts[0]!r}), or use l.{parts[-1]} or r.{parts[-1]} in SQL text."
            )
        raise ConditionError(
            f"{name}: no such column. The left DataFrame has: {', '.join(self.frames[0].columns)}. "
            f"The right DataFrame has: {', '.join(self.frames[1].columns)}."
        )

    def in_text(self, text: str) -> Sql:
        """SQL text as given to F.expr, with the side of every column written out."""
        tree = parse_text(text)
        variables = {p.name for function in tree.find_all(exp.Lambda) for p in function.expressions}
        places = []
        for column in tree.find_all(exp.Column):
            if column.table or column.name not in variables:
                marks = [part.meta for part in column.parts]
                places.append((marks[0]["start"], marks[-1]["end"] + 1, [part.name for part in column.parts]))
        for start, end, parts in sorted(places, reverse=True):
            text = text[:start] + self.anywhere(parts).text + text[end:]
        # An interval stays bare: in parentheses it would no longer be seen as a constant to be added.
        return Sql(text if isinstance(tree, exp.Interval) else f"({text})")

    def is_in(self, side: Side, column: SparkColumn) -> bool:
        """Whether Spark finds the column in this DataFrame."""
        try:
            return bool(self.frames[side].select(column).schema)
        except AnalysisException:
            return False

    def _path(self, side: Side, parts: Sequence[str]) -> tuple[StructField, Sequence[str]] | None:
        """The column and the names of fields inside it that a dotted name means, if it means one of this side."""
        first = self._column(side, parts[0])
        if first is not None and (len(parts) == 1 or isinstance(first.dataType, NESTED)):
            return first, parts[1:]
        for at in range(1, len(parts)):  # what is before that is an alias, or a table with its catalogue and schema
            column = self._column(side, parts[at])
            if column is not None and self.is_in(side, F.col(".".join(quoted(part) for part in parts[: at + 1]))):
                return column, parts[at + 1 :]
        return None

    def _column(self, side: Side, name: str) -> StructField | None:
        fields = self.frames[side].schema.fields
        exact = [f for f in fields if f.name == name]
        return next(iter(exact or [f for f in fields if f.name.casefold() == name.casefold()]), None)

    def _spelled(self, side: Side, path: tuple[StructField, Sequence[str]]) -> Sql:
        column, fields = path
        result = Sql(f"{side.alias}.{quoted(column.name)}", column.dataType)
        for name in fields:
            result = field(result, name)
        return result


def ambiguous(name: str) -> ConditionError:
    return ConditionError(
        f"{name}: both sides come from the same DataFrame, so that the side cannot be told. Give them aliases "
        f"(left.alias('x'), right.alias('y'), and F.col('x.{name}') in the condition), "
        f"or write l.{name} or r.{name} as SQL text."
    )


def foreign(name: str) -> ConditionError:
    return ConditionError(
        f"{name} belongs to neither of the two DataFrames: it was taken from another one, or the column has been "
        f"replaced since. Take it from the DataFrames that are joined, as in left[{name!r}]."
    )
