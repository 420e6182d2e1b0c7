import socket
import threading
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from tests.monitoring.runs import HOSTILE, recorded
from tests.monitoring.test_report import checked
from tests.patience import PATIENCE_S

from dovetail.errors import InputError
from dovetail.monitoring.server import HOST, MOST_CONNECTIONS, Server, watch
from dovetail.monitoring.snapshot import RUNNING


def get(server: Server, path: str, *, token: str | None = None, **headers: str) -> HTTPResponse:
    """The server's response for a path below its token, or below another one."""
    address = urlsplit(server.url)
    assert address.hostname == HOST
    path = (address.path.rstrip("/") if token is None else token) + path
    connection = HTTPConnection(HOST, address.port, timeout=PATIENCE_S)
    connection.putrequest("GET", path, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    return connection.getresponse()


def read(server: Server, path: str, **headers: str) -> tuple[int, str]:
    answer = get(server, path, **headers)
    return answer.status, answer.read().decode()


def events(answer: HTTPResponse) -> Iterator[tuple[str, str]]:
    name, data = "", []
    while line := answer.readline().decode().rstrip("\n") if not answer.isclosed() else "":
        name, data = line.removeprefix("event: "), []
        while line := answer.readline().decode().rstrip("\n"):
            data.append(line.removeprefix("data: "))
        yield name, "\n".join(data)


def test_a_run_that_is_over(tmp_path: Path) -> None:
    recorded(tmp_path / "run.jsonl")
    with watch(tmp_path / "run.jsonl") as server:
        status, page = read(server, "/")
        assert status == 200
        assert "orders ⋈ payments" in page
        assert f'data-events="{urlsplit(server.url).path}events/run.jsonl"' in page
        assert read(server, "/page.js")[1].startswith("//")
        answer = get(server, "/events/run.jsonl")
        assert answer.getheader("Content-Type") == "text/event-stream"
        told = list(events(answer))
        assert [name for name, _ in told] == ["message", "over"]
        assert "3,600" in told[0][1]
        saved = get(server, "/report/run.jsonl")
        assert (saved.getheader("Content-Disposition") or "").startswith("attachment")
        checked(saved.read().decode())
        server.wait_for_readers(0)


def test_a_run_in_this_process_as_it_goes_on() -> None:
    recording = recorded(outcome=RUNNING)
    with watch(recording) as server:
        told = events(get(server, "/events"))
        name, first = next(told)
        assert name == "message"
        assert "cleanup" in first
        recording.finish()
        rest = list(told)
        assert [name for name, _ in rest] in (["message", "over"], ["message", "message", "over"])
        assert "is-done" in rest[-2][1]


def test_a_file_that_is_still_to_come(tmp_path: Path) -> None:
    with watch(tmp_path / "run.jsonl") as server:
        assert "Nothing yet" in read(server, "/")[1]
        told = events(get(server, "/events/run.jsonl"))
        assert "Nothing yet" in next(told)[1]
        recorded(tmp_path / "run.jsonl")
        assert "orders ⋈ payments" in list(told)[-2][1]


def test_a_directory_of_runs(tmp_path: Path) -> None:
    recorded(tmp_path / "one.jsonl")
    recorded(tmp_path / f"{HOSTILE.replace('/', '')}.jsonl", names=(HOSTILE, "b"), on=HOSTILE)
    recorded(tmp_path / "deeper" / "hidden.jsonl")
    (tmp_path / "other.jsonl").write_text("something else\n")
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "deeper" / "hidden.jsonl")
    (tmp_path / "deeper.jsonl").mkdir()
    with watch(tmp_path) as server:
        status, page = read(server, "/")
        assert status == 200
        assert page.count("<li>") == 2
        assert "<img" not in page
        assert "<script>" not in page
        assert "other.jsonl" not in page
        assert "all runs" in read(server, "/run/one.jsonl")[1]
        name, told = next(events(get(server, "/events")))
        assert name == "message"
        assert told.count("<li>") == 2
        recorded(tmp_path / "two.jsonl")
        assert read(server, "/")[1].count("<li>") == 3


@pytest.mark.parametrize(
    "path",
    [
        "/secret.txt",
        "/run/../secret.txt",
        "/run/..%2fsecret.txt",
        "/run/%2e%2e%2fsecret.txt",
        "/run//etc/passwd",
        "/run/" + quote("/etc/passwd", safe=""),
        "/report/link.jsonl",
        "/run/",
        "/run",
        "//etc/passwd",
        "/etc/passwd",
        "/events/nothing",
        "/%00",
        "/run/one.jsonl%00",
        "/live/style.css",
    ],
)
def test_nothing_else_can_be_had(tmp_path: Path, path: str) -> None:
    recorded(tmp_path / "one.jsonl")
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "secret.txt")
    with watch(tmp_path) as server:
        status, text = read(server, path)
        assert status == 404
        assert text == "404 Not Found\n"


def test_only_this_machine_and_only_by_its_own_name() -> None:
    with watch(recorded()) as server:
        port = urlsplit(server.url).port
        for host in (f"127.0.0.1:{port}", f"localhost:{port}", "localhost", "localhost:9999"):
            assert read(server, "/", Host=host)[0] == 200
        for host in ("evil.example", f"evil.example:{port}", "", "127.0.0.1.evil.example", "0.0.0.0"):
            assert read(server, "/", Host=host)[0] == 403
        answer = get(server, "/")
        assert answer.getheader("X-Frame-Options") == "DENY"
        assert answer.getheader("X-Content-Type-Options") == "nosniff"
        assert "default-src &#x27;none&#x27;" in answer.read().decode()
        assert server._server.socket.getsockname()[0] == "127.0.0.1"
        connection = HTTPConnection(HOST, port, timeout=PATIENCE_S)
        connection.request("POST", "/", b"x")
        assert connection.getresponse().status == 501


def test_whoever_does_not_know_the_token_sees_nothing() -> None:
    with watch(recorded()) as server, watch(recorded()) as other:
        mine, foreign = (urlsplit(one.url).path.rstrip("/") for one in (server, other))
        assert len(mine) > 20
        assert mine != foreign
        for token in ("", "/", foreign, mine[:-1], mine[:-1] + "é", "/?token=" + mine[1:]):
            for path in ("/", "/page.js", "/events", "/report/run"):
                answer = get(server, quote(path), token=quote(token, safe="/?="))
                assert (answer.status, answer.read()) == (403, b"403 Forbidden\n")
        assert get(server, "/").status == 200


def test_ports(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        with pytest.raises(InputError, match="Give another"):
            watch(recorded(), taken.getsockname()[1])
    with pytest.raises(InputError, match="cannot be used"):
        watch(recorded(), 70_000)
    (tmp_path / "a.csv").write_text("a,b")
    with pytest.raises(InputError, match="not a recording"):
        watch(tmp_path / "a.csv")


def test_closing_lets_readers_go() -> None:
    server = watch(recorded(outcome=RUNNING))
    told = events(get(server, "/events"))
    next(told)
    rest: list[tuple[str, str]] = []
    reader = threading.Thread(target=lambda: rest.extend(told), daemon=True)
    reader.start()
    server.close()
    reader.join(PATIENCE_S)
    assert not reader.is_alive()


def say(server: Server, *lines: str) -> str:
    """The first line of the response to these bytes."""
    with socket.create_connection((HOST, urlsplit(server.url).port or 0), timeout=PATIENCE_S) as line:
        line.sendall("".join(f"{text}\r\n" for text in (*lines, "")).encode())
        return line.makefile("rb").readline().decode().strip()


def test_requests_that_are_not_certain_are_refused() -> None:
    """Programs disagree on which host name to use if there are two, or one in the request line."""
    with watch(recorded()) as server:
        address = urlsplit(server.url)
        here, path = address.netloc, address.path
        assert say(server, f"GET {path} HTTP/1.1", f"Host: {here}").endswith("200 OK")
        for name in ("evil.example", here):
            assert "400" in say(server, f"GET {path} HTTP/1.1", f"Host: {here}", f"Host: {name}")
            assert "400" in say(server, f"GET {path} HTTP/1.1", f"Host: {name}", f"Host: {here}")
            assert "400" in say(server, f"GET http://{name}{path} HTTP/1.1", f"Host: {here}")
        assert "403" in say(server, f"GET {path} HTTP/1.1", "Host: evil.example")
        assert "403" in say(server, f"GET {path} HTTP/1.1", f"Host: {HOST}:evil")
        assert "403" in say(server, f"GET {path} HTTP/1.1")


@pytest.mark.one_in(2)
def test_connections_without_a_request_take_no_more_threads_than_allowed() -> None:
    recording = recorded(outcome=RUNNING)
    with watch(recording) as server:
        told = events(get(server, "/events"))
        next(told)
        before = threading.active_count()
        address = (HOST, urlsplit(server.url).port or 0)
        idle = [socket.create_connection(address, timeout=PATIENCE_S) for _ in range(600)]
        assert read(server, "/")[0] == 200  # new requests are still served
        assert threading.active_count() - before <= MOST_CONNECTIONS
        recording.finish()
        assert [name for name, _ in told][-1] == "over"  # existing clients stay connected
        for line in idle:
            line.close()
