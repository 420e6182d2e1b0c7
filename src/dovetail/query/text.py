"""Converts query text to sqlglot's tree and back, in Spark's dialect. A tree that might not round-trip is refused.

Function calls are kept verbatim, as in conditions (condition/dialect.py). Otherwise only the node types listed below
are accepted. Those that sqlglot may rewrite are not listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce
from typing import ClassVar

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from sqlglot.parsers.spark import SparkParser

from dovetail.condition.dialect import UNSTABLE, ConditionDialect
from dovetail.condition.spark_functions import FUNCTIONS
from dovetail.condition.sql import joined_quotes


class Unsupported(Exception):  # noqa: N818  it is caught: the query is then run elsewhere
    """The joins of this query, or of this part of it, are not found here. The message says why."""


class Ambiguous(Unsupported):
    """An unqualified name that several tables have. It is an error in every engine."""


NEAREST_MARK = "dovetail__nearest__"
"""Prefix of the name that replaces `EXACT NEAREST 3 BY DISTANCE` in ON. The number and the measure follow."""


class QueryDialect(ConditionDialect):
    class Tokenizer(Spark.Tokenizer):
        KEYWORDS: ClassVar = {**Spark.Tokenizer.KEYWORDS, "MATCH_CONDITION": TokenType.MATCH_CONDITION}

    class Parser(SparkParser):
        FUNCTIONS: ClassVar = {}
        FUNCTION_PARSERS: ClassVar = {
            name: parse
            for name, parse in SparkParser.FUNCTION_PARSERS.items()
            if name in ("CAST", "TRY_CAST", "EXTRACT", "TRIM", "SUBSTRING", "OVERLAY")
        }

    class Generator(ConditionDialect.Generator):
        # sqlglot would write QUALIFY as an outer query around DISTINCT and LIMIT, which are applied after it.
        TRANSFORMS: ClassVar = {
            kind: made for kind, made in ConditionDialect.Generator.TRANSFORMS.items() if kind is not exp.Select
        }


DIALECT = QueryDialect()

KNOWN: frozenset[type[exp.Expr]] = frozenset(
    {
        *(
            exp.Select,
            exp.From,
            exp.Join,
            exp.Where,
            exp.Group,
            exp.Having,
            exp.Qualify,
            exp.Order,
            exp.Ordered,
            exp.Limit,
        ),
        *(exp.Union, exp.Intersect, exp.Except, exp.Distinct, exp.With, exp.CTE, exp.Subquery, exp.Table),
        *(exp.TableAlias, exp.Alias, exp.Identifier, exp.Column, exp.Star, exp.Dot, exp.Hint, exp.Values, exp.Offset),
        *(exp.Literal, exp.RawString, exp.Boolean, exp.Null, exp.Interval, exp.IntervalSpan, exp.Var, exp.Tuple),
        *(exp.And, exp.Or, exp.Not, exp.Paren, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ),
        *(exp.Between, exp.In, exp.Is, exp.Like, exp.Exists, exp.Case, exp.If, exp.Cast, exp.TryCast, exp.DataType),
        *(exp.DataTypeParam, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Neg, exp.DPipe, exp.Nullif),
        *(exp.Anonymous, exp.Filter, exp.Window, exp.WindowSpec, exp.Extract, exp.Trim, exp.If, exp.Substring),
        *(exp.CurrentDate, exp.CurrentTimestamp),
    }
)
CONNECTED = (exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NEQ, exp.Between, exp.Or)


def read_query(text: str) -> exp.Query | None:
    """The query as a tree. None if the text is not a query (CREATE, SET, SHOW, or unreadable text)."""
    try:
        tokens = _respelled(joined_quotes(DIALECT.tokenize(text), text))
        trees = DIALECT.parser().parse(tokens, text)
    except (SqlglotError, RecursionError):
        return None
    return trees[0] if len(trees) == 1 and isinstance(trees[0], exp.Query) else None


def _respelled(tokens: list[Token]) -> list[Token]:
    """Rewrites syntax that sqlglot does not know: `EXACT NEAREST 3 BY DISTANCE d` to `ON <marked name> = d`, and
    `LEFT ASOF JOIN` to `ASOF LEFT JOIN`.
    """
    found: list[Token] = []
    place = 0
    while place < len(tokens):
        words = [token.text.upper() for token in tokens[place : place + 5]]
        many = words[2:3] if words[2:3] and words[2].isdigit() else []
        by = words[2 + len(many) : 4 + len(many)]
        before_asof = words[:1] in (["LEFT"], ["INNER"])
        length = 2 if words[1:2] == ["OUTER"] else 1
        if words[:2] in (["EXACT", "NEAREST"], ["APPROX", "NEAREST"]) and by in (
            ["BY", "DISTANCE"],
            ["BY", "SIMILARITY"],
        ):
            name = f"{NEAREST_MARK}{many[0] if many else 1}_{by[1].lower()}"
            found += [Token(TokenType.ON, "ON"), Token(TokenType.VAR, name), Token(TokenType.EQ, "=")]
            place += 4 + len(many)
        elif before_asof and words[length : length + 2] == ["ASOF", "JOIN"]:
            found += [tokens[place + length], *tokens[place : place + length]]
            place += length + 1
        else:
            found.append(tokens[place])
            place += 1
    return found


def tables_in(tree: exp.Expr) -> list[str]:
    """The names of the tables that a query reads, including those that it defines itself."""
    return [table.name for table in tree.find_all(exp.Table)]


def check_kinds(tree: exp.Expr) -> None:
    """Raises Unsupported for nodes that may change meaning when they are rendered, or that differ from call to call."""
    for node in tree.walk():
        if type(node) not in KNOWN:
            raise Unsupported(f"{write(node)}: this form of SQL is not read here")
        if isinstance(node, exp.Anonymous) and node.name.lower() in UNSTABLE | {"rand", "randn", "uuid"}:
            raise Unsupported(f"{write(node)} is not deterministic")


def write(tree: exp.Expr) -> str:
    return tree.sql(dialect=DIALECT, normalize_functions=False, comments=False)


def compares_columns(tree: exp.Expr) -> bool:
    """Whether columns are compared other than by equality: there may be a join for us."""
    return keeps_best(tree) or any(sum(1 for _ in node.find_all(exp.Column)) > 1 for node in tree.find_all(*CONNECTED))


def keeps_best(tree: exp.Expr) -> bool:
    """Whether there is a join that keeps only the best partners."""
    return any((join.args.get("method") or "").upper() == "ASOF" for join in tree.find_all(exp.Join)) or any(
        column.name.startswith(NEAREST_MARK) for column in tree.find_all(exp.Column)
    )


def may_fail(tree: exp.Expr) -> bool:
    """Whether it contains a division that may be by zero: an error in Spark's ANSI mode, but null in our joins."""
    divisions = tree.find_all(exp.Div, exp.IntDiv, exp.Mod)
    return any(not isinstance(node.expression, exp.Literal) or float(node.expression.name) == 0 for node in divisions)


def calls_unknown(tree: exp.Expr) -> bool:
    """Whether it calls a function of the session or the catalogue, which may return something else at each call."""
    return any(call.name.lower() not in FUNCTIONS for call in tree.find_all(exp.Anonymous))


def conjuncts(tree: exp.Expr | None) -> Iterator[exp.Expr]:
    """The parts of a condition that must all hold."""
    if isinstance(tree, exp.Paren) and isinstance(tree.this, exp.And | exp.Paren):
        yield from conjuncts(tree.this)
    elif isinstance(tree, exp.And):
        yield from conjuncts(tree.this)
        yield from conjuncts(tree.expression)
    elif tree is not None:
        yield tree


def conjunction(parts: Iterable[exp.Expr]) -> exp.Expr | None:
    """All parts connected by AND, in parentheses where needed."""
    wrapped = [exp.Paren(this=part) if isinstance(part, exp.Or | exp.Not) else part for part in parts]
    return reduce(lambda a, b: exp.And(this=a, expression=b), wrapped) if wrapped else None


def name_of(name: str) -> exp.Identifier:
    return exp.Identifier(this=name, quoted=True)
