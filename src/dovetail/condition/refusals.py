"""What has no place in a join condition, although it is SQL."""

from __future__ import annotations

from sqlglot import exp

from dovetail.condition.dialect import DIALECT
from dovetail.errors import ConditionError

KINDS: tuple[tuple[tuple[type[exp.Expr], ...], str], ...] = (
    ((exp.Query, exp.Subquery), "a sub-query"),
    ((exp.Window,), "a window function"),
    ((exp.AggFunc,), "an aggregate function"),
    ((exp.UDTF, exp.Explode), "a function that makes rows"),
    ((exp.Placeholder, exp.Parameter), "a parameter; put the value in the text"),
    ((exp.Star,), "a star; name the columns"),
    ((exp.Rand, exp.Randn, exp.Uuid), "a function that gives another value each time"),
    ((exp.Alias, exp.Aliases), "an alias (is an operator missing?)"),
)
UNSTABLE = frozenset({"shuffle", "monotonically_increasing_id", "spark_partition_id", "input_file_name", "random"})


def refuse(tree: exp.Expr) -> None:
    """Raises ConditionError if some part of the tree cannot be part of a join condition."""
    for node in tree.walk():
        for kinds, what in KINDS:
            if isinstance(node, kinds):
                raise ConditionError(f"{_text(node)}: a join condition cannot contain {what}.")
        if isinstance(node, exp.Anonymous) and node.name.lower() in UNSTABLE:
            raise ConditionError(f"{_text(node)}: it may give another value each time; add it as a column first.")
    if not isinstance(tree, exp.Condition):
        raise ConditionError(f"this is not a condition: {_text(tree)}")


def _text(node: exp.Expr) -> str:
    return node.sql(dialect=DIALECT, normalize_functions="lower", comments=False)
