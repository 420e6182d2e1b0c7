"""Functions in SQL text: every spelling of a function with side effects is rejected before Spark sees it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from dovetail.condition import read_predicate, read_sql
from dovetail.condition.select import parse_order
from dovetail.condition.spark_functions import FUNCTIONS, refuse_calls
from dovetail.errors import ConditionError

SCHEMA = pa.schema(
    {
        "k": pa.int64(),
        "s": pa.string(),
        "ts": pa.timestamp("us"),
        "xs": pa.list_(pa.int64()),
        "a` OR reflect('x') = `b": pa.string(),
    }
)
EVIL = "java_method('java.lang.System', 'setProperty', 'a', 'b')"
REFUSED = (
    f"{EVIL} IS NULL AND l.k < r.k",
    "reflect('java.lang.System', 'exit') IS NULL",
    "try_reflect('java.lang.System', 'exit') IS NULL",
    "REFLECT('a', 'b') = l.s",
    "`reflect`('a', 'b') = l.s",
    "reflect /* why */\n('a', 'b') = l.s",
    "builtin.reflect('a', 'b') = l.s",
    "system.builtin.upper(l.s) = r.s",
    "mydb.soundex(l.s) = r.s",
    "my_function(l.s) = r.s",
    "IDENTIFIER('reflect')('a', 'b') = l.s",
    "{fn reflect('a', 'b')} = l.s",
    "transform(l.xs, x -> reflect('a', 'b')) = r.xs",
    "l.xs[reflect('a', 'b')] = r.k",
    "CASE WHEN reflect('a', 'b') = 'x' THEN 1 END = r.k",
    "coalesce(reflect('a', 'b'), l.s) = r.s",
    "CAST(reflect('a', 'b') AS INT) = r.k",
    "l.k IN (reflect('a', 'b'), r.k)",
    "l.s LIKE ANY (reflect('a', 'b'))",
    "overlay(l.s PLACING reflect('a', 'b') FROM 1) = r.s",
    "EXTRACT(YEAR FROM reflect('a', 'b')) = r.k",
    "INTERVAL reflect('a', 'b') DAY < r.ts - l.ts",
    "l.s COLLATE reflect('a', 'b') = r.s",
    "soundex(reflect('a', 'b')) = r.s",
    "ai_query('model', l.s) = r.s",
    "http_request('GET', l.s) = r.s",
    "read_files(l.s) = r.s",
    "from_avro(l.s, '{}', map('avroSchemaUrl', 'file:/etc/passwd')) = r.s",
    "from_xml(l.s, 'a INT', map('rowValidationXSDPath', '/etc/passwd')) = r.s",
    "from_protobuf(l.s, 'x', '/etc/passwd') = r.s",
    "input_file_name() = l.s",
    "uuid() = l.s",
    "aes_encrypt(l.s, 'k') = r.s",
    "rand() < 0.5",
    "(SELECT max(id) FROM other) = l.k",
    "l.k IN (SELECT id FROM other)",
    "EXISTS (SELECT TRANSFORM(1) USING 'touch /tmp/x' FROM other)",
    "EXISTS (FROM other)",
    "EXISTS (TABLE other)",
    "EXISTS (VALUES (1))",
)
ACCEPTED = (
    "soundex(l.s) = r.s",
    "`soundex`(l.s) = r.s",
    "levenshtein(l.s, r.s) < 3",
    "transform(l.xs, x -> x + 1) = r.xs",
    "exists(l.xs, x -> x > 1)",
    "get_json_object(l.s, '$.a') = r.s",
    "date_format(l.ts, 'yyyy') = r.s",
    "l.s RLIKE '^reflect(.*)'",
    "regexp_replace(l.s, 'reflect(', ')') = r.s",
    "concat_ws('it''s (', l.s) = r.s",
    "timestampdiff(HOUR, l.ts, r.ts) < 3",
    "try_cast(l.s AS DECIMAL(10, 2)) = r.k",
    "CAST(l.s AS VARCHAR(3)) = r.s",
    "l.s COLLATE UTF8_LCASE = r.s",
    "current_date() >= l.ts",
    "current_user = l.s",
    "assert_true(l.k > 0) IS NULL",
    "l.s LIKE ANY ('a%', 'b%')",
    "overlay(l.s PLACING 'x' FROM 1 FOR 2) = r.s",
    "trim(BOTH 'x' FROM l.s) = r.s",
    "soundex(l.`a`` OR reflect('x') = ``b`) = r.s",
)


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_refused(text: str) -> None:
    with pytest.raises(ConditionError):
        read_sql(text, (SCHEMA, SCHEMA))
    with pytest.raises(ConditionError):
        read_predicate(text.replace("l.", "").replace("r.", ""), "end= predicate")


@pytest.mark.parametrize("text", ACCEPTED)
def test_what_is_accepted(text: str) -> None:
    read_sql(text, (SCHEMA, SCHEMA))


@pytest.mark.parametrize("text", [f"{EVIL} = l.s", "my_function(l.s) = r.s", "mydb.soundex(l.s) = r.s"])
def test_trusted_text_calls_what_it_likes(text: str) -> None:
    read_sql(text, (SCHEMA, SCHEMA), trusted=True)


def test_orders_are_text_as_conditions_are() -> None:
    for text in (f"concat(l.s, {EVIL})", "(SELECT 1)", "l.s, reflect('a', 'b')"):
        with pytest.raises(ConditionError):
            parse_order(text, SCHEMA, SCHEMA, in_process=False)
    parse_order(f"concat(l.s, {EVIL}) DESC", SCHEMA, SCHEMA, in_process=False, trusted=True)
    parse_order("soundex(l.s) DESC NULLS LAST", SCHEMA, SCHEMA, in_process=False)


def test_the_message_says_what_to_do() -> None:
    with pytest.raises(ConditionError, match=r"reflect\(…\): text may call .* trusted=True"):
        read_sql("reflect('a', 'b') = l.s", (SCHEMA, SCHEMA))


def test_words_of_queries_are_refused_in_text_for_spark() -> None:
    for text in ("(select 1)", "x in (table y)", "f using 'program'"):
        with pytest.raises(ConditionError, match="a query cannot be part"):
            refuse_calls(text)
    refuse_calls("`select` = l.`table` AND l.select = 'using'")


def test_nothing_on_the_list_runs_code_or_reads_files() -> None:
    assert not FUNCTIONS & {"java_method", "reflect", "try_reflect", "from_avro", "from_protobuf", "from_xml", "uuid"}
