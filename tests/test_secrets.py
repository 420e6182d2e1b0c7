"""Secrets in addresses, even malformed ones, never appear in errors, logs, plans or recordings."""

from __future__ import annotations

import logging
import random
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight
from tests.effort import repeat
from tests.seed import seeded
from tests.storage.s3_server import s3_server
from typer.testing import CliRunner

import dovetail
from dovetail import cli
from dovetail.cli import doctor
from dovetail.core.addresses import redacted, scheme_of
from dovetail.errors import DovetailError, SourceError
from dovetail.sources import Retry
from dovetail.sources.flight_server import TableServer
from dovetail.storage import object_store
from dovetail.storage.open_store import open_store

MARK = "Sq3xT"
TABLE = pa.table({"k": [1, 2]})
NOWHERE = "127.0.0.1:1"
WHOLE = [
    f"s3://key:{MARK}@bucket/place?region=x&scheme=http&endpoint_override={NOWHERE}",
    f"s3://bucket/place?region=x&scheme=http&endpoint_override={NOWHERE}&secret_key={MARK}",
    f"s3a://key:{MARK}@bucket/place",
    f"hdfs://user:{MARK}@{NOWHERE}/place",
    f"gopher://user:{MARK}@host/place",
    f"grpc://user:{MARK}@{NOWHERE}/name",
    f"grpc://{NOWHERE}/?token={MARK}",
    f"grpc+tls://user:{MARK}@{NOWHERE}",
    f"postgresql://user:{MARK}@{NOWHERE}/db?connect_timeout=1",
    f"postgresql://{NOWHERE}/db?connect_timeout=1&password={MARK}",
    f"host=127.0.0.1 port=1 user=u password={MARK} dbname=d",
    f"host=127.0.0.1 port=1 password='{MARK}'",
]
SPOILERS = ["/", "?", "#", "@", ":", " ", "%", "\\", "'", '"', "=", "&", "[", "]", "%2", "\n", "é", "://"]


def spoilt(rng: random.Random) -> str:
    """An address with an error: an unquoted character in its secret, or a missing, doubled or replaced character."""
    text = rng.choice(WHOLE)
    kind = rng.randrange(4)
    if kind == 0:  # on either side of the mark, which stays intact
        before, after = rng.choice(["", rng.choice(SPOILERS)]), rng.choice(["", "y" + rng.choice(SPOILERS)])
        return text.replace(MARK, f"x{before}{MARK}{after}z")
    start, stop = text.index(MARK), text.index(MARK) + len(MARK)
    marks = [at for at in range(len(text)) if text[at] in ":/@?#= '&" and not start <= at < stop]
    at = rng.choice(marks)
    put = {1: "", 2: text[at] * 2, 3: rng.choice(SPOILERS)}[kind]
    return text[:at] + put + text[at + 1 :]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(object_store, "ATTEMPTS", 1)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_REGION", "x")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{NOWHERE}")
    monkeypatch.setenv("COLUMNS", "1000")
    monkeypatch.chdir(tmp_path)  # text that is not an address is a path


def entries(address: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Everything that takes an address."""
    yield "flight", lambda: dovetail.sources.flight(address, "orders")
    yield "postgres", lambda: dovetail.sources.postgres(address, table="orders")
    if scheme_of(address) and not address.startswith("host="):  # otherwise it is a path, and shown verbatim
        yield "parquet", lambda: dovetail.sources.parquet(address)
        if scheme_of(Path(address)):  # Path removes one of two slashes
            yield "path", lambda: dovetail.sources.parquet(Path(address))
        yield "join", lambda: dovetail.join(address, TABLE, ["k"])
        yield "progressive", lambda: list(dovetail.progressive(address, TABLE, ["k"]))
        yield "explain", lambda: dovetail.explain(address, TABLE, ["k"])
        yield "state", lambda: open_store(address).find("x")
        yield "record", lambda: list(dovetail.progressive(TABLE, TABLE, ["k"], record=address))
        yield "report", lambda: dovetail.report(dovetail.Recording(address), address)
        yield "watch", lambda: dovetail.watch(address).close()


def commands(address: str) -> Iterator[list[str]]:
    join = ["--right", "none.csv", "--on", "l.k = r.k"]
    yield ["join", "--in-process", "--left", address, *join]
    yield ["explain", "--in-process", "--left", address, *join]
    yield ["state", address]
    yield ["state", address, "--clean", "q", "--yes"]
    if scheme_of(Path(address)):
        yield ["join", "--in-process", "--left", "none.csv", *join, "--out", address]
        yield ["join", "--in-process", "--left", "none.csv", *join, "--record", address]


def shown(error: BaseException) -> str:
    """The text of an error and of all its causes, even if these are not printed."""
    texts, seen, ahead = [], set(), [error]
    while ahead:
        one = ahead.pop()
        if id(one) not in seen:
            seen.add(id(one))
            texts += [str(one), repr(one), *traceback.format_exception(one)]
            ahead += [other for other in (one.__cause__, one.__context__) if other is not None]
    return "\n".join(texts)


def outcome_of(call: Callable[[], Any]) -> Any:
    """The result of a call, or the error it raises."""
    try:
        return call()
    except (DovetailError, OSError, ValueError) as error:
        return error


@pytest.mark.parametrize("seed", range(repeat(1900)))
def test_errors_show_no_secret(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    address = spoilt(seeded(seed))
    assert MARK in address
    for name, call in entries(address):
        outcome = outcome_of(call)
        assert MARK not in (shown(outcome) if isinstance(outcome, Exception) else f"{outcome!r}"), (name, address)
    assert MARK not in caplog.text


@pytest.mark.one_in(3)
@pytest.mark.parametrize("seed", range(repeat(400)))
def test_commands_show_no_secret(seed: int) -> None:
    address = spoilt(seeded(1000 + seed))
    for command in commands(address) if scheme_of(address) and not address.startswith("host=") else ():
        result = CliRunner().invoke(cli.app, command)
        assert MARK not in result.output.replace("\n", ""), command
        if result.exception is not None:
            assert MARK not in shown(result.exception), command


def test_addresses_that_are_right_show_no_secret() -> None:
    for address in WHOLE:
        for name, call in entries(address):
            outcome = outcome_of(call)
            assert MARK not in (shown(outcome) if isinstance(outcome, Exception) else f"{outcome!r}"), (name, address)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (f"grpc://u:{MARK}/y@host", r"^cannot read grpc://…, 'orders': this address cannot be read"),
        (f"grpc://{NOWHERE}/?token={MARK}", rf"^cannot read grpc://{NOWHERE}/\?…, 'orders'"),
    ],
)
def test_what_is_shown_of_a_server(given: str, told: str) -> None:
    with pytest.raises(SourceError, match=told):
        dovetail.sources.flight(given, "orders")


def test_a_server_that_repeats_the_token_in_its_error() -> None:
    class Chatty(TableServer):
        is_open = True

        def get_flight_info(self, context: Any, descriptor: Any) -> Any:
            if not self.is_open:
                raise flight.FlightUnauthenticatedError(f"Bearer {MARK} has expired")
            return super().get_flight_info(context, descriptor)

        def do_get(self, context: Any, ticket: Any) -> Any:
            raise flight.FlightUnavailableError(f"cannot take {MARK} now")

    with Chatty({"orders": TABLE}) as server:
        location, headers = f"grpc://127.0.0.1:{server.port}", {"authorization": f"Bearer {MARK}"}
        source = dovetail.sources.flight(location, "orders", headers=headers)
        with pytest.raises(SourceError, match="cannot take … now") as raised:
            list(dovetail.progressive(source, TABLE, ["k"], retry=Retry(tries=2, first_pause_ms=1)))
        assert MARK not in shown(raised.value)
        server.is_open = False
        with pytest.raises(SourceError, match="… has expired") as raised:
            dovetail.sources.flight(location, "orders", headers=headers)
        assert MARK not in shown(raised.value)


def test_a_store_that_is_missing_something() -> None:
    with s3_server() as server, pytest.raises(FileNotFoundError, match=r"s3://…@bucket/a/x\?… is missing") as raised:
        open_store(server.uri("a")).open_parts("x").file.read()
    assert raised.value.__context__ is None


def test_the_doctor_shows_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """The token of Spark Connect, secrets in a state URI and in settings."""
    master, place = f"sc://host:15002/;token={MARK};user_id=me", f"s3://key:{MARK}#x@bucket/place"
    assert redacted(master) == "sc://host:15002/;…"
    monkeypatch.setattr(doctor, "PROBE", f'print(\'{{"error": "cannot parse {master}, nor {MARK}-2"}}\')')
    conf = {"spark.hadoop.fs.s3a.secret.key": f"{MARK}-2"}
    told = doctor.ask_cluster(master, place, conf, 60)
    assert told["error"] == "cannot parse sc://host:15002/;…, nor …"
    Path(told["log"]).unlink()
    findings = list(doctor.check_cluster(told, {}, redacted(master), place, 60))
    assert len(findings) == 2
    assert MARK not in str(findings)


def test_a_program_shows_no_secret_in_its_traceback() -> None:
    code = f"import dovetail; dovetail.sources.postgres('postgresql://u:{MARK[:2]}' + '{MARK}' + '/x@h/d', table='t')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "SourceError: PostgreSQL: the dsn cannot be read" in done.stderr
    assert f"{MARK}/x" not in done.stderr
