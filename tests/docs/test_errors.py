"""The page of errors has every class, and quotes messages verbatim."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from tests.docs.pages import ROOT

import dovetail
from dovetail import errors

PAGE = (ROOT / "docs" / "errors.md").read_text()
LEFT = pa.table({"id": [1, 2], "x": [1.0, 2.0], "s": ["a", "b"], "t": pa.array([0, 1], pa.timestamp("us"))})
RIGHT = pa.table({"id": [1, 2], "x": [1.0, 2.0], "s": ["a", "b"], "t": pa.array([0, 1], pa.timestamp("us", "UTC"))})
MANY = pa.table({"id": range(200_000)})

CASES: list[tuple[str, str, Callable[[], Any]]] = [
    ("ConditionError", "l.idd: no such column; did you mean l.id?", lambda: dovetail.join(LEFT, RIGHT, "l.idd = r.id")),
    (
        "InputError",
        "cells= is for DataFrames; it means nothing for tables in process",
        lambda: dovetail.join(LEFT, RIGHT, "l.id = r.id", cells=4),
    ),
    (
        "InputError",
        "retry must be Retry, such as dovetail.sources.Retry(tries=3); got 3",
        lambda: dovetail.progressive(LEFT, RIGHT, "l.id = r.id", retry=3),  # type: ignore[arg-type]
    ),
    ("ConditionError", "a.id: unknown alias a", lambda: dovetail.join(LEFT, RIGHT, "a.id = b.id")),
    ("ConditionError", "id is on both sides: write l.id or r.id", lambda: dovetail.join(LEFT, RIGHT, "id = 1")),
    ("ConditionError", "cannot read the condition: ", lambda: dovetail.join(LEFT, RIGHT, "l.id = = r.id")),
    (
        "ConditionError",
        "l.s (string) cannot be compared with r.id (int64)",
        lambda: dovetail.join(LEFT, RIGHT, "l.s = r.id"),
    ),
    ("ConditionError", "has no time zone and r.t", lambda: dovetail.join(LEFT, RIGHT, "l.t = r.t")),
    ("ConditionError", "can be evaluated by Spark only", lambda: dovetail.join(LEFT, RIGHT, "soundex(l.s) = r.s")),
    (
        "ConditionError",
        "text may call functions of Spark that compute a value and do nothing else",
        lambda: dovetail.join(LEFT, RIGHT, "java_method('a', 'b') = r.s"),
    ),
    ("ConditionError", "comparisons do not chain", lambda: dovetail.join(LEFT, RIGHT, "l.id < r.id < l.x")),
    (
        "ConditionError",
        "are for numbers and texts",
        lambda: dovetail.join(LEFT, RIGHT, "(l.id = r.id) & (l.x = r.x)"),
    ),
    (
        "ConditionError",
        "A number is no point in time before it is known what it counts",
        lambda: dovetail.join(LEFT, RIGHT, "l.id = r.t"),
    ),
    ("ConditionError", "is not a condition: it is int64", lambda: dovetail.join(LEFT, RIGHT, "l.id + r.id")),
    (
        "ConditionError",
        "a join condition cannot contain a sub-query",
        lambda: dovetail.join(LEFT, RIGHT, "l.id IN (SELECT 1)"),
    ),
    (
        "ConditionError",
        "nothing joins c with a",
        lambda: dovetail.multijoin({"a": LEFT, "b": LEFT, "c": RIGHT}, "a.id = b.id"),
    ),
    ("InputError", "how must be one of", lambda: dovetail.join(LEFT, RIGHT, "l.id = r.id", "sideways")),
    ("InputError", "no algorithm is called", lambda: dovetail.join(LEFT, RIGHT, "l.id = r.id", algorithm="hash")),
    (
        "InputError",
        "memory must be a number of bytes or a text such as '256MB'",
        lambda: dovetail.join(LEFT, RIGHT, "l.id = r.id", memory="lots"),
    ),
    (
        "InputError",
        "the result would have two columns called",
        lambda: dovetail.join(LEFT.append_column("id_right", LEFT["id"]), RIGHT, "l.id = r.id"),
    ),
    ("InputError", "cannot join a value of type", lambda: dovetail.join([1, 2], RIGHT, "l.id = r.id")),
    (
        "InputError",
        "a window of time needs the column with the event time",
        lambda: dovetail.window(time="10 minutes"),
    ),
    (
        "ArgumentError",
        "dovetail.join has no argument 'memroy'. Did you mean 'memory'?",
        lambda: dovetail.join(LEFT, RIGHT, "l.id = r.id", memroy="1GB"),  # type: ignore[call-arg]
    ),
    (
        "ArgumentError",
        "fan_in: not a parameter of algorithm='diner'",
        lambda: list(dovetail.progressive(LEFT, RIGHT, "l.id = r.id", algorithm="diner", fan_in=8)),
    ),
    ("InputError", "is not a recording of a join", lambda: dovetail.report(__file__, "unwritten.html")),
    (
        "PlanError",
        "algorithm='shj' cannot run l.x < r.x: a hash join needs at least one equality",
        lambda: list(dovetail.progressive(LEFT, RIGHT, "l.x < r.x", algorithm="shj")),
    ),
    (
        "PlanError",
        "how='left': algorithm='diner' supports inner joins only",
        lambda: list(dovetail.progressive(LEFT, RIGHT, "l.id = r.id", "left", algorithm="diner")),
    ),
    (
        "BudgetError",
        "a memory budget of 1,000 bytes holds 0 blocks",
        lambda: list(dovetail.progressive(LEFT, RIGHT, "l.id = r.id", memory="1KB")),
    ),
    (
        "BudgetError",
        "shj does not spill",
        lambda: list(dovetail.progressive(MANY, MANY, "l.id = r.id", memory="1MB", algorithm="shj")),
    ),
]


def classes() -> Iterator[ast.ClassDef]:
    for module in (ROOT / "src" / "dovetail").rglob("*.py"):
        yield from (node for node in ast.walk(ast.parse(module.read_text())) if isinstance(node, ast.ClassDef))


def test_every_class_has_an_anchor() -> None:
    """Includes classes that are defined outside `dovetail.errors`."""
    found = {errors.DovetailError.__name__}
    defined = [(node.name, {ast.unparse(base).rpartition(".")[2] for base in node.bases}) for node in classes()]
    while more := {name for name, bases in defined if bases & found} - found:
        found |= more
    assert {"ArgumentError", "WorkerError"} <= found
    assert found == {name for name in vars(errors) if name.endswith("Error")}
    assert found <= set(re.findall(r"^## (\w+)$", PAGE, re.MULTILINE))


def literals() -> Iterator[str]:
    """The strings in the code, without interpolated values."""
    for module in (ROOT / "src" / "dovetail").rglob("*.py"):
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_messages_that_need_spark_or_a_server_are_in_the_code() -> None:
    """The others are raised below. Looks for the longest piece of a message between figures and names."""
    code, raised = "\n".join(literals()), [words.strip() for _, words, _ in CASES]
    sections = re.split(r"^## ", PAGE, flags=re.MULTILINE)
    ours = [section for section in sections if section.split("\n")[0].endswith("Error")]
    rows = [row for section in ours for row in re.findall(r"^\| (`[^|]*) \|", section, re.MULTILINE)]
    messages = [message for row in rows for message in re.findall(r"(?<!`)`([^`]+)`(?!`)", row)]
    others = [message for message in messages if not any(words in message for words in raised)]
    assert len(others) > 20
    for message in others:
        pieces = re.split(r"…|<\w+>|'[^']*'|[:.] |[\d,]*\d", message)
        longest = max(pieces, key=len).strip(" .,:;?")
        assert longest in code, f"{message}: no text of the code has {longest!r}"


@pytest.mark.parametrize(("kind", "words", "call"), CASES, ids=[words[:40] for _, words, _ in CASES])
def test_messages_are_quoted_as_they_are(kind: str, words: str, call: Callable[[], Any]) -> None:
    with pytest.raises(getattr(errors, kind), match=re.escape(words)):
        call()
    section = re.split(r"^## ", PAGE, flags=re.MULTILINE)
    assert any(part.startswith(kind) and words.strip() in part for part in section), f"{words} is not on the page"


def test_a_cross_product_is_advised() -> None:
    with pytest.raises(errors.InputError, match="how='cross' takes no condition"):
        dovetail.join(LEFT, RIGHT, "l.id = r.id", "cross")
    assert dovetail.join(LEFT, RIGHT, "true").num_rows == dovetail.join(LEFT, RIGHT, how="cross").num_rows == 4
