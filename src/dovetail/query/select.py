"""The parts of a SELECT after its joins: named projections, and the clauses that follow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp

from dovetail.query.chain import Chain
from dovetail.query.relations import columns_in
from dovetail.query.text import Unsupported, write


@dataclass(frozen=True)
class Tail:
    """Everything of a SELECT except FROM and WHERE, with marked columns."""

    projections: list[exp.Expr]  # without their names
    names: list[str | None]  # None: Spark derives one from the expression
    others: dict[str, exp.Expr]  # GROUP BY, HAVING, QUALIFY, ORDER BY, by sqlglot's name
    kept: dict[str, object]  # LIMIT, DISTINCT and other clauses without columns

    def trees(self) -> Iterator[exp.Expr]:
        yield from self.projections
        yield from self.others.values()

    def columns(self) -> set[tuple[int, str]]:
        return {column for tree in self.trees() for column in columns_in(tree)}


def read_tail(select: exp.Select, chain: Chain) -> Tail:
    projections: list[exp.Expr] = []
    names: list[str | None] = []
    for projection in select.expressions:
        for tree, name in _expanded(projection, chain):
            projections.append(tree)
            names.append(name)
    aliases = [projection.alias for projection in select.expressions if projection.alias]
    outputs = [*aliases, *(name for name in names if name is not None and name not in aliases)]
    others: dict[str, exp.Expr] = {}
    kept: dict[str, object] = {}
    for key, value in select.args.items():
        if not value or key in ("expressions", "from_", "joins", "where"):
            continue
        if key == "order":
            others[key] = chain.scope.resolve(value, outputs)
        elif key == "having":
            _refuse_either(value, aliases, chain)
            others[key] = chain.scope.resolve(value)
        elif key == "group":
            others[key] = chain.scope.resolve(value)
        elif key == "qualify":
            _refuse_either(value, aliases, chain)
            others[key] = _without_aliases(chain.scope.resolve(value), projections, names, chain)
        elif key == "windows":
            raise Unsupported("named windows are not read here")
        else:
            kept[key] = value
    return Tail(projections, names, others, kept)


def _expanded(projection: exp.Expr, chain: Chain) -> Iterator[tuple[exp.Expr, str | None]]:
    star = projection.find(exp.Star)
    is_star = isinstance(projection, exp.Star) or (
        isinstance(projection, exp.Column) and isinstance(projection.this, exp.Star)
    )
    if is_star and star is not None:
        if any(star.args.values()):
            raise Unsupported(f"{write(projection)} is not read here")
        owner = projection.table if isinstance(projection, exp.Column) else ""
        shown = [relation for relation in chain.relations if not owner or relation.is_called(owner)]
        if not shown:
            raise Unsupported(f"{write(projection)}: no such input")
        for relation in shown:
            names = relation.columns if owner else relation.shown
            yield from ((relation.column(name), name) for name in names)
        return
    if isinstance(projection, exp.Alias):
        yield chain.scope.resolve(projection.this), projection.alias
        return
    found = chain.scope.resolve(projection)
    yield found, projection.name if isinstance(projection, exp.Column) else None


def _refuse_either(clause: exp.Expr, aliases: list[str], chain: Chain) -> None:
    """Refuse names in HAVING and QUALIFY that match an output and a column: engines differ in which they choose."""
    for column in clause.find_all(exp.Column):
        if len(column.parts) == 1 and chain.scope.find(column) is not None:
            same: Callable[[str], str] = chain.relations[0].key
            if same(column.name) in map(same, aliases):
                raise Unsupported(f"{column.name} in {clause.key.upper()} is an output and a column of an input")


def _without_aliases(
    tree: exp.Expr, projections: Sequence[exp.Expr], names: Sequence[str | None], chain: Chain
) -> exp.Expr:
    """The expression with output names replaced by their expressions."""
    key = chain.relations[0].key
    made = {key(name): projection for name, projection in zip(names, projections, strict=True) if name is not None}

    def replace(node: exp.Expr) -> exp.Expr:
        found = made.get(key(node.name)) if isinstance(node, exp.Column) and len(node.parts) == 1 else None
        return node if found is None else found.copy()

    return tree.transform(replace)
