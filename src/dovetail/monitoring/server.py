"""A small web server that shows a running join in a browser on the same machine.

    GET /<token>/                the run, or a list of runs
    GET /<token>/run/<name>      one of several
    GET /<token>/events/<name>   updates as server-sent events: HTML, rendered by the server
    GET /<token>/report/<name>   the report as a file

It listens on the loopback interface only. Requests must have a loopback Host header, which stops DNS rebinding, and the
token, a new one for each server, which other users of the machine do not know. Access is read-only, and names are
looked up, never opened as paths.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import sys
import threading
import time
import webbrowser
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, unquote

from dovetail.core.markup import Html, tag, together
from dovetail.errors import InputError
from dovetail.monitoring import plot
from dovetail.monitoring import snapshot as figures
from dovetail.monitoring.formatting import format_seconds
from dovetail.monitoring.recording import Catalogue, Recording
from dovetail.monitoring.report import POLICY, body, document
from dovetail.monitoring.snapshot import RUNNING

PAGE_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'"
)


def run_page(name: str, recording: Recording, *, single: bool, base: str = "") -> str:
    """The current state of a run. A script requests updates."""
    title = recording.heading.title if recording.heading else name
    content = run_content(name, recording, single=single, base=base)
    return document(title, content, PAGE_POLICY, _script(base), data_events=f"{base}/events/{quote(name, safe='')}")


def run_content(name: str, recording: Recording, *, single: bool, base: str = "") -> Html:
    if recording.heading is None:
        return together(
            tag("h1", "Nothing yet"), tag("p", f"{name} will be shown as soon as a join is recorded there.")
        )
    link = tag("a", "save as a report", href=f"{base}/report/{quote(name, safe='')}", download="")
    others = None if single else together(" · ", tag("a", "all runs", href=f"{base}/"))
    return together(body(recording), tag("p", link, others, class_="more"))


def list_page(runs: Mapping[str, Recording], base: str = "") -> str:
    return document("Runs", list_content(runs, base), PAGE_POLICY, _script(base), data_events=f"{base}/events")


def list_content(runs: Mapping[str, Recording], base: str = "") -> Html:
    entries = []
    for name, run in runs.items():
        if run.heading is not None:
            snapshot = run.snapshot()
            state = figures.state(snapshot)
            entries.append(
                tag(
                    "li",
                    tag("a", snapshot.heading.title, href=f"{base}/run/{quote(name, safe='')}"),
                    tag("span", state, class_=f"state {plot.class_name(state)}"),
                    tag("span", format_seconds(snapshot.seconds)),
                    tag("span", f"{snapshot.latest.results:,} results", class_="count"),
                    tag("code", snapshot.heading.on),
                )
            )
    none = tag("p", "Joins will be shown here as soon as they are recorded.", class_="more") if not entries else None
    return together(tag("p", "Dovetail", class_="brand"), tag("h1", "Runs"), tag("ul", *entries, class_="runs"), none)


def script() -> str:
    return files("dovetail.monitoring").joinpath("page.js").read_text(encoding="utf-8")


def _script(base: str) -> Html:
    return tag("script", src=f"{base}/page.js")


HOST = "127.0.0.1"
HOST_HEADER = re.compile(r"(127\.0\.0\.1|localhost)(:\d+)?")  # any port: requests may come through a tunnel
MOST_CONNECTIONS = 64
LEAVING_S = 1.0  # for the thread of a closed connection
TOKEN_BYTES = 16
POLL_S = 0.5
CLOSING_S = 0.05  # time until it notices that it is closed
GRACE_S = 10.0  # for a browser that is still starting when the join ends

HTML, SCRIPT = "text/html; charset=utf-8", "text/javascript; charset=utf-8"


class Server:
    """Serves from background threads until it is closed."""

    def __init__(self, what: Recording | str | os.PathLike[str], port: int = 0) -> None:
        catalogue = Catalogue(what)
        try:
            self._server = _HttpServer((HOST, port), _Handler)
        except (OSError, OverflowError) as error:
            raise InputError(
                f"port {port} cannot be used: {error}. Give another, or 0 for any that is free."
            ) from error
        self._server.catalogue = catalogue
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(CLOSING_S,), name="dovetail-watch", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """Contains the token: anyone who has the URL can see the page."""
        return f"http://{HOST}:{self._server.server_port}{self._server.base}/"

    def wait_for_readers(self, seconds: float = GRACE_S) -> None:
        """Wait until a client has seen the end of the run, up to a limit."""
        self._server.told.wait(seconds)

    def close(self) -> None:
        self._server.closed.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def watch(what: Recording | str | os.PathLike[str], port: int = 0) -> Server:
    """Serve a page that shows a join while it runs, at `.url` until `.close()`. Only this machine can access it.

    Args:
        what: A Recording, a recording file, or a directory of them.
        port: 0 selects a free one.

    Example:
        >>> import dovetail
        >>> with dovetail.watch(dovetail.Recording()) as server:
        ...     server.url.startswith("http://127.0.0.1:")
        True
    """
    return Server(what, port)


def announce(url: str) -> None:
    """Print the URL of a page, and open it if there is a display."""
    sys.stderr.write(f"watch it at {url}\n")
    sys.stderr.flush()
    if sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")):
        webbrowser.open(url)


class _HttpServer(ThreadingHTTPServer):
    """One thread per connection, up to a limit. A further connection replaces the oldest that waits for a request."""

    daemon_threads = True
    request_queue_size = MOST_CONNECTIONS
    catalogue: Catalogue

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self.base = f"/{secrets.token_urlsafe(TOKEN_BYTES)}"  # prefix of all paths
        self.closed = threading.Event()
        self.told = threading.Event()  # a client has seen the end
        self._free = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._lock = threading.Lock()
        self._waiting: dict[Any, None] = {}  # connections without an accepted request, oldest first

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            with self._lock:
                oldest = next(iter(self._waiting), None)
            if oldest is not None:
                self._cut(oldest)
            if oldest is None or not self._free.acquire(timeout=LEAVING_S):
                self.shutdown_request(request)
                return
        self.await_request(request)
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started
            self.accept_request(request)
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.accept_request(request)
            self._free.release()

    def await_request(self, connection: Any) -> None:
        with self._lock:
            self._waiting[connection] = None

    def accept_request(self, connection: Any) -> None:
        with self._lock:
            self._waiting.pop(connection, None)

    def _cut(self, connection: Any) -> None:
        self.accept_request(connection)
        with suppress(OSError):  # it may be closed already
            connection.shutdown(socket.SHUT_RDWR)  # wakes its thread, which closes it

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Errors of client connections are not logged."""


class _Handler(BaseHTTPRequestHandler):
    server: _HttpServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "dovetail", ""
    timeout = 30

    def do_GET(self) -> None:
        base, path = self.server.base, self.path.partition("?")[0]
        knows_token = secrets.compare_digest(path[: len(base) + 1].encode(), f"{base}/".encode())
        hosts = self.headers.get_all("Host", [])
        if len(hosts) > 1 or not path.startswith("/"):  # programs differ in which host they use
            self._refuse(HTTPStatus.BAD_REQUEST)
        elif not hosts or not HOST_HEADER.fullmatch(hosts[0]) or not knows_token:
            self._refuse(HTTPStatus.FORBIDDEN)
        else:
            self.server.accept_request(self.connection)
            self._answer(path, base)
            self.server.await_request(self.connection)

    def _answer(self, path: str, base: str) -> None:
        catalogue = self.server.catalogue
        runs = catalogue.runs()
        kind, _, quoted = path[len(base) + 1 :].partition("/")
        name = next(iter(runs)) if catalogue.single and not quoted else unquote(quoted)
        run = runs.get(name)
        if kind == "page.js":
            self._send(SCRIPT, script())
        elif run is not None and kind in ("", "run"):
            self._send(HTML, run_page(name, run, single=catalogue.single, base=base))
        elif run is not None and kind == "events":
            self._follow(name, run)
        elif run is not None and run.heading is not None and kind == "report":
            self._send(HTML, document(run.heading.title, body(run), POLICY), attached=True)
        elif kind == "" and not quoted:
            self._send(HTML, list_page(runs, base))
        elif kind == "events" and not quoted:
            self._tell(lambda: list_content(catalogue.runs(), base), lambda: False)
        else:
            self._refuse(HTTPStatus.NOT_FOUND)

    def _follow(self, name: str, run: Recording) -> None:
        def content() -> str:
            run.refresh()
            return run_content(name, run, single=self.server.catalogue.single, base=self.server.base)

        self._tell(content, lambda: run.outcome != RUNNING)

    def _tell(self, content: Callable[[], str], over: Callable[[], bool]) -> None:
        """Send updates until the run ends or the client disconnects."""
        self._head("text/event-stream")
        self.close_connection = True
        try:
            while not self.server.closed.is_set():
                ended = over()  # before rendering, so that the last update shows the end
                self._event(content())
                if ended:
                    self._event("", "over")
                    self.server.told.set()
                    return
                self.server.closed.wait(POLL_S)
        except OSError:  # the client has disconnected
            return

    def _event(self, data: str, name: str = "message") -> None:
        lines = "".join(f"data: {line}\n" for line in data.splitlines() or [""])
        self.wfile.write(f"event: {name}\n{lines}\n".encode())
        self.wfile.flush()

    def _send(self, kind: str, text: str, *, attached: bool = False) -> None:
        payload = text.encode()
        self._head(kind, len(payload), attached=attached)
        self.wfile.write(payload)

    def _head(self, kind: str, length: int | None = None, *, attached: bool = False) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        self.send_header("Referrer-Policy", "no-referrer")
        if attached:
            self.send_header(
                "Content-Disposition", f'attachment; filename="dovetail-{time.strftime("%Y%m%d-%H%M%S")}.html"'
            )
        if length is None:
            self.send_header("Connection", "close")
        else:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def _refuse(self, status: HTTPStatus) -> None:
        payload = f"{status.value} {status.phrase}\n".encode()
        self.close_connection = True
        self.send_response(status)
        self.send_header("Connection", "close")
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002  the name in the library
        """Requests are not logged."""
