"""SQL text with the aliases l and r, in Spark's dialect, to an unbound expression."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from sqlglot import Token, TokenType, exp
from sqlglot.errors import ParseError, TokenError

from dovetail.condition import names
from dovetail.condition.clauses import Unreadable, parse_clauses
from dovetail.condition.dialect import DIALECT
from dovetail.condition.expression import Column, Expression, Opaque
from dovetail.condition.translate import Translator, side_of
from dovetail.errors import ConditionError


def read_sql(text: str, schemas: names.Schemas) -> Expression:
    """The condition as an expression; columns are resolved against the two schemas."""
    return Translator(schemas).condition(parse_text(text))


def parse_text(text: str, kind: str = "condition") -> exp.Expr:
    """One sqlglot tree, or a ConditionError that points at the place. `kind` is what messages call it."""
    try:
        tokens = _joined_quotes(DIALECT.tokenize(text), text)
    except TokenError:
        raise ConditionError(f"cannot read the {kind}: a quote or comment is not closed.\n  {text}") from None
    try:
        return parse_clauses(tokens, partial(_parse_clause, text))
    except (Unreadable, ParseError):
        return _parse_whole(text, tokens, kind)
    except RecursionError:
        raise too_deep(kind) from None


def _parse_whole(text: str, tokens: list[Token], kind: str) -> exp.Expr:
    """What is no list of clauses, or a wrong one: sqlglot says what is wrong with it best."""
    try:
        statements = DIALECT.parser().parse(tokens, text)
    except ParseError as error:
        raise ConditionError(_parse_message(text, error, kind)) from None
    trees = [s for s in statements if s is not None]
    if not trees:
        raise ConditionError(f"the {kind} is empty. Write for example 'l.id = r.id'.")
    if len(trees) > 1:
        raise ConditionError(
            f"the {kind} has {len(trees)} statements; write one. Conditions are joined by AND.\n  {text}"
        )
    tree = trees[0]
    if not isinstance(tree, exp.Expr):
        raise ConditionError(f"this is no {kind}.\n  {text}")
    return tree


def _parse_clause(text: str, tokens: Sequence[Token]) -> exp.Expr:
    (tree,) = DIALECT.parser().parse_into(exp.Condition, list(tokens), text)
    if tree is None:
        raise Unreadable
    return tree


def too_deep(kind: str = "condition") -> ConditionError:
    return ConditionError(
        f"the {kind} is nested too deeply. Long chains of AND and OR are fine; compute what is nested otherwise as a "
        "column first."
    )


def _joined_quotes(tokens: list[Token], text: str) -> list[Token]:
    """'it''s' is one string with a quote in it (Spark 4), which sqlglot's Spark dialect reads as two strings."""
    joined: list[Token] = []
    for token in tokens:
        last = joined[-1] if joined else None
        if last is not None and _touch(last, token) and text[last.end] == text[token.start]:
            both = last.text + text[token.start] + token.text
            joined[-1] = Token(TokenType.STRING, both, last.line, token.col, last.start, token.end)
        else:
            joined.append(token)
    return joined


def _touch(first: Token, second: Token) -> bool:
    return first.token_type == second.token_type == TokenType.STRING and first.end + 1 == second.start


def _parse_message(text: str, error: ParseError, kind: str) -> str:
    if not error.errors:
        return f"cannot read the {kind}: {error}"
    first: dict[str, Any] = error.errors[0]
    highlight, line = first.get("highlight") or "", int(first.get("line") or 1)
    start = max(int(first.get("col") or 1) - len(highlight), 0)
    description = str(first.get("description"))
    if description.startswith("Required keyword"):
        what = f"something is missing at {highlight!r}" if highlight else "something is missing"
    elif description.startswith("Invalid expression"):
        what = f"unexpected {highlight!r}"
    else:
        what = f"{description} at {highlight!r}"
    source = (text.splitlines() or [""])[line - 1]
    pointer = " " * start + "^" * max(len(highlight), 1)
    return f"cannot read the {kind}: {what} (line {line}, column {start + 1}).\n  {source}\n  {pointer}"


def with_columns(expression: Opaque, column: Callable[[Column], str]) -> str:
    """An opaque expression's SQL, its columns spelled the way the caller wants them."""
    known = {(c.side, c.name): c for c in expression.columns}

    def respell(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column):
            return node
        first, *others = (part.name for part in node.parts)
        side = side_of(first)
        found = known.get((side, others[0])) if side is not None and others else None
        if found is None:
            return node
        return exp.Var(this=".".join([column(found), *(names.quote_name(field) for field in others[1:])]))

    return parse_text(expression.sql).transform(respell).sql(dialect=DIALECT, normalize_functions="lower")
