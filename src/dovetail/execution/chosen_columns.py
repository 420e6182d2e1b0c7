"""Column selection by `columns=`: which columns of each side are read, and which the result has.

    kept      columns of a side that are in the result
    read      columns of a side that only the condition reads: they come last, and are dropped when rows are built

Names refer to the whole result: a right column that clashes keeps its suffix, even if the left one is not selected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from dovetail.core.rows import Side
from dovetail.errors import InputError
from dovetail.visible import visible

Names = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ChosenColumns:
    names: Names  # of the result, in its order
    kept: tuple[Names, Names]  # by their names in the input
    read: tuple[Names, Names]  # the same
    fields: tuple[tuple[pa.Field, ...], tuple[pa.Field, ...]]  # of the result; empty for a side that is not in it
    width: int  # number of columns of the whole result

    @classmethod
    def choose(
        cls,
        wanted: Iterable[str],
        output: pa.Schema,
        schemas: tuple[pa.Schema, pa.Schema],
        read: tuple[Iterable[str], Iterable[str]],
        *,
        fold_case: bool = False,
    ) -> ChosenColumns:
        """Resolve names of the whole result. `read`: the columns of each side that the condition reads."""
        names = find_names(wanted, output.names, fold_case=fold_case)
        width = len(schemas[0])
        sides = (list(output)[:width], list(output)[width:])
        kept, hidden, fields = [], [], []
        for side in Side:
            schema, chosen = schemas[side], set(names)
            positions = [i for i, field in enumerate(sides[side]) if field.name in chosen]
            own = tuple(schema.names[i] for i in positions)
            needed = set(read[side]) - set(own)
            rest = [i for i, name in enumerate(schema.names) if name in needed]
            if not positions and not rest and len(schema):
                rest = [0]  # any column, to count the rows
            kept.append(own)
            hidden.append(tuple(schema.names[i] for i in rest))
            fields.append(tuple(sides[side][i] for i in (*positions, *rest) if i < len(sides[side])))
        return cls(names, (kept[0], kept[1]), (hidden[0], hidden[1]), (fields[0], fields[1]), len(output))

    @property
    def all(self) -> tuple[Names, Names]:
        """The columns needed of each side; those that only the condition reads come last."""
        return self.kept[0] + self.read[0], self.kept[1] + self.read[1]

    @property
    def drop(self) -> tuple[int, int]:
        """The number of columns at the end of each side that only the condition reads."""
        return len(self.read[0]), len(self.read[1])

    def schema(self, *, dropped: bool) -> pa.Schema:
        """The columns of joined rows, with or without those that only the condition reads."""
        cut = [len(self.kept[side]) if dropped else len(self.fields[side]) for side in Side]
        return pa.schema([*self.fields[0][: cut[0]], *self.fields[1][: cut[1]]])

    @property
    def summary(self) -> str:
        """A summary for `explain`."""
        text = f"{len(self.names)} of {self.width} are in the result"
        read = [f"{side.alias}.{name}" for side in Side for name in self.read[side]]
        return f"{text}; {', '.join(read)} read for the condition" if read else text


def find_names(wanted: Iterable[str], names: Sequence[str], *, fold_case: bool = False) -> Names:
    """The names as spelled in the result; an error for names that it does not have."""
    if isinstance(wanted, str):
        raise InputError(f"columns must be a list of names, such as [{wanted!r}]; got {wanted!r}.")
    known = {name.lower(): name for name in names} if fold_case else {}
    known |= {name: name for name in names}
    found = []
    for name in wanted:
        match = known.get(name, known.get(str(name).lower()) if fold_case else None)
        if match is None:
            has = visible(", ".join(names))
            raise InputError(f"columns= asks for {name!r}, which the result does not have. It has: {has}.")
        found.append(match)
    twice = [name for name, times in Counter(found).items() if times > 1]
    if twice:
        raise InputError(f"columns= names {', '.join(twice)} more than once.")
    return tuple(found)
