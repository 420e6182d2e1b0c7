"""GROUP BY and aggregates: extracted from the expressions of a query, computed by `dovetail.aggregate`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from dovetail import calls
from dovetail.condition.dialect import spark_text
from dovetail.condition.expression import quoted_if_needed
from dovetail.errors import ConditionError, InputError
from dovetail.plain_sql.expressions import OUTPUT, ColumnKey, Rows
from dovetail.query.chain import Step
from dovetail.query.relations import MARK, numbers_in, with_columns
from dovetail.query.select import Tail
from dovetail.query.text import name_of, write
from dovetail.request import Request

AGGREGATES = ("count", "sum", "avg", "min", "max")
ONE = pa.table({"one": [1]})
"""A single row, joined with all rows if there is no join whose pairs can be aggregated."""
ELSEWHERE = (
    "Join with dovetail.sql, without it, and go on in pandas, Polars or DuckDB: "
    'joined = dovetail.sql(...); duckdb.sql("SELECT ... FROM joined").'
)


@dataclass(frozen=True)
class Grouping:
    """The groups and aggregates of a SELECT. In its expressions, both are replaced by columns of the grouped result."""

    keys: list[exp.Expr]
    calls: list[exp.Anonymous]
    tail: Tail

    def needed(self) -> list[exp.Expr]:
        return [*self.keys, *(call.expressions[0] for call in self.calls)]


def read_grouping(tail: Tail) -> Grouping | None:
    """The grouping of a SELECT. None if it has none."""
    for tree in tail.trees():
        _refuse_other_aggregates(tree)
    group = tail.others.get("group")
    trees = [tree for key, tree in tail.others.items() if key != "group"]
    found = [call for tree in [*tail.projections, *trees] for call in tree.find_all(exp.Anonymous) if _is_one(call)]
    if group is None and not found:
        return None
    keys: list[exp.Expr] = []
    if group is not None:
        if any(value for key, value in group.args.items() if key not in ("expressions", "all")):
            raise InputError(f"{write(group).strip()} is not for tables in process. {ELSEWHERE}")
        keys = [_key(key, tail) for key in group.expressions]
        if group.args.get("all"):
            keys = [tree for tree in tail.projections if not any(_is_one(c) for c in tree.find_all(exp.Anonymous))]
    seen: dict[str, exp.Anonymous] = {}
    for call in found:
        _check_aggregate(call)
        seen.setdefault(_plain(call), call)
    places = {text: number for number, text in enumerate(seen)}
    key_texts = {_plain(key): number for number, key in enumerate(keys)}

    def replace(node: exp.Expr) -> exp.Expr:
        if (number := key_texts.get(_plain(node))) is not None and isinstance(node, exp.Condition):
            return _group_column(f"key{number}")
        if isinstance(node, exp.Anonymous) and _is_one(node):
            return _group_column(f"value{places[_plain(node)]}")
        return node

    projections = [tree.copy().transform(replace) for tree in tail.projections]
    others = {key: tree.copy().transform(replace) for key, tree in tail.others.items() if key != "group"}
    return Grouping(keys, list(seen.values()), Tail(projections, tail.names, others, tail.kept))


def _group_column(name: str) -> exp.Column:
    return exp.Column(this=name_of(name), table=name_of(f"{MARK}{OUTPUT}"))


def _key(key: exp.Expr, tail: Tail) -> exp.Expr:
    """A grouping key: an expression, the number of a projection, or its name."""
    if isinstance(key, exp.Literal) and key.name.isdigit():
        place = int(key.name)
        if not 1 <= place <= len(tail.projections):
            raise ConditionError(f"GROUP BY {place}: there are {len(tail.projections)} columns.")
        return tail.projections[place - 1]
    if isinstance(key, exp.Column) and not numbers_in(key):
        named = [tree for tree, name in zip(tail.projections, tail.names, strict=True) if name == key.name]
        if len(named) == 1:
            return named[0]
    return key


def _plain(tree: exp.Expr) -> str:
    while isinstance(tree, exp.Paren):
        tree = tree.this
    return spark_text(tree).casefold() if isinstance(tree, exp.Anonymous) else spark_text(tree)


def _is_one(call: exp.Anonymous) -> bool:
    return call.name.lower() in AGGREGATES


def _check_aggregate(call: exp.Anonymous) -> None:
    arguments = call.expressions
    if len(arguments) != 1 or isinstance(arguments[0], exp.Distinct):
        raise InputError(f"{shown(call)} is not for tables in process. {ELSEWHERE}")
    if any(_is_one(inner) for inner in arguments[0].find_all(exp.Anonymous)):
        raise ConditionError(f"{shown(call)}: an aggregate cannot contain another one.")
    if isinstance(arguments[0], exp.Star) and call.name.lower() != "count":
        raise ConditionError(f"{shown(call)}: only count takes a star; name a column.")


def _refuse_other_aggregates(tree: exp.Expr) -> None:
    for node in tree.find_all(exp.Window, exp.Filter):
        raise InputError(f"{shown(node)} is not for tables in process. {ELSEWHERE}")


def shown(tree: exp.Expr) -> str:
    """The expression as it was written, except for the names of inputs."""
    return write(tree.copy().transform(_unmarked))


def _unmarked(node: exp.Expr) -> exp.Expr:
    return exp.Var(this=quoted_if_needed(node.name)) if isinstance(node, exp.Column) and numbers_in(node) else node


def group_rows(grouping: Grouping, rows: Rows) -> Rows:
    """Group a table, by joining all of it with one row."""
    table, names = rows.table, {}
    for number, key in enumerate(grouping.keys):
        name = f"key {number}"
        table = table.append_column(name, rows.value(key))
        names[OUTPUT, f"key{number}"] = name
    request = Request("aggregate", (table, ONE), "TRUE")
    return _groups(request, _aggregates(grouping, rows.text), [f"l.`{name}`" for name in names.values()], grouping)


def group_pairs(grouping: Grouping, left: Rows, right: Rows, step: Step) -> Rows | None:
    """Group the pairs of a join without enumerating them. None if an expression reads both sides."""
    ours = {step.relation.number}
    sides = [numbers_in(tree) for tree in grouping.needed()]
    if step.how != "inner" or any(side & ours and side - ours for side in sides):
        return None
    key_sides = [numbers_in(key) for key in grouping.keys]
    if not all(key_sides) or len({side <= ours for side in key_sides}) > 1:
        return None
    if not all(isinstance(key, exp.Column) for key in grouping.keys):
        return None
    both = {False: left, True: right}

    def spelled(tree: exp.Expr) -> str:
        on_right = bool(numbers_in(tree) & ours)
        return both[on_right].text(tree, "r" if on_right else "l")

    request = Request("aggregate", (left.table, right.table), on_text(step, left, right))
    aggregates = _aggregates(grouping, spelled)
    return _groups(request, aggregates, [spelled(key) for key in grouping.keys], grouping)


def _aggregates(grouping: Grouping, spelled: Callable[[exp.Expr], str]) -> dict[str, str]:
    """The aggregates for `dovetail.aggregate`, by name."""
    arguments = [(call.name.lower(), call.expressions[0]) for call in grouping.calls]
    return {
        f"value{number}": f"{function}({'*' if isinstance(argument, exp.Star) else spelled(argument)})"
        for number, (function, argument) in enumerate(arguments)
    }


def _groups(request: Request, aggregates: dict[str, str], by: Sequence[str], grouping: Grouping) -> Rows:
    asked = request.but(by=list(by)) if by else request
    found = calls.aggregate(asked, aggregates or {"rows": "count(*)"})
    made = [f"key{number}" for number in range(len(grouping.keys))]
    made += [f"value{number}" for number in range(len(grouping.calls))] if aggregates else ["rows"]
    names: dict[ColumnKey, str] = {(OUTPUT, name): name for name in made}
    return Rows(found.rename_columns(made), names)


def on_text(step: Step, left: Rows, right: Rows) -> str:
    """The condition of a join of two tables."""
    return " AND ".join(f"({text_of_both(part, left, right)})" for part in step.on) or "TRUE"


def text_of_both(part: exp.Expr, left: Rows, right: Rows) -> str:
    """An expression over two tables."""
    names = {column: f"l.`{name}`" for column, name in left.names.items()}
    names |= {column: f"r.`{name}`" for column, name in right.names.items()}
    return spark_text(with_columns(part, lambda number, name: exp.Var(this=names[number, name])))
