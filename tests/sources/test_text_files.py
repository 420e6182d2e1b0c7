"""CSV and JSON, from files and from servers that break, move and change; errors in user-defined sources."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.seed import seeded

import dovetail
from dovetail.errors import InputError, SourceError
from dovetail.sources import Piece, Retry
from dovetail.sources.text_files import TextSource

KEYS = pa.table({"id": list(range(0, 60_000, 7))})
FAST = Retry(tries=3, first_pause_ms=1)


def table_of(source: Any, position: Any = None) -> pa.Table:
    return pa.Table.from_batches([piece.batch for piece in source.open(position)], source.schema)


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8", newline="")
    return path


def rows_of_text(rows: int) -> tuple[str, str, list[dict[str, Any]]]:
    """The same rows as CSV and as JSON: quotes, delimiters and line breaks in text, nulls."""
    random = seeded("text files")
    parts = ["a", 'say "x"', "line\nbreak", "comma, here", "ü", " "]
    found = [
        {"id": n, "note": random.choice([None, random.choice(parts) * random.randrange(1, 9)]), "x": n / 2}
        for n in range(rows)
    ]
    cells = [
        (str(r["id"]), "" if r["note"] is None else '"' + str(r["note"]).replace('"', '""') + '"', str(r["x"]))
        for r in found
    ]
    return (
        "id,note,x\n" + "".join(",".join(c) + "\n" for c in cells),
        "".join(json.dumps(r) + "\n" for r in found),
        found,
    )


@pytest.fixture(scope="module")
def big() -> tuple[str, str, list[dict[str, Any]]]:
    return rows_of_text(60_000)


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_rows_come_as_they_were_written(kind: str, big: Any, tmp_path: Path) -> None:
    source = getattr(dovetail.sources, kind)(written(tmp_path / f"a.{kind}", big[kind == "json"]), rows=60_000)
    assert source.schema == pa.schema({"id": pa.int64(), "note": pa.string(), "x": pa.float64()})
    assert table_of(source).to_pylist() == big[2]
    pieces = list(source.open())
    assert len(pieces) > 2
    done = sum(piece.batch.num_rows for piece in pieces[:2])
    assert table_of(source, pieces[1].position).to_pylist() == big[2][done:]
    assert dovetail.join(source, KEYS, "id").num_rows == KEYS.num_rows - 1 + (60_000 % 7 > 0) - 1 + 1
    some = getattr(dovetail.sources, kind)(tmp_path / f"a.{kind}", columns=["x", "id"])
    assert some.schema.names == ["x", "id"]
    assert table_of(some)["x"].to_pylist() == [row["x"] for row in big[2]]


def test_types_that_are_given(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "\ufeffid;day\r\n1;2020-01-02\r\n;\r\n")
    schema = pa.schema({"day": pa.timestamp("us"), "id": pa.int32()})
    source = dovetail.sources.csv(path, delimiter=";", schema=schema)
    assert source.schema == schema
    assert table_of(source)["id"].to_pylist() == [1, None]
    path = written(tmp_path / "a.json", '{"id": 1}\n\n{"id": 2, "t": {"a": 1}}\n')
    given = dovetail.sources.json(path, schema=pa.schema({"id": pa.int8(), "later": pa.string()}))
    assert table_of(given).to_pylist() == [{"id": 1, "later": None}, {"id": 2, "later": None}]
    assert table_of(dovetail.sources.json(path))["t"].to_pylist() == [None, {"a": 1}]


def test_a_size_that_is_announced_makes_estimates(tmp_path: Path) -> None:
    ids = list(range(40_000))
    seeded("order of rows").shuffle(ids)
    path = written(tmp_path / "a.csv", "id\n" + "".join(f"{n}\n" for n in ids))
    keys = pa.table({"id": ids[::-1]})
    steps = list(dovetail.progressive(dovetail.sources.csv(path, rows=40_000), keys, "id", until=[0.2, "60 seconds"]))
    assert steps[-1].estimate is not None
    plain = list(dovetail.progressive(dovetail.sources.csv(path), keys, "id", until=1000))
    assert plain[0].estimate is None
    assert 1000 <= plain[-1].results < 40_000


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty: the first line of a CSV file has the names"),
        ("id,id\n1,2\n", "several columns called id"),
        ("id,x\n1\n", "Expected 2 columns, got 1"),
    ],
)
def test_csv_that_cannot_be_read(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises((InputError, SourceError), match=words):
        dovetail.sources.csv(written(tmp_path / "a.csv", text))


def test_values_that_do_not_fit_later_are_an_error(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "id\n" + "1\n" * 400_000 + "x\n")
    with pytest.raises(SourceError, match=r"invalid value 'x'. The types are id int64; give schema="):
        list(dovetail.progressive(dovetail.sources.csv(path), KEYS, "id", retry=FAST))
    assert dovetail.sources.csv(path, schema=pa.schema({"id": pa.string()})).schema.types == [pa.string()]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda path: dovetail.sources.csv(path / "none.csv"), "no such file"),
        (lambda path: dovetail.sources.csv(path), "a directory, not a file"),
        (
            lambda path: dovetail.sources.csv(written(path / "a.csv", "a\n"), columns=["b"]),
            "has no column 'b'; it has a",
        ),
        (lambda path: dovetail.sources.csv(path / "a.csv", rows=1.5), "rows= is how many rows there are"),
        (lambda path: dovetail.sources.csv(path / "a.csv", schema={"a": 1}), "schema= is a pyarrow.Schema"),
        (lambda path: dovetail.sources.csv(path / "a.csv", delimiter=", "), "delimiter= is one character"),
        (lambda path: dovetail.sources.csv(path / "a.csv", headers={"a": "b"}), "headers= is for http"),
        (
            lambda path: dovetail.sources.json(written(path / "a.json", "[{}]")),
            "is one array: write an object in each line",
        ),
        (
            lambda path: dovetail.sources.json(written(path / "a.json", "")),
            "is empty, so that its columns are not known",
        ),
    ],
)
def test_mistakes(call: Any, words: str, tmp_path: Path) -> None:
    written(tmp_path / "a.csv", "a\n1\n")
    with pytest.raises(InputError, match=words):
        call(tmp_path)


class Server(ThreadingHTTPServer):
    """Serves one file, with the faults that a test requests."""

    daemon_threads = True

    def __init__(self, body: bytes, **faults: Any) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.body, self.faults = body, {"ranges": True, "breaks": [], "tag": '"1"', **faults}
        self.asked: list[dict[str, str]] = []

    def url(self, path: str = "a.csv", user: str = "") -> str:
        return f"http://{user}127.0.0.1:{self.server_port}/{path}"

    def __enter__(self) -> Server:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.shutdown()
        self.server_close()


class _Answer(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        faults, body = self.server.faults, self.server.body
        self.server.asked.append(dict(self.headers))
        if (status := faults.get("status")) is not None:
            self.send_response(status)
            self.send_header("Location", faults.get("location", ""))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        start = 0
        asked = self.headers.get("Range")
        if asked and faults["ranges"]:
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
        self.send_response(206 if start else 200)
        if faults["ranges"]:
            self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", faults["tag"])
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        end = faults["breaks"].pop(0) if faults["breaks"] else len(body)
        try:
            self.wfile.write(body[start : max(start, end)])
            time.sleep(faults.get("sleeps_s", 0))
        except OSError:
            pass
        if faults.get("changes"):
            faults["tag"] = '"2"'


def test_a_url_is_resumed_where_it_broke(big: Any) -> None:
    body = big[0].encode()
    with Server(body, breaks=[len(body), len(body) // 2, len(body) * 3 // 4]) as server:
        source = dovetail.sources.csv(server.url(), rows=60_000, headers={"X-Key": "k"})
        found = pa.Table.from_batches([step.batch for step in dovetail.progressive(source, KEYS, "id", retry=FAST)])
        assert sorted(found["id"].to_pylist()) == [n for n in KEYS["id"].to_pylist() if n < 60_000]
        assert {asked["X-Key"] for asked in server.asked} == {"k"}
        assert [int(asked["Range"][6:-1]) > 0 for asked in server.asked if "Range" in asked][-2:] == [True, True]


def test_a_server_without_ranges_cannot_be_resumed(big: Any) -> None:
    body = big[0].encode()
    with Server(body, ranges=False, breaks=[len(body), len(body) // 2]) as server:
        source = dovetail.sources.csv(server.url())
        with pytest.raises(SourceError, match=r"the connection ended after .* bytes. It cannot be resumed"):
            list(dovetail.progressive(source, KEYS, "id", retry=FAST))


def test_a_file_that_has_changed_is_not_joined_with_what_it_was(big: Any) -> None:
    body = big[0].encode()
    with Server(body, breaks=[len(body), len(body) // 2]) as server:
        source = dovetail.sources.csv(server.url())
        server.faults["changes"] = True
        with pytest.raises(SourceError, match="has changed since it was read first"):
            list(dovetail.progressive(source, KEYS, "id", retry=FAST))


def test_secrets_are_in_requests_and_in_no_message() -> None:
    with Server(b"id\n1\n") as server:
        assert table_of(dovetail.sources.csv(server.url(user="ada:hunter22@"))).num_rows == 1
        assert server.asked[-1]["Authorization"] == "Basic YWRhOmh1bnRlcjIy"
    with Server(b"", status=403) as server, pytest.raises(SourceError, match="answers 403 Forbidden") as raised:
        dovetail.sources.csv(server.url("a.csv?token=hunter22", user="ada:hunter22@"))
    assert "hunter22" not in str(raised.value)
    with pytest.raises(SourceError, match="no answer") as raised:
        dovetail.sources.csv("http://ada:hunter22@127.0.0.1:1/a.csv", timeout_s=1)
    assert "hunter22" not in str(raised.value)


def test_redirects_take_no_secrets_elsewhere() -> None:
    with Server(b"id\n1\n") as other, Server(b"", status=302, location=other.url()) as first:
        assert table_of(dovetail.sources.csv(first.url(), headers={"X-Key": "hunter22"})).num_rows == 1
        assert "hunter22" not in str(other.asked)
    with (
        Server(b"", status=302, location="file:///etc/hostname") as first,
        pytest.raises(SourceError, match="answers 302 Found"),
    ):
        dovetail.sources.csv(first.url())


def test_a_server_that_is_silent_is_waited_for_until_the_time_is_over() -> None:
    with Server(b"id\n" + b"1\n" * 200_000, breaks=[400_003, 300_000], sleeps_s=5) as server:
        source = dovetail.sources.csv(server.url(), timeout_s=3)
        started = time.monotonic()
        steps = list(dovetail.progressive(source, pa.table({"id": [1]}), "id", until="500 milliseconds"))
        assert time.monotonic() - started < 3
        assert 0 < steps[-1].results < 200_000


# User-defined sources.


class Own:
    name, resumable, schema = "own", True, pa.schema({"id": pa.int64()})

    def __init__(self, given: Any) -> None:
        self.given = given

    def open(self, position: Any = None) -> Any:
        return self.given


BATCH = pa.record_batch({"id": [1]})


def iterator(items: list[Any]) -> Any:
    left = iter(items)

    class Batches:
        schema = pa.schema({"id": pa.int64()})

        def __iter__(self) -> Iterator[Any]:
            return self

        def __next__(self) -> Any:
            return next(left)

    return Batches()


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (
            lambda: Own([BATCH]),
            "must return an iterator of dovetail.sources.Piece, and returned a list: write it with yield",
        ),
        (
            lambda: Own(iter([BATCH])),
            r"must yield dovetail.sources.Piece\(batch, position\), and yielded a RecordBatch",
        ),
        (lambda: Own(iter([{"id": 1}])), "and yielded a dict: write yield Piece"),
        (
            lambda: Own(iter([Piece(pa.table({"id": [1]}), 1)])),
            "a Table, and not a pyarrow.RecordBatch: give its batches",
        ),
        (lambda: Own(iter([Piece(pa.record_batch({"no": [1]}), 1)])), "no int64 instead of id int64"),
        (lambda: iterator([{"id": 1}]), r"yielded a dict, and not a pyarrow.RecordBatch: make a batch of it"),
        (lambda: ({"id": n} for n in range(3)), "an iterator of record batches needs a schema"),
        (lambda: Own, "Own is a class: call it, Own"),
        (lambda: rows_of_text, "rows_of_text is a function: call it"),
    ],
)
def test_mistakes_in_a_source_fail_at_once(source: Any, words: str) -> None:
    started = time.monotonic()
    with pytest.raises((InputError, SourceError), match=words):
        list(dovetail.progressive(source(), KEYS, "id"))
    assert time.monotonic() - started < 5  # without retries, which have longer pauses


@pytest.mark.parametrize(
    ("part", "value", "words"),
    [
        ("schema", {"id": "int"}, "schema must be a pyarrow.Schema; got"),
        ("resumable", "no", "resumable must be True or False; got 'no'"),
        ("name", None, "name must be text for errors"),
        ("open", lambda self: iter([]), r"open must take a position: def open\(self, position=None\)"),
        ("open", [], "open must be a method"),
    ],
)
def test_parts_of_a_source_are_checked(part: str, value: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        dovetail.progressive(type("Mine", (Own,), {part: value})([]), KEYS, "id")


def test_records_longer_than_a_piece(tmp_path: Path) -> None:
    long = "x\n" * 400_000
    path = written(tmp_path / "a.csv", f'id,note\n1,"{long}"\n2,short\n')
    source = dovetail.sources.csv(path)
    assert isinstance(source, TextSource)
    assert table_of(source)["note"].to_pylist() == [long, "short"]
