"""`--select`: the columns of the result, their order and their names.

l.id, r.amount AS paid        columns of an input
id, amount_right              columns of the result
*, l.*                        all of them, or those of an input
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa
from sqlglot import exp

from dovetail.arguments import nearest
from dovetail.condition.dialect import DIALECT
from dovetail.core.rows import Side
from dovetail.errors import InputError
from dovetail.result_columns import ResultColumns

HOW = '--select takes columns, such as "l.id, r.amount AS paid"'


class Selection(NamedTuple):
    """Positions among the columns of a result, with a name for each."""

    positions: list[int]
    names: list[str]

    @classmethod
    def read(cls, text: str | None, columns: ResultColumns) -> Selection:
        """Parse the text. None selects all columns."""
        known = NamedColumns(columns)
        chosen = [pair for item in _items(text or "*") for pair in known.find(item)]
        names = [name for _, name in chosen]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise InputError(f"--select has two columns called {twice[0]!r}: rename one, {twice[0]} AS ….")
        return cls([position for position, _ in chosen], names)

    def of_table(self, table: pa.Table) -> pa.Table:
        return table.select(self.positions).rename_columns(self.names)

    def of_schema(self, schema: pa.Schema) -> pa.Schema:
        pairs = zip(self.positions, self.names, strict=True)
        return pa.schema([schema.field(position).with_name(name) for position, name in pairs])

    def of_frame(self, frame: Any) -> Any:
        """Select from a Spark DataFrame, by position: names may differ only in case."""
        if self.positions == list(range(len(frame.columns))):
            return frame.toDF(*self.names)
        numbered = frame.toDF(*(f"c{position}" for position in range(len(frame.columns))))
        return numbered.select(*(f"c{position}" for position in self.positions)).toDF(*self.names)


def _items(text: str) -> list[exp.Expr]:
    try:
        tree = DIALECT.parser().parse(DIALECT.tokenize(f"SELECT {text}"), text)[0]
    except Exception as error:
        raise InputError(f"{HOW}; {text!r} cannot be read.") from error
    if not isinstance(tree, exp.Select) or any(part for name, part in tree.args.items() if name != "expressions"):
        raise InputError(f"{HOW}; got {text!r}.")
    return list(tree.expressions)


class NamedColumns:
    """The columns of a result, looked up by the names that users write."""

    def __init__(self, columns: ResultColumns) -> None:
        self._result = columns.schema.names
        self._of = {
            side.alias: {columns.schemas[side].names[own]: n for own, n in columns.places_of(side)}
            for side in Side
            if columns.how.only in (None, side)
        }

    def find(self, item: exp.Expr) -> list[tuple[int, str]]:
        """The position and the name of a column, or of all columns of a star."""
        column, alias = (item.this, item.alias) if isinstance(item, exp.Alias) else (item, "")
        if isinstance(column, exp.Star):
            return list(enumerate(self._result))
        if not isinstance(column, exp.Column):
            raise InputError(f"{HOW}; {item.sql(DIALECT)!r} is not one.")
        known = self._named(column.table)
        if isinstance(column.this, exp.Star):
            return [(position, self._result[position]) for position in known.values()]
        if column.name not in known:
            meant = nearest(column.name, known) or self._elsewhere(column)
            hint = f" Did you mean {meant!r}?" if meant else ""
            raise InputError(f"--select: there is no column {column.sql(DIALECT)}.{hint} There are {', '.join(known)}.")
        position = known[column.name]
        return [(position, alias or self._result[position])]

    def _elsewhere(self, column: exp.Column) -> str | None:
        """The column of the other input that was probably meant."""
        others = {alias: names for alias, names in self._of.items() if column.table and alias != column.table.lower()}
        found = ((alias, nearest(column.name, names)) for alias, names in others.items())
        return next((f"{alias}.{name}" for alias, name in found if name is not None), None)

    def _named(self, alias: str) -> dict[str, int]:
        if not alias:
            return {name: position for position, name in enumerate(self._result)}
        if alias.lower() not in self._of:
            raise InputError(f"--select: the result has columns of {' and '.join(self._of)}; got {alias!r}.")
        return self._of[alias.lower()]
