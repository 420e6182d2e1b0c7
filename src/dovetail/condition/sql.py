"""Parses SQL text with the aliases l and r, in Spark's dialect, into an unbound expression.

sqlglot recurses through twenty functions for each parenthesis and nests a chain of a thousand ORs a thousand levels
deep, which exceeds Python's stack. Generated conditions look like that. So the text is first split at its connectives,
sqlglot parses the clauses between them, and the pieces are combined into trees that are as flat as possible.

    NOT (a = 1 AND b BETWEEN 2 AND 3) OR c        groups     [ NOT [ · AND · ] OR · ]
         \\___/     \\_______________/    |         clauses    a = 1    b BETWEEN 2 AND 3    c
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from sqlglot import Token, TokenType, exp
from sqlglot.errors import ParseError, TokenError

from dovetail.condition import names
from dovetail.condition.dialect import DIALECT, refuse, spark_text
from dovetail.condition.expression import Column, Expression, Opaque, quote_name
from dovetail.condition.spark_functions import refuse_calls
from dovetail.condition.translate import Translator, side_of
from dovetail.errors import ConditionError

OPENING = {TokenType.L_PAREN: TokenType.R_PAREN, TokenType.L_BRACKET: TokenType.R_BRACKET}
CLOSING = frozenset(OPENING.values())
CONNECTIVES = frozenset({TokenType.AND, TokenType.OR})

SYMBOLS = {"&&": ": write AND", "=>": ": write >="}

ParseClause = Callable[[Sequence[Token]], exp.Expr]


def read_sql(text: str, schemas: names.Schemas, trusted: bool = False) -> Expression:
    """The condition as an expression, with columns resolved against the two schemas.

    Trusted text may call every function of Spark.
    """
    return Translator(schemas, trusted).condition(parse_text(text))


def read_predicate(text: str, kind: str) -> str:
    """A predicate for Spark over the columns of one input. It may only call functions that compute a value."""
    tree = parse_text(text, kind)
    refuse(tree)
    sql = spark_text(tree)
    refuse_calls(sql)
    return sql


def parse_text(text: str, kind: str = "condition") -> exp.Expr:
    """One sqlglot tree, or a ConditionError that points at the place. `kind` is what messages call the text."""
    try:
        tokens = joined_quotes(DIALECT.tokenize(text), text)
    except TokenError:
        raise ConditionError(f"cannot read the {kind}: a quote or comment is not closed.\n  {text}") from None
    try:
        return parse_clauses(tokens, partial(_parse_clause, text))
    except (Unreadable, ParseError):
        return _parse_whole(text, tokens, kind)
    except RecursionError:
        raise too_deep(kind) from None


def _parse_whole(text: str, tokens: list[Token], kind: str) -> exp.Expr:
    """Parse text that is not a valid list of clauses: sqlglot gives the best error messages."""
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


def joined_quotes(tokens: list[Token], text: str) -> list[Token]:
    """'it''s' is one string that contains a quote (Spark 4); sqlglot's Spark dialect reads two strings."""
    joined: list[Token] = []
    for token in tokens:
        last = joined[-1] if joined else None
        if last is not None and _touch(last, token) and text[last.end] == text[token.start]:
            both = last.text + text[token.start] + token.text
            joined[-1] = Token(TokenType.STRING, both, last.line, token.col, last.start, token.end)
        else:
            joined.append(token)
    return joined


def unqualified(text: str, columns: Collection[Sequence[str]]) -> str:
    """SQL text in which `trips.k` is `k`. `columns`: qualified names, in parts, as the text writes them."""
    kept, done = "", 0
    tokens = DIALECT.tokenize(text)
    place = 0
    while place < len(tokens):
        chain = _dotted(tokens, place)
        known = [len(name) for name in columns if tuple(name) == tuple(part.text for part in chain[: len(name)])]
        if known:
            kept += text[done : chain[0].start]
            done = chain[max(known) - 1].start
        place += max(1, 2 * len(chain) - 1)
    return kept + text[done:]


def _dotted(tokens: Sequence[Token], place: int) -> list[Token]:
    """The names of `a.b.c` that begin at a place."""
    chain = [tokens[place]]
    while place + 2 < len(tokens) and tokens[place + 1].token_type is TokenType.DOT:
        place += 2
        chain.append(tokens[place])
    return chain


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
        what = f"unexpected {highlight!r}{SYMBOLS.get(highlight, _quoted_word(highlight))}"
    else:
        what = f"{description} at {highlight!r}"
    source = (text.splitlines() or [""])[line - 1]
    pointer = " " * start + "^" * max(len(highlight), 1)
    return f"cannot read the {kind}: {what} (line {line}, column {start + 1}).\n  {source}\n  {pointer}"


def _quoted_word(text: str) -> str:
    """Advice for an error message, if an SQL keyword is the name of a column."""
    return f": if it is a column, write l.{text}, r.{text} or `{text}`" if text.isidentifier() else ""


def with_columns(expression: Opaque, column: Callable[[Column], str]) -> str:
    """The SQL of an opaque expression, with columns spelled as the caller wants."""
    known = {(c.side, c.name): c for c in expression.columns}

    def respell(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column):
            return node
        first, *others = (part.name for part in node.parts)
        side = side_of(first)
        found = known.get((side, others[0])) if side is not None and others else None
        if found is None:
            return node
        return exp.Var(this=".".join([column(found), *(quote_name(field) for field in others[1:])]))

    return parse_text(expression.sql).transform(respell).sql(dialect=DIALECT, normalize_functions="lower")


class Unreadable(Exception):  # noqa: N818  it is caught: the whole text is then parsed at once
    """The tokens are not nested as in a condition."""


class _Chain(NamedTuple):
    """a AND b AND c, or a OR b OR c; no part is a chain of the same kind."""

    kind: type[exp.And] | type[exp.Or]
    parts: list[exp.Expr | _Chain]


_Part = exp.Expr | _Chain


@dataclass(slots=True)
class _Group:
    """The contents of a pair of parentheses so far: alternatives, each a list of conjuncts."""

    end: int  # the position of its closing parenthesis
    negations: int = 0  # NOTs before it
    alternatives: list[list[_Part]] = field(default_factory=lambda: [[]])

    def add(self, part: _Part) -> None:
        self.alternatives[-1].append(part)

    def whole(self) -> _Part:
        whole = _chain(exp.Or, [_chain(exp.And, parts) for parts in self.alternatives])
        for _ in range(self.negations):
            whole = exp.Not(this=_tree(whole, enclosed=True))
        return whole


def parse_clauses(tokens: Sequence[Token], parse_clause: ParseClause) -> exp.Expr:
    """The condition as one tree. Raises Unreadable, or what `parse_clause` raises, if the text is not a condition."""
    kinds = [_kind(tokens, i) for i in range(len(tokens))]
    ends = _ends(kinds)
    groups = [_Group(len(tokens))]
    place = 0
    while True:
        opened = _open(kinds, ends, place, groups[-1].end)
        if opened is not None:
            groups.append(opened)
            place = _skip_nots(kinds, place) + 1
            continue
        stop = _clause_end(kinds, ends, place, groups[-1].end)
        if stop == place:
            raise Unreadable
        groups[-1].add(parse_clause(tokens[place:stop]))
        while stop == groups[-1].end:
            if len(groups) == 1:
                return _tree(groups[0].whole())
            done = groups.pop()
            groups[-1].add(done.whole())
            stop = done.end + 1
        if kinds[stop] is TokenType.OR:
            groups[-1].alternatives.append([])
        place = stop + 1


def _kind(tokens: Sequence[Token], place: int) -> TokenType:
    """The type of a token; after a dot, even a keyword is a name."""
    after_dot = place > 0 and tokens[place - 1].token_type is TokenType.DOT
    return TokenType.VAR if after_dot else tokens[place].token_type


def _ends(kinds: Sequence[TokenType]) -> dict[int, int]:
    """The ends of parentheses, brackets and CASEs, by their start."""
    ends: dict[int, int] = {}
    open_: list[int] = []
    for place, kind in enumerate(kinds):
        if kind in OPENING or kind is TokenType.CASE:
            open_.append(place)
        elif kind is TokenType.END and open_ and kinds[open_[-1]] is TokenType.CASE:
            ends[open_.pop()] = place
        elif kind in CLOSING:
            if not open_ or OPENING.get(kinds[open_[-1]]) is not kind:
                raise Unreadable
            ends[open_.pop()] = place
        elif kind is TokenType.SEMICOLON:
            raise Unreadable
    if open_:
        raise Unreadable
    return ends


def _open(kinds: Sequence[TokenType], ends: dict[int, int], place: int, limit: int) -> _Group | None:
    """The group that starts here: parentheses, optionally after NOT, that extend to the next connective."""
    first = _skip_nots(kinds, place)
    if first >= limit or kinds[first] is not TokenType.L_PAREN:
        return None
    end = ends[first]
    if end + 1 < limit and kinds[end + 1] not in CONNECTIVES:
        return None
    inner = first + 1
    while inner < end:
        if kinds[inner] in (TokenType.COMMA, TokenType.SELECT, TokenType.WITH, TokenType.FROM):
            return None  # a tuple or a query
        inner = ends.get(inner, inner) + 1
    return _Group(end, first - place)


def _skip_nots(kinds: Sequence[TokenType], place: int) -> int:
    while place < len(kinds) and kinds[place] is TokenType.NOT:
        place += 1
    return place


def _clause_end(kinds: Sequence[TokenType], ends: dict[int, int], place: int, limit: int) -> int:
    """The position of the next connective at this level. The first AND after a BETWEEN does not count."""
    betweens = 0
    while place < limit:
        kind = kinds[place]
        if kind is TokenType.BETWEEN:
            betweens += 1
        elif kind is TokenType.AND and betweens:
            betweens -= 1
        elif kind in CONNECTIVES:
            break
        place = ends.get(place, place) + 1
    return place


def _chain(kind: type[exp.And] | type[exp.Or], parts: list[_Part]) -> _Part:
    if len(parts) == 1:
        return parts[0]
    chain = _Chain(kind, [])
    for part in parts:
        chain.parts.extend(part.parts if isinstance(part, _Chain) and part.kind is kind else [part])
    return chain


def _tree(part: _Part, enclosed: bool = False) -> exp.Expr:
    """A balanced tree; its depth is logarithmic in the number of parts."""
    if not isinstance(part, _Chain):
        return part
    trees = [_tree(inner, enclosed=True) for inner in part.parts]
    while len(trees) > 1:
        pairs: list[exp.Expr] = [part.kind(this=a, expression=b) for a, b in zip(trees[::2], trees[1::2], strict=False)]
        trees = [*pairs, trees[-1]] if len(trees) % 2 else pairs
    return exp.Paren(this=trees[0]) if enclosed else trees[0]
