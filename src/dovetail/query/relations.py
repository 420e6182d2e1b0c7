"""The relations in a FROM clause, and which of them a column belongs to.

A resolved column becomes `#2.price`: column price of relation number 2. This does not depend on the names of relations
in the text, or on whether the column was qualified there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp

from dovetail.query.text import Ambiguous, Unsupported, name_of, write

ColumnsOf = Callable[[exp.Expr], Sequence[str]]
"""Returns the column names of a table or a subquery in FROM."""

MARK = "#"


@dataclass(frozen=True)
class Relation:
    """A table or a subquery in FROM."""

    number: int
    tree: exp.Expr
    alias: str
    columns: tuple[str, ...]
    exact: bool  # whether names are case-sensitive
    shared: frozenset[str] = (
        frozenset()
    )  # of its columns, those in USING: unqualified, their names refer to another input

    @property
    def shown(self) -> list[str]:
        """The columns that a star expands to."""
        return [name for name in self.columns if name not in self.shared]

    @classmethod
    def read(cls, number: int, tree: exp.Expr, columns_of: ColumnsOf, exact: bool) -> Relation:
        kinds: dict[type[exp.Expr], set[str]] = {
            exp.Table: {"this", "db", "catalog", "alias"},
            exp.Subquery: {"this", "alias"},
        }
        known = kinds.get(type(tree))
        if known is None:
            raise Unsupported(f"{write(tree)} in FROM is not read here")
        if {key for key, value in tree.args.items() if value and key not in known}:
            raise Unsupported(f"{write(tree)}: more than a name stands in FROM")
        if isinstance(tree, exp.Subquery) and not isinstance(tree.this, exp.Query):
            raise Unsupported(f"{write(tree)}: joins in parentheses are not read here")
        if not tree.alias_or_name:  # unnamed in the text, but rewritten SQL needs a name
            tree = tree.copy()
            tree.set("alias", exp.TableAlias(this=name_of(f"_unnamed{number}")))
        columns = tuple(columns_of(tree))
        relation = cls(number, tree, tree.alias_or_name, columns, exact)
        if len({relation.key(name) for name in columns}) < len(columns):
            raise Unsupported(f"{relation.alias} has two columns of the same name")
        return relation

    def key(self, name: str) -> str:
        return name if self.exact else name.casefold()

    def is_called(self, name: str) -> bool:
        return self.key(name) == self.key(self.alias)

    def find(self, name: str) -> str | None:
        """The column's name as the relation spells it."""
        return next((column for column in self.columns if self.key(column) == self.key(name)), None)

    def column(self, name: str) -> exp.Column:
        return exp.Column(this=name_of(name), table=name_of(f"{MARK}{self.number}"))


class Scope:
    """The relations of a SELECT, without those of outer queries."""

    def __init__(self, relations: Sequence[Relation], columns_of: ColumnsOf, exact: bool) -> None:
        self.relations, self.columns_of, self.exact = relations, columns_of, exact

    def find(self, column: exp.Column) -> exp.Expr | None:
        """The relation's column that is meant, or a field of it. None if no relation here has it."""
        names = [part.name for part in column.parts]
        if any(isinstance(part, exp.Star) for part in column.parts):
            raise Unsupported(f"{write(column)} stands where no list of columns is")
        owners = [relation for relation in self.relations if relation.is_called(names[0])] if len(names) > 1 else []
        if len(owners) > 1:
            raise Unsupported(f"two inputs are called {names[0]}")
        if owners and (found := owners[0].find(names[1])) is not None:
            return _field(owners[0].column(found), names[2:])
        having = [relation for relation in self.relations if relation.find(names[0]) not in (None, *relation.shared)]
        if len(having) > 1 or (having and owners):
            raise Ambiguous(
                f"{write(column)} is ambiguous: write {having[0].alias}.{write(column)}, or that of another table"
            )
        if having:
            return _field(having[0].column(having[0].find(names[0]) or ""), names[1:])
        if owners:
            raise Unsupported(f"{write(column)}: no such column")
        return None

    def resolve(self, tree: exp.Expr, outputs: Sequence[str] = ()) -> exp.Expr:
        """The expression with all columns of these relations marked, also inside nested queries.

        A name that no relation has is left unchanged: it is an output. Names in `outputs` always are.
        """
        return _replaced(
            tree, lambda column: None if _is_output(column, outputs, self.exact) else self.find(column), self
        )


def _is_output(column: exp.Column, outputs: Sequence[str], exact: bool) -> bool:
    names = outputs if exact else [name.casefold() for name in outputs]
    return len(column.parts) == 1 and (column.name if exact else column.name.casefold()) in names


def _field(column: exp.Column, fields: Sequence[str]) -> exp.Expr:
    found: exp.Expr = column
    for field in fields:
        found = exp.Dot(this=found, expression=name_of(field))
    return found


def _replaced(tree: exp.Expr, find: Callable[[exp.Column], exp.Expr | None], scope: Scope) -> exp.Expr:
    def replace(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column):
            return (None if node.table.startswith(MARK) else find(node)) or node
        if isinstance(node, exp.Query) and not isinstance(node, exp.Subquery):
            return _nested(node, find, scope)
        for key, value in list(node.args.items()):
            if isinstance(value, exp.Expr):
                node.set(key, replace(value))
            elif isinstance(value, list):
                node.set(key, [replace(item) if isinstance(item, exp.Expr) else item for item in value])
        return node

    return replace(tree.copy())


def _nested(query: exp.Query, find: Callable[[exp.Column], exp.Expr | None], scope: Scope) -> exp.Query:
    """A query within an expression: a column that is not in its own FROM is looked up outside."""
    if not isinstance(query, exp.Select) or query.args.get("with_"):
        raise Unsupported(f"{write(query)}: this form of subquery is not read here")
    inner = Scope(
        [Relation.read(-1, tree, scope.columns_of, scope.exact) for tree in sources(query)],
        scope.columns_of,
        scope.exact,
    )
    outputs = [projection.alias_or_name for projection in query.expressions]

    def outside(column: exp.Column) -> exp.Expr | None:
        if inner.find(column) is not None:
            return None
        found = find(column)
        if found is not None and _is_output(column, outputs, scope.exact):
            raise Unsupported(f"{write(column)} may be an output or a column of the query around it")
        return found

    for key, value in list(query.args.items()):
        if key == "from_":
            continue  # this part does not see the outer scope
        if key == "joins":
            for join in value or ():
                if join.args.get("on"):
                    join.set("on", _replaced(join.args["on"], outside, scope))
        elif isinstance(value, exp.Expr):
            query.set(key, _replaced(value, outside, scope))
        elif isinstance(value, list):
            stars = (exp.Star,)
            query.set(
                key,
                [
                    item
                    if isinstance(item, stars) or not isinstance(item, exp.Expr)
                    else _replaced(item, outside, scope)
                    for item in value
                ],
            )
    return query


def sources(select: exp.Select) -> Iterator[exp.Expr]:
    """The items of FROM and of each JOIN."""
    from_ = select.args.get("from_")
    if from_ is not None:
        yield from_.this
    for join in select.args.get("joins") or ():
        yield join.this


def numbers_in(tree: exp.Expr) -> frozenset[int]:
    """The relations whose columns an expression reads."""
    return frozenset(int(column.table[1:]) for column in tree.find_all(exp.Column) if column.table.startswith(MARK))


def columns_in(tree: exp.Expr) -> Iterator[tuple[int, str]]:
    """The marked columns of an expression."""
    for column in tree.find_all(exp.Column):
        if column.table.startswith(MARK):
            yield int(column.table[1:]), column.name


def with_columns(tree: exp.Expr, made: Callable[[int, str], exp.Expr]) -> exp.Expr:
    """The expression with each marked column replaced."""

    def respell(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column) and node.table.startswith(MARK):
            return made(int(node.table[1:]), node.name)
        return node

    return tree.copy().transform(respell)
