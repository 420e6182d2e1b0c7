"""Runs a query over tables in this process: joins, filters, projections, groups and order, one after the other.

    tables -> filtered, only the columns that are needed -> joined, two at a time -> rest of WHERE -> groups -> HAVING
           -> QUALIFY -> projections -> DISTINCT -> ORDER BY -> OFFSET, LIMIT

It is not a full SQL engine: it supports what usually comes with a join. Errors for anything else say what to use
instead.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from sqlglot import exp

from dovetail import calls
from dovetail.arguments import nearest
from dovetail.condition.sql import parse_text
from dovetail.core.file_formats import FORMATS, input_path
from dovetail.core.tables import dataset_of
from dovetail.errors import ConditionError, InputError
from dovetail.inputs import scan
from dovetail.plain_sql.expressions import OUTPUT, ColumnKey, Rows, whole_number
from dovetail.plain_sql.grouping import (
    ELSEWHERE,
    ONE,
    group_pairs,
    group_rows,
    on_text,
    read_grouping,
    shown,
    text_of_both,
)
from dovetail.plain_sql.numbering import with_numbers, without_windows
from dovetail.query.chain import HIDES_RIGHT, Chain, Step, read_chain
from dovetail.query.ranking import Ranking, note_rankings, noted_ranking
from dovetail.query.relations import Relation, columns_in
from dovetail.query.rewriting import inline_expressions, without_range_hints
from dovetail.query.select import Tail, read_tail
from dovetail.query.text import Ambiguous, Unsupported, check_kinds, read_query, write
from dovetail.request import Request
from dovetail.sources.protocol import Scan


def query_tables(text: str, tables: Mapping[str, Any]) -> Any:
    """The result of a query: a pyarrow.Table, or a DataFrame of pandas or Polars if all tables are."""
    tree = read_query(text)
    if tree is None:
        parse_text(text, "query")
        raise InputError("dovetail.sql takes one query, SELECT …, over tables in process.")
    try:
        tree = inline_expressions(without_range_hints(tree))
        check_kinds(tree)
        note_rankings(tree)
        found = _Tables(tables).query(tree)
    except Ambiguous as reason:
        raise ConditionError(f"{reason}.") from None
    except Unsupported as reason:
        raise InputError(f"{reason}, for tables in process. {ELSEWHERE}") from None
    return _like(found, list(tables.values()))


class _Tables:
    """The tables of a query, by name, and those that the query defines itself."""

    def __init__(self, tables: Mapping[str, Any]) -> None:
        self._given = {name.casefold(): (name, table) for name, table in tables.items()}
        self._scans: dict[tuple[str, Ranking | None], Scan] = {}

    def query(self, tree: exp.Expr) -> pa.Table:
        while isinstance(tree, exp.Subquery):
            tree = tree.this
        if not isinstance(tree, exp.Select):
            raise InputError(f"{type(tree).__name__.upper()} is not for tables in process. {ELSEWHERE}")
        chain = read_chain(tree, self.columns_of, in_process=True)
        return _Select(self, chain, read_tail(tree, chain)).result()

    def columns_of(self, source: exp.Expr) -> Sequence[str]:
        names = list(self.scan(source).schema.names)
        alias = source.args.get("alias")
        renamed = [column.name for column in (alias.args.get("columns") or ())] if alias is not None else []
        if renamed and len(renamed) != len(names):
            raise InputError(f"{write(source)} names {len(renamed)} columns and has {len(names)}.")
        return renamed or names

    def scan(self, source: exp.Expr) -> Scan:
        key = write(source), noted_ranking(source)
        if key not in self._scans:
            self._scans[key] = scan(
                self.query(source.this) if isinstance(source, exp.Subquery) else self._table(source)
            )
        return self._scans[key]

    def _table(self, source: exp.Expr) -> Any:
        name = source.name
        if not isinstance(source.this, exp.Identifier) or source.args.get("db"):
            raise InputError(f"{write(source)} is not a table in process. {_instead_of(source)}")
        if name.casefold() in self._given:
            return _readable(self._given[name.casefold()][1])
        if Path(name).suffix in FORMATS:
            return _readable(name)
        known = [given for given, _ in self._given.values()]
        meant = nearest(name, known)
        hint = f"Did you mean {meant!r}?" if meant else f"Give it: dovetail.sql(query, {name}=table)."
        raise InputError(f"there is no table {name!r}; {_listed(known)}. {hint}")


def _instead_of(source: exp.Expr) -> str:
    written = source.copy()
    written.set("alias", None)
    if any(write(written).endswith(suffix) for suffix in FORMATS):
        return f"Write the name of a file in quotes: '{write(written)}'."
    return "Give tables as arguments, and use their names."


def _listed(names: Sequence[str]) -> str:
    return f"there are {', '.join(names)}" if names else "none was given"


def _readable(table: Any) -> Any:
    """A path is a file or a directory of files, in any known format."""
    if not isinstance(table, str | Path):
        return table
    path = input_path(table)
    dataset = dataset_of(path)
    return path if dataset.format.default_extname == "parquet" else dataset.to_table()


class _Select:
    """One SELECT."""

    def __init__(self, tables: _Tables, chain: Chain, tail: Tail) -> None:
        self.tables, self.chain = tables, chain
        self.names = [name or shown(tree) for name, tree in zip(tail.names, tail.projections, strict=True)]
        self.tail, self.windows = without_windows(tail)
        self.grouping = read_grouping(self.tail)
        if self.grouping is not None:
            if self.windows:
                raise InputError(f"numbers of groups' rows are not for tables in process. {ELSEWHERE}")
            self.tail = self.grouping.tail
        self._taken: set[str] = set()
        self._needed = tail.columns() | {
            column
            for part in (
                *chain.first_filters,
                *chain.rest,
                *(part for step in chain.steps for part in (*step.on, *step.filters)),
                *(value for step in chain.steps if step.best is not None for value in step.best.values),
            )
            for column in columns_in(part)
        }

    def result(self) -> pa.Table:
        rows = self._joined()
        having = self.tail.others.get("having")
        if having is not None:
            if self.grouping is None:
                raise ConditionError("HAVING needs GROUP BY or an aggregate: write WHERE.")
            rows = rows.where([having.this])
        columns = [rows.value(tree) for tree in self.tail.projections]
        names = self.names
        numbered = [f"c{number}" for number in range(len(columns))]
        table = pa.table(columns, names=numbered) if columns else pa.table({})
        if (distinct := self.tail.kept.get("distinct")) is not None:
            if isinstance(distinct, exp.Distinct) and distinct.args.get("on"):
                raise InputError(f"DISTINCT ON is not for tables in process. {ELSEWHERE}")
            table = _distinct(table)
            rows = Rows(table, {})
        if (order := self.tail.others.get("order")) is not None:
            table = table.take(self._order(order, rows, table, names))
        offset = whole_number(self._kept("offset"), "OFFSET") or 0
        return table.slice(offset, self._limit()).rename_columns(names)

    def _kept(self, key: str) -> exp.Expr | None:
        value = self.tail.kept.get(key)
        return value if isinstance(value, exp.Expr) else None

    def _limit(self) -> int | None:
        return whole_number(self._kept("limit"), "LIMIT")

    # Joins.

    def _joined(self) -> Rows:
        """The rows to project: those of the joins, or of their groups."""
        chain = self.chain
        left = self._rows(chain.first, [chain.first_filters])
        for number, step in enumerate(chain.steps):
            right = self._rows(step.relation, [step.filters, step.own()])
            step = replace(step, on=step.rest())
            is_last = number == len(chain.steps) - 1
            if is_last and self.grouping is not None and not chain.rest and step.best is None:
                groups = group_pairs(self.grouping, left, right, step)
                if groups is not None:
                    return groups
            left = self._join(left, right, step, self._enough() if is_last else None)
        left = left.where(chain.rest)
        if self.windows:
            left = with_numbers(left, self.windows)
        if (qualify := self.tail.others.get("qualify")) is not None:
            left = left.where([qualify.this])
        return left if self.grouping is None else group_rows(self.grouping, left)

    def _enough(self) -> int | None:
        """The number of joined rows that are enough for LIMIT. None if all are needed."""
        limit = self._limit()
        is_plain = self.grouping is None and not self.chain.rest and not {"order", "having"} & set(self.tail.others)
        if limit is None or not is_plain or self.windows or self.tail.kept.get("distinct"):
            return None
        return limit + (whole_number(self._kept("offset"), "OFFSET") or 0)

    def _rows(self, relation: Relation, filters: Iterable[Sequence[exp.Expr]]) -> Rows:
        """The rows of an input that pass its filters, with the columns that are needed."""
        found = self.tables.scan(relation.tree)
        there = dict(zip(relation.columns, found.schema.names, strict=True))
        wanted = [name for name in relation.columns if (relation.number, name) in self._needed]
        wanted = wanted or list(relation.columns[:1])
        table = found.to_table([there[name] for name in wanted]).select([there[name] for name in wanted])
        names = {(relation.number, name): self._name(relation, name) for name in wanted}
        rows = Rows(table.rename_columns(list(names.values())), names)
        for parts in filters:
            rows = rows.where(parts)
        return rows

    def _name(self, relation: Relation, column: str) -> str:
        """A name that no other column has, without regard to case."""
        name = column
        while name.casefold() in self._taken:
            name = f"{relation.alias}_{name}"
        self._taken.add(name.casefold())
        return name

    def _join(self, left: Rows, right: Rows, step: Step, limit: int | None) -> Rows:
        request = Request("join", (left.table, right.table), on_text(step, left, right), step.how)
        if step.best is not None:
            request = request.but(**step.best.options(lambda tree: text_of_both(tree, left, right)))
        if limit is not None:
            request = request.but(limit=limit)
        names: dict[ColumnKey, str] = dict(left.names)
        if step.how not in HIDES_RIGHT:
            names |= right.names
        return Rows(calls.join(request), names)

    # The result.

    def _order(self, order: exp.Expr, rows: Rows, table: pa.Table, names: Sequence[str]) -> pa.Array:
        """The order of the rows, by columns of the result or of the joins."""
        outputs = [name.casefold() for name in names]
        both, known = rows.table, dict(rows.names)
        if both.num_rows != table.num_rows or both is table:
            both, known = table, {}
        keys = []
        for key in order.expressions:
            value = key.this if isinstance(key, exp.Ordered) else key
            place = None
            if isinstance(value, exp.Literal) and value.name.isdigit():
                place = int(value.name) - 1
                if not 0 <= place < len(names):
                    raise ConditionError(f"ORDER BY {value.name}: there are {len(names)} columns.")
            elif isinstance(value, exp.Column) and len(value.parts) == 1 and value.name.casefold() in outputs:
                place = outputs.index(value.name.casefold())
            elif value in self.tail.projections:
                place = self.tail.projections.index(value)
            if place is not None:
                name = f"output {place}"
                if name not in both.column_names:
                    both = both.append_column(name, table.column(place))
                known[OUTPUT - 1, name] = name
                made = exp.Column(this=exp.to_identifier(name, quoted=True), table=exp.to_identifier(f"#{OUTPUT - 1}"))
                key = key.copy()
                key.set("this", made)
            keys.append(key)
        return Rows(both, known).sorted_by(keys)


def _distinct(table: pa.Table) -> pa.Table:
    """Distinct rows. Null equals null, and NaN equals NaN."""
    by = [f"l.{name}" for name in table.column_names]
    found = calls.aggregate(Request("aggregate", (table, ONE), "TRUE").but(by=by), {"rows": "count(*)"})
    return found.select(table.column_names)


def _like(table: pa.Table, given: Sequence[Any]) -> Any:
    """The table as a DataFrame of the library that the given tables are from."""
    for library, make in (("pandas", _pandas_frame), ("polars", _polars_frame)):
        module = sys.modules.get(library)
        if module is not None and given and all(isinstance(one, module.DataFrame) for one in given):
            return make(table, module)
    return table


def _pandas_frame(table: pa.Table, pandas: Any) -> Any:
    from dovetail.core.pandas_frames import frame_of

    return frame_of(table, [None] * table.num_columns, pandas)


def _polars_frame(table: pa.Table, polars: Any) -> Any:
    return polars.from_arrow(table)
