"""The advice in error messages works: each test takes it from the message, follows it, and runs the join."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta
from typing import Any

import pyarrow as pa
import pytest

import dovetail
from dovetail.condition import On
from dovetail.errors import DovetailError

DAYS = [datetime(2020, 1, 1), datetime(2020, 1, 2)]
TABLE = pa.table(
    {
        "id": [1, 2],
        "a": [1, 2],
        "b": [1, 3],
        "c": [2, 2],
        "f": [1.0, 2.5],
        "s": ["1", "2"],
        "t": ["1", "3"],
        "yes": [True, False],
        "bin": [b"1", b"2"],
        "day": pa.array([d.date() for d in DAYS], pa.date32()),
        "ts": pa.array(DAYS, pa.timestamp("us")),
        "tz": pa.array([d.replace(tzinfo=UTC) for d in DAYS], pa.timestamp("us", "UTC")),
        "ms": [round(d.replace(tzinfo=UTC).timestamp() * 1000) for d in DAYS],
        "when": [d.isoformat() for d in DAYS],
        "span": [timedelta(days=1), timedelta(days=2)],
        "at": [time(1), time(2)],
    }
)
OTHER = pa.table({"id2": [1, 2], "odd name": [1, 2]})


def message(left: pa.Table, right: pa.Table, on: Any, **options: Any) -> str:
    with pytest.raises(DovetailError) as error:
        dovetail.join(left, right, on, **options)
    return str(error.value)


def rows(on: On, right: pa.Table = TABLE, **options: Any) -> int:
    return dovetail.join(TABLE, right, on, **options).num_rows


def advised(pattern: str, text: str) -> str:
    found = re.search(pattern, text, re.DOTALL)
    assert found is not None, text
    return found[1]


WHOLE = {
    "l.a <= r.b <= l.c": "l.a <= r.b AND r.b <= l.c",
    "1 < l.a < r.b": "1 < l.a AND l.a < r.b",
    "l.a = r.a = l.b": "l.a = r.a AND r.a = l.b",
    "l.f < r.a < l.c": "l.f < r.a AND r.a < l.c",
    "(l.a = r.a) & (l.b = r.b)": "l.a = r.a AND l.b = r.b",
    "(l.a = r.a) | (l.b = r.b)": "l.a = r.a OR l.b = r.b",
    "(l.a = r.a) & ~(l.b = r.b)": "l.a = r.a AND NOT l.b = r.b",
    "~(l.a = r.a)": "l.a != r.a",
    "l.a = r.a & l.b = r.b": "l.a = r.a AND l.b = r.b",
    "l.a = r.a & l.b = r.b & l.c = r.c": "l.a = r.a AND l.b = r.b AND l.c = r.c",
    "l.a = r.a || l.b = r.b": "l.a = r.a OR l.b = r.b",
    "l.s = r.s || l.t = r.t": "l.s = r.s OR l.t = r.t",
    "l.id": "l.id = r.id",
}


@pytest.mark.parametrize("given", WHOLE)
def test_a_condition_that_is_written_anew(given: str) -> None:
    said = message(TABLE, TABLE, given)
    written = advised(r"(?:Write|for example) (.*?)(?:, or give a list.*|\.)$", said)
    assert rows(written) == rows(WHOLE[given]), said


PARTS: dict[str, tuple[str, str]] = {  # the text to replace, and a condition with the same result
    "l.s = r.a": ("l.s", "l.a = r.a"),
    "l.a = r.s": ("r.s", "l.a = r.a"),
    "l.when = r.ts": ("l.when", "l.ts = r.ts"),
    "l.day = r.when": ("r.when", "l.ts = r.ts"),
    "l.bin = r.s": ("l.bin", "l.a = r.a"),
    "l.a = r.yes": ("r.yes", "l.a = 1 AND r.a = 1"),
    "l.f = r.yes": ("r.yes", "l.a = 1 AND r.a = 1"),
    "l.a = '2'": ("'2'", "l.a = 2"),
    "l.a = 'two'": ("l.a", "l.a = 3"),
    "l.ms = r.ts": ("l.ms", "l.ts = r.ts"),
    "l.ts = r.ms": ("r.ms", "l.ts = r.ts"),
    "l.tz = r.ms": ("r.ms", "l.ts = r.ts"),
    "l.ms BETWEEN r.ts AND r.ts + INTERVAL 1 HOUR": ("l.ms", "l.ts = r.ts"),
    "l.ts - r.ts < 1": ("1", "l.ts - r.ts < INTERVAL 1 DAY"),
    "l.span = r.a": ("r.a", "l.a = r.a"),
    "l.ts + 5 > r.ts": ("5", "l.ts >= r.ts"),
    "l.ts + r.a > r.ts": ("r.a", "l.ts >= r.ts"),
    "l.ts < r.ts + '5 minutes'": ("'5 minutes'", "l.ts <= r.ts"),
    "l.ts = r.tz": ("r.tz", "l.ts = r.ts"),
    "l.day = r.tz": ("r.tz", "l.ts = r.ts"),
    "l.s + r.s = 3": ("l.s + r.s", "l.a + r.a = 3"),
    "l.s - r.a < 1": ("l.s - r.a", "l.a - r.a < 1"),
    "sqrt(l.s) = r.a": ("l.s", "sqrt(l.a) = r.a"),
    "length(l.a) = r.a": ("l.a", "length(l.s) = r.a"),
    "year(l.when) = r.a + 2019": ("l.when", "year(l.ts) = r.a + 2019"),
}
ADVICE = r"(?:Cast[a-z ]*: |clock: |compare it with (?!the)|quotes: |interval: |for example |write )(.*)\.$"


@pytest.mark.parametrize("given", PARTS)
def test_a_part_that_is_written_anew(given: str) -> None:
    part, same = PARTS[given]
    said = message(TABLE, TABLE, given)
    assert rows(given.replace(part, advised(ADVICE, said))) == rows(same), said


def test_text_and_a_clock_with_a_zone_are_both_cast() -> None:
    said = message(TABLE, TABLE, "l.when = r.tz")
    one, other = advised(r"Cast both: (.*)\.$", said).split(", ")
    assert rows(f"{one} = {other}") == 2


def test_names_of_columns() -> None:
    assert rows(["id"]) == rows("id") == 2
    said = message(TABLE, OTHER, ["id"])
    assert rows(advised(r"for example '(.*)'\. The right", said), OTHER) == 2
    said = message(TABLE, OTHER, "id")
    assert rows(advised(r"for example (.*)\.$", said), OTHER) == 2
    assert rows(advised(r"for example (.*)\.$", message(TABLE, OTHER.select(["odd name"]), "id")), OTHER) == 2
    assert rows(message(TABLE, TABLE, "id = id").split("write ")[1].removesuffix(".").replace(" or ", " = ")) == 2


def test_symbols_that_cannot_be_read() -> None:
    assert "unexpected '&&': write AND" in message(TABLE, TABLE, "l.a = r.a && l.b = r.b")
    assert "unexpected '=>': write >=" in message(TABLE, TABLE, "l.a => r.a")


@pytest.mark.parametrize(("name", "value"), [("work_dir", "waves"), ("cells", 3), ("seed", 1), ("trusted", True)])
def test_options_of_spark(name: str, value: Any) -> None:
    """The message does not name algorithms without these options."""
    with pytest.raises(DovetailError, match=f"^{name}= is for DataFrames; .* Leave it out") as error:
        dovetail.progressive(TABLE, TABLE, "l.a = r.a", **{name: value})
    assert "algorithm" not in str(error.value)
    assert ("limit=" in str(error.value)) == (name == "until")


@pytest.mark.parametrize(("name", "value"), [("tolerance", 0.5), ("fan_in", 8), ("n_flush", 0.1), ("share", 0.5)])
def test_parameters_of_algorithms(name: str, value: float) -> None:
    """The named algorithm has the parameter."""
    calls: list[Callable[..., Any]] = [dovetail.join, dovetail.progressive]
    for call in calls:
        with pytest.raises(DovetailError) as error:
            call(TABLE, TABLE, "l.a = r.a", **{name: value})
        algorithm = advised(r"algorithm='(\w+)'", str(error.value))
        call(TABLE, TABLE, "l.a = r.a", algorithm=algorithm, **{name: value})


def test_bits_of_numbers_are_for_spark() -> None:
    assert "can be evaluated by Spark only" in message(TABLE, TABLE, "l.a & 1 = r.a")
