"""Real encrypted sources: TLS, tokens, mutual TLS, redirects, sslmode. Messages do not contain secrets."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import flight
from tests.sources.certificates import Certificates, make_certificates, why_not

import dovetail
from dovetail.errors import SourceError
from dovetail.sources import Source
from dovetail.sources.flight_server import TableServer
from dovetail.sources.reader import Reader, Retry

TOKEN = "Bearer 5ecret-t0ken"
ORDERS = pa.table({"id": np.arange(3000), "k": np.arange(3000) % 70})
ONCE = Retry(tries=1)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    return make_certificates(tmp_path_factory.mktemp("certificates"))


class TokenCheck(flight.ServerMiddlewareFactory):  # type: ignore[misc]  # pyarrow ships no types
    """Accepts calls with the token; records the tokens received."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def start_call(self, info: Any, headers: Any) -> None:
        brought = headers.get("authorization", [""])[0]
        self.seen.append(brought)
        if brought != TOKEN:
            raise flight.FlightUnauthenticatedError("a token is missing")


class Redirecting(TableServer):
    """Redirects to another location for the rows."""

    places: tuple[str, ...] = ()

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        endpoint = flight.FlightEndpoint(b'{"name": "orders", "offset": 0}', list(self.places))
        return flight.FlightInfo(ORDERS.schema, descriptor, [endpoint], total_records=3000)


def encrypted(certificates: Certificates, *, mutual: bool = False) -> dict[str, Any]:
    pair = certificates.server
    options: dict[str, Any] = {"tls_certificates": [(pair.certificate.read_bytes(), pair.key.read_bytes())]}
    if mutual:
        options |= {"verify_client": True, "root_certificates": certificates.authority.read_bytes()}
    return options


@contextmanager
def serving(certificates: Certificates | None, kind: type[TableServer] = TableServer, **more: Any) -> Iterator[Any]:
    check = TokenCheck()
    security = {} if certificates is None else encrypted(certificates, **more)
    scheme = "grpc" if certificates is None else "grpc+tls"
    with kind({"orders": ORDERS}, f"{scheme}://localhost:0", middleware={"token": check}, **security) as server:
        server.check = check
        server.address = f"{scheme}://localhost:{server.port}"
        yield server


def read(source: Source) -> pa.Table:
    return pa.Table.from_batches([piece.batch for piece in Reader(source, ONCE).pieces()])


def with_token(server: Any, certificates: Certificates | None, **options: Any) -> Source:
    if certificates is not None:
        options["tls_root_certs"] = certificates.authority.read_bytes()
    return dovetail.sources.flight(server.address, "orders", headers={"authorization": TOKEN}, **options)


def test_tls_and_a_token(certificates: Certificates, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with serving(certificates) as server:
        assert read(with_token(server, certificates)).equals(ORDERS)
        assert set(server.check.seen) == {TOKEN}
        with pytest.raises(SourceError, match="cannot read grpc") as unknown:
            dovetail.sources.flight(server.address, "orders", headers={"authorization": TOKEN})
        trusted = {"tls_root_certs": certificates.authority.read_bytes()}
        wrong = {"authorization": "Bearer wr0ng-token"}
        with pytest.raises(SourceError, match="a token is missing") as refused:
            dovetail.sources.flight(server.address, "orders", headers=wrong, **trusted)
    for text in (str(unknown.value), str(refused.value), caplog.text):
        assert "t0ken" not in text
        assert "wr0ng" not in text


def test_mutual_tls(certificates: Certificates) -> None:
    client = certificates.client
    mine = {"cert_chain": client.certificate.read_bytes(), "private_key": client.key.read_bytes()}
    with serving(certificates, mutual=True) as server:
        assert read(with_token(server, certificates, **mine)).equals(ORDERS)
        with pytest.raises(SourceError, match="cannot read grpc"):
            with_token(server, certificates)


def test_a_redirect_carries_no_token_to_an_unencrypted_place(certificates: Certificates) -> None:
    with serving(certificates, Redirecting) as server, serving(None) as plain, serving(certificates) as other:
        server.places = (plain.address,)
        with pytest.raises(SourceError, match=r"rows are at grpc://localhost.*no token is sent there") as refused:
            read(with_token(server, certificates, same_order=True))
        assert TOKEN not in str(refused.value)
        assert plain.check.seen == []
        server.places = (plain.address, other.address)  # the second one works
        assert read(with_token(server, certificates, same_order=True)).equals(ORDERS)
        assert plain.check.seen == []
        assert set(other.check.seen) == {TOKEN}
        server.places = ("arrow-flight-reuse-connection://?",)
        assert read(with_token(server, certificates, same_order=True)).equals(ORDERS)


def test_without_encryption_a_token_stays_on_the_host_that_was_named() -> None:
    with serving(None, Redirecting) as server, serving(None) as other:
        server.places = (f"grpc://127.0.0.1:{other.port}",)  # another name may mean another machine
        with pytest.raises(SourceError, match="no token is sent there"):
            read(with_token(server, None, same_order=True))
        assert other.check.seen == []
        server.places = (other.address,)
        assert read(with_token(server, None, same_order=True)).equals(ORDERS)


def test_postgresql_with_sslmode(certificates: Certificates, tmp_path: Path) -> None:
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed: pip install '.[postgres]'")
    from tests.sources.postgres_server import PostgresServer, Unavailable

    try:
        server = PostgresServer(tls=certificates.server)
    except Unavailable as reason:
        pytest.skip(str(reason))
    try:
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            connection.execute("CREATE TABLE t AS SELECT i AS id FROM generate_series(1, 5000) AS i")
        address = f"postgresql://test:s3cret-w0rd@localhost:{server.port}/postgres?sslrootcert="
        trusted = f"{address}{certificates.authority}&sslmode=verify-full"
        source = dovetail.sources.postgres(trusted, table="t", key="id")
        assert read(source)["id"].to_pylist() == list(range(1, 5001))
        stranger = make_certificates(tmp_path).authority
        refused = {
            f"{address}{stranger}&sslmode=verify-full": "certificate verify failed",
            f"{address}{certificates.authority}&sslmode=disable": "no encryption",
        }
        for dsn, reason_text in refused.items():
            with pytest.raises(SourceError, match=reason_text) as raised:
                dovetail.sources.postgres(dsn, table="t", key="id")
            assert "s3cret" not in str(raised.value)
    finally:
        server.remove()
