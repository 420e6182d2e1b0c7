"""A small S3 server on loopback: supports the requests that pyarrow makes, and faults.

Objects are in memory. Signatures are not checked. A fault happens before or after a request is executed: clients must
retry in both cases, and retries must do no harm.
"""

from __future__ import annotations

import hashlib
import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from dovetail.storage.object_store import ATTEMPTS

BUCKET = "bucket"
ACCESS_KEY, SECRET_KEY = "AKIALOOPBACK", "loopback/secret+key"  # not checked, and must never be visible
NAMES = 3  # at most, in the requests of one operation
ERRORS = [(500, "InternalError"), (503, "SlowDown")]
PAGE = 100  # objects per response to a listing: few, to get several pages


class Object(NamedTuple):
    data: bytes
    written: float

    @property
    def etag(self) -> str:
        return f'"{hashlib.md5(self.data).hexdigest()}"'


class Fault(NamedTuple):
    kind: str
    answer: tuple[int, str]  # for the kind "error"


class Faults:
    """A schedule of failing requests, drawn from a seed, that every client can survive.

    The order of requests depends on threads, but the failures per operation do not: a name fails at most `at_most`
    times, and an operation of a store involves three names (its own, its folder, the bucket). So an operation with
    ATTEMPTS tries always succeeds. `at_most=None` is a store that does not recover.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        error: float = 0,
        drop: float = 0,
        lose: float = 0,
        slow: float = 0,
        at_most: int | None = (ATTEMPTS - 1) // NAMES,
    ) -> None:
        self._random = random.Random(seed)
        self._failed: Counter[str] = Counter()  # by name
        self._at_most = at_most
        self.error = error  # a response 500 or 503, without execution
        self.drop = drop  # the connection breaks, without execution
        self.lose = lose  # the request is executed, but the connection breaks before or within the response
        self.slow = slow  # the response is delayed
        self.slow_s = 0.2

    def next(self, name: str) -> Fault | None:
        """The fault of the next request for a name, if any."""
        draw, answer = self._random.random(), self._random.choice(ERRORS)
        for kind in ("error", "drop", "lose", "slow"):
            chance = getattr(self, kind)
            if draw < chance:
                return Fault(kind, answer) if kind == "slow" or self._may_fail(name) else None
            draw -= chance
        return None

    def _may_fail(self, name: str) -> bool:
        self._failed[name] += 1
        return self._at_most is None or self._failed[name] <= self._at_most


class S3Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock = threading.RLock()
        self.objects: dict[str, Object] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.requests: Counter[str] = Counter()
        self.faults = Faults()
        self.failed = 0

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    def uri(self, path: str, *, scheme: str = "s3") -> str:
        """The URI of a path in the bucket, with credentials."""
        user = f"{ACCESS_KEY}:{quote(SECRET_KEY, safe='')}"
        return f"{scheme}://{user}@{BUCKET}/{path}?region=loopback&scheme=http&endpoint_override={quote(self.endpoint)}"

    def names(self, prefix: str = "") -> list[str]:
        with self.lock:
            return sorted(key for key in self.objects if key.startswith(prefix) and not key.endswith("/"))

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore closed connections."""


class Handler(BaseHTTPRequestHandler):
    server: S3Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  as in the base class
        """Log nothing."""

    def do_GET(self) -> None:
        self._serve()

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET  # noqa: N815

    def _serve(self) -> None:
        server = self.server
        address = urlsplit(self.path)
        self.query = parse_qs(address.query, keep_blank_values=True)
        self.bucket, _, self.key = unquote(address.path).lstrip("/").partition("/")
        body = self._body()
        with server.lock:
            fault = server.faults.next(self._name())
            kind = fault and fault.kind
            self.lost = kind == "lose"
            server.failed += fault is not None
            server.requests[self._kind()] += 1
        if kind == "slow":
            time.sleep(server.faults.slow_s)
        if kind == "drop":
            self.close_connection = True
            return
        if fault is not None and kind == "error":
            self._error(*fault.answer)
            return
        with server.lock:
            status, headers, data = self._carry_out(body)
        self._answer(status, headers, data)

    def _name(self) -> str:
        """The name in a request: an object, a folder, or the bucket."""
        return (self.key or self.query.get("prefix", [""])[0]).strip("/")

    def _kind(self) -> str:
        if self.command == "GET" and not self.key:
            return "LIST"
        return "COPY" if "x-amz-copy-source" in self.headers else self.command

    def _body(self) -> bytes:
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Transfer-Encoding") == "chunked":
            pieces = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                pieces.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            data = b"".join(pieces)
        if "aws-chunked" in self.headers.get("Content-Encoding", ""):
            return _unchunk(data)
        return data

    def _carry_out(self, body: bytes) -> tuple[int, Mapping[str, str], bytes]:
        server = self.server
        if self.bucket != BUCKET:
            return _failure(404, "NoSuchBucket")
        match self.command:
            case "GET" if not self.key:
                return 200, {}, self._list()
            case "HEAD" if not self.key:
                return 200, {"x-amz-bucket-region": "loopback"}, b""
            case "GET" | "HEAD":
                return self._read()
            case "PUT" if "uploadId" in self.query:
                parts = server.uploads[self.query["uploadId"][0]]
                parts[int(self.query["partNumber"][0])] = body
                return 200, {"ETag": f'"{hashlib.md5(body).hexdigest()}"'}, b""
            case "PUT" if "x-amz-copy-source" in self.headers:
                source = unquote(self.headers["x-amz-copy-source"]).lstrip("/").partition("/")[2]
                if source not in server.objects:
                    return _failure(404, "NoSuchKey")
                server.objects[self.key] = server.objects[source]._replace(written=time.time())
                return 200, {}, _xml("CopyObjectResult", f"<ETag>{escape(server.objects[source].etag)}</ETag>")
            case "PUT":
                server.objects[self.key] = found = Object(body, time.time())
                return 200, {"ETag": found.etag}, b""
            case "POST" if "delete" in self.query:
                tree = ElementTree.fromstring(body)
                for element in tree.iter():
                    if element.tag.endswith("}Key") or element.tag == "Key":
                        server.objects.pop(element.text or "", None)
                return 200, {}, _xml("DeleteResult", "")
            case "POST" if "uploads" in self.query:
                upload = uuid.uuid4().hex
                server.uploads[upload] = {}
                fields = f"<Bucket>{BUCKET}</Bucket><Key>{escape(self.key)}</Key><UploadId>{upload}</UploadId>"
                return 200, {}, _xml("InitiateMultipartUploadResult", fields)
            case "POST" if "uploadId" in self.query:
                parts = server.uploads.get(self.query["uploadId"][0], {})
                if not parts:
                    return _failure(404, "NoSuchUpload")
                data = b"".join(parts[number] for number in sorted(parts))
                server.objects[self.key] = found = Object(data, time.time())
                return 200, {}, _xml("CompleteMultipartUploadResult", f"<ETag>{escape(found.etag)}</ETag>")
            case "DELETE" if "uploadId" in self.query:
                server.uploads.pop(self.query["uploadId"][0], None)
                return 204, {}, b""
            case "DELETE":
                server.objects.pop(self.key, None)
                return 204, {}, b""
        return _failure(501, "NotImplemented")

    def _read(self) -> tuple[int, Mapping[str, str], bytes]:
        found = self.server.objects.get(self.key)
        if found is None:
            return _failure(404, "NoSuchKey")
        headers = {
            "ETag": found.etag,
            "Last-Modified": formatdate(found.written, usegmt=True),
            "Accept-Ranges": "bytes",
        }
        wanted = self.headers.get("Range")
        if wanted is None:
            return 200, headers, found.data
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        start, stop = int(first), min(len(found.data), int(last or len(found.data)) + 1)
        if start >= len(found.data):
            return _failure(416, "InvalidRange")
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(found.data)}"
        return 206, headers, found.data[start:stop]

    def _list(self) -> bytes:
        prefix, delimiter = (self.query.get(name, [""])[0] for name in ("prefix", "delimiter"))
        after = self.query.get("continuation-token", [""])[0]
        most = min(PAGE, int(self.query.get("max-keys", [PAGE])[0]))
        found: dict[str, str] = {}  # by sort position, for the continuation token
        for key in sorted(self.server.objects):
            if not key.startswith(prefix):
                continue
            below = key[len(prefix) :]
            if delimiter and delimiter in below:
                folder = prefix + below.partition(delimiter)[0] + delimiter
                found[folder] = f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>"
            else:
                entry = self.server.objects[key]
                written = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(entry.written))
                found[key] = (
                    f"<Contents><Key>{escape(key)}</Key><LastModified>{written}</LastModified>"
                    f"<ETag>{escape(entry.etag)}</ETag><Size>{len(entry.data)}</Size></Contents>"
                )
        names = [name for name in sorted(found) if name > after]
        page = names[:most]
        more = len(names) > most
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        fields = f"<Name>{BUCKET}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(page)}</KeyCount>"
        fields += f"<MaxKeys>{most}</MaxKeys><IsTruncated>{str(more).lower()}</IsTruncated>{token}"
        return _xml("ListBucketResult", fields + "".join(found[name] for name in page))

    def _error(self, status: int, code: str) -> None:
        self._answer(*_failure(status, code))

    def _answer(self, status: int, headers: Mapping[str, str], data: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        size = len(data)
        if self.command == "HEAD":
            found = self.server.objects.get(self.key)
            size, data = (len(found.data) if found is not None and status == 200 else 0), b""
        self.send_header("x-amz-request-id", uuid.uuid4().hex)
        self.send_header("Content-Length", str(size))
        if self.lost:
            self.close_connection = True
            if len(data) > 1:
                self.end_headers()
                self.wfile.write(data[: len(data) // 2])
            return
        self.end_headers()
        self.wfile.write(data)


def _failure(status: int, code: str) -> tuple[int, Mapping[str, str], bytes]:
    return status, {"Content-Type": "application/xml"}, _xml("Error", f"<Code>{code}</Code><Message>{code}</Message>")


def _xml(name: str, fields: str) -> bytes:
    space = ' xmlns="http://s3.amazonaws.com/doc/2006-03-01/"' if name != "Error" else ""
    return f'<?xml version="1.0" encoding="UTF-8"?><{name}{space}>{fields}</{name}>'.encode()


def _unchunk(data: bytes) -> bytes:
    """The content of a chunked body, without sizes, signatures and checksums."""
    pieces: list[bytes] = []
    at = 0
    while True:
        end = data.index(b"\r\n", at)
        size = int(data[at:end].split(b";")[0], 16)
        if not size:
            return b"".join(pieces)
        pieces.append(data[end + 2 : end + 2 + size])
        at = end + 2 + size + 2


@contextmanager
def s3_server() -> Iterator[S3Server]:
    server = S3Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
