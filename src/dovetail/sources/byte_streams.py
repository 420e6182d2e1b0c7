"""Reads the bytes of a file or URL from any position.

A server with range requests (`Accept-Ranges: bytes`) continues where a connection broke, if the ETag or date shows that
the file is the same. Headers, which may contain a token, are sent to the given host, and not to others it redirects to.
Messages show addresses without secrets.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Mapping
from contextlib import closing
from http.client import HTTPException, HTTPMessage, responses
from pathlib import Path
from typing import IO, Any, Protocol
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
)

from dovetail.core.addresses import UNQUOTED, parse_address, redacted, scheme_of
from dovetail.core.file_formats import input_path
from dovetail.errors import InputError, SourceError

CHUNK_BYTES = 1 << 17
TIMEOUT_S = 30.0
PARTIAL = 206
AGAIN = (408, 425, 429)  # statuses below 500 after which a retry may help
SERVER_ERROR = 500
SAME = ("ETag", "Last-Modified")  # headers that show that two answers are of the same file


class ByteStream(Protocol):
    name: str
    resumable: bool

    def chunks(self, position: int = 0) -> Iterator[bytes]:
        """The bytes from a position to the end."""


def byte_stream(
    place: str | os.PathLike[str], headers: Mapping[str, str] | None = None, timeout_s: float = TIMEOUT_S
) -> ByteStream:
    """The bytes of a local path, or of an http or https URL."""
    text = os.fspath(place)
    if scheme_of(text) in ("http", "https"):
        return _Url(text, headers or {}, timeout_s)
    if headers:
        raise InputError("headers= is for http and https URLs; leave it out for a path.")
    path = input_path(place)
    if not path.is_file():
        raise InputError(f"{path}: {'a directory, not a file' if path.is_dir() else 'no such file'}.")
    return _File(path)


class _File:
    resumable = True

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path

    def chunks(self, position: int = 0) -> Iterator[bytes]:
        with self._path.open("rb") as file:
            file.seek(position)
            while chunk := file.read(CHUNK_BYTES):
                yield chunk


class _Url:
    def __init__(self, url: str, headers: Mapping[str, str], timeout_s: float) -> None:
        self.name = redacted(url)
        address = parse_address(url)
        if address is None:
            raise InputError(f"{self.name} cannot be read as an address. {UNQUOTED}")
        parts = urlsplit(url)
        self._headers = {"User-Agent": "dovetail", "Accept-Encoding": "identity", **headers}
        if address.user is not None:
            token = base64.b64encode(unquote(address.user).encode()).decode()
            self._headers["Authorization"] = f"Basic {token}"
        self._url = parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment="").geturl()
        self._timeout_s = timeout_s
        self._opener = _opener()
        self._same: dict[str, str] | None = None  # of the first answer
        self.resumable = False  # known after the first answer

    def chunks(self, position: int = 0) -> Iterator[bytes]:
        with closing(self._open(position)) as answer:
            skip = 0 if answer.status == PARTIAL else position
            self._check_same(answer.headers, position)
            length = answer.headers.get("Content-Length")
            came = 0
            while chunk := self._read(answer):
                came += len(chunk)
                yield chunk[skip:]
                skip = max(0, skip - len(chunk))
            if length is not None and came < int(length):
                raise OSError(f"the connection ended after {came:,} of {int(length):,} bytes")

    def _open(self, position: int) -> Any:
        headers = {**self._headers, **({"Range": f"bytes={position}-"} if position else {})}
        try:
            return self._opener.open(Request(self._url, headers=headers), timeout=self._timeout_s)
        except HTTPError as error:
            error.close()
            told = f"the server answers {error.code} {responses.get(error.code, '')}".rstrip()
            if error.code < SERVER_ERROR and error.code not in AGAIN:
                raise SourceError(f"{self.name}: {told}.") from None
            raise OSError(told) from None
        except URLError as error:
            raise OSError(f"no answer: {error.reason}") from None
        except HTTPException as error:
            raise OSError(f"no answer that can be read: {type(error).__name__}") from None

    def _read(self, answer: IO[bytes]) -> bytes:
        try:
            return answer.read(CHUNK_BYTES)
        except HTTPException as error:
            raise OSError(f"the connection broke: {type(error).__name__}") from None

    def _check_same(self, headers: HTTPMessage, position: int) -> None:
        same = {name: value for name in SAME if (value := headers.get(name)) is not None}
        if self._same is None:
            self._same = same
            self.resumable = headers.get("Accept-Ranges", "").lower() == "bytes"
        elif position and same != self._same:
            raise SourceError(f"{self.name} has changed since it was read first: join the new file.")


class _Redirects(HTTPRedirectHandler):
    """Redirects to another host drop the caller's headers. Redirects from https to http are refused."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        old, new = urlsplit(req.full_url), urlsplit(newurl)
        if new.scheme != "https" and (old.scheme == "https" or new.scheme != "http"):
            raise SourceError(f"{redacted(req.full_url)}: the server redirects from {old.scheme} to {new.scheme}.")
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        if request is not None and (old.scheme, old.netloc) != (new.scheme, new.netloc):
            kept = ("user-agent", "accept-encoding", "range")
            request.headers = {name: value for name, value in request.headers.items() if name.lower() in kept}
        return request


def _opener() -> OpenerDirector:
    """Only http and https: a server must not redirect to a file."""
    opener = OpenerDirector()
    for handler in (ProxyHandler, HTTPHandler, HTTPSHandler, HTTPDefaultErrorHandler, HTTPErrorProcessor, _Redirects):
        opener.add_handler(handler())
    return opener
