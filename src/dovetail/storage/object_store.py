"""Object stores and other file systems that are not mounted, through pyarrow.fs.

Failed requests are retried for some seconds, with increasing pauses. Every object has a unique name, so a put, a copy
or a delete can be repeated safely. A broken upload may leave an incomplete object. No manifest names it, so it is never
read; length and checksum are compared when objects are read.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import posixpath
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache, partial
from typing import Any, BinaryIO, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs

from dovetail.core.addresses import redacted, without_secrets
from dovetail.core.retrying import backoff, jittered
from dovetail.errors import InputError, StateError
from dovetail.storage.local_cache import LocalCache, worker_cache
from dovetail.storage.store import Entry, FileSystem, OpenedParts, Opener, Store, Upload

ATTEMPTS = 8
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
AT_ONCE = 8  # requests
PIECE_BYTES = 1 << 23
KNOWN = {
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "gs": "gs",
    "gcs": "gs",
    "abfs": "abfs",
    "abfss": "abfss",
    "hdfs": "hdfs",
}
TIMEOUTS_S = {"connect_timeout": 5.0, "request_timeout": 15.0}
"""For S3: without a connection, and without a byte of an answer. The URI and the environment override these."""
VARIABLE = "DOVETAIL_S3_{}"  # environment variables, in upper case
S3_OPTIONS = {"region", "scheme", "endpoint_override", "tls_ca_file_path", *TIMEOUTS_S}
REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
REFUSED = (  # in messages of file systems: errors that a retry does not change
    "ACCESS_DENIED",
    "INVALID_ACCESS_KEY_ID",
    "SIGNATURE_DOES_NOT_MATCH",
    "NO_SUCH_BUCKET",
    "INVALID_BUCKET_NAME",
    "HTTP status 401",
    "HTTP status 403",
    "PERMISSION_DENIED",
    "UNAUTHENTICATED",
    "AuthenticationFailed",
    "AuthorizationFailure",
)
ADVICE = "Look at the address, at the network and at the credentials that the workers have for it."

T = TypeVar("T")

_file_systems: dict[tuple[str, Any], tuple[FileSystem, str]] = {}


class ObjectStore(Store):
    def __init__(self, uri: str, open_uri: Opener, below: str = "") -> None:
        self._uri, self._open_uri, self._below = uri, open_uri, below
        self._fs, root = _opened(uri, open_uri)
        self._root = posixpath.join(root, below) if below else root.rstrip("/")
        self._pending: list[Future[None]] | None = None  # uploads in the background

    def __reduce__(self) -> Any:
        return ObjectStore, (self._uri, self._open_uri, self._below)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectStore) and (self._uri, self._below) == (other._uri, other._below)

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def uri(self) -> str:
        address, mark, query = self._uri.partition("?")
        return posixpath.join(address, self._below) + mark + query if self._below else self._uri

    @property
    def key(self) -> str:
        return f"{self._fs.type_name}:{self._root}"

    @property
    def name(self) -> str:
        return posixpath.basename(self._root)

    @property
    def parent(self) -> ObjectStore:
        if self._below:
            return ObjectStore(self._uri, self._open_uri, posixpath.dirname(self._below))
        address, mark, query = self._uri.partition("?")
        return ObjectStore(posixpath.dirname(address.rstrip("/")) + mark + query, self._open_uri)

    def __truediv__(self, name: str) -> ObjectStore:
        return ObjectStore(self._uri, self._open_uri, posixpath.join(self._below, name))

    def prepare(self) -> None:
        """Nothing to do: putting an object creates its place."""

    def create(self, name: str, *, durable: bool = False, keep: bool = True) -> Upload:
        return _CachedUpload(self, name, worker_cache(), keep, self._pending)

    def in_background(self) -> ObjectStore:
        store = ObjectStore(self._uri, self._open_uri, self._below)
        store._pending = []
        return store

    def flush(self) -> None:
        pending, self._pending = self._pending, [] if self._pending is not None else None
        wait(pending or ())
        for upload in pending or ():
            upload.result()  # raises its error

    def open(self, name: str, nbytes: int, checksum: int | None, *, mapped: bool) -> pa.NativeFile:
        assert checksum is not None, "an object's checksum is compared when it is downloaded"
        return worker_cache().open(
            self.object_key(name), nbytes, checksum, lambda file: self._download(name, file), mapped=mapped
        )

    def open_parts(self, name: str) -> OpenedParts:
        info = self._attempt("look up", name, lambda: self._fs.get_file_info(self._path(name)))
        if info.type != pafs.FileType.File:
            raise FileNotFoundError(f"{self / name} is missing")
        file = self._attempt("read", name, lambda: self._fs.open_input_file(info.path))
        return OpenedParts(_entry(info, name), pa.PythonFile(_PatientFile(self, name, file, info.size), "r"))

    def object_key(self, name: str) -> str:
        return f"{self.key}/{name}"

    def put(self, name: str, data: bytes, *, durable: bool = False) -> None:
        if self._fs.type_name == "hdfs":  # readers see a file while it is written
            mine = f"{name}-{uuid.uuid4().hex}"
            self._attempt("write", name, lambda: self._write(mine, [data]))
            self._attempt("write", name, lambda: self._replace(mine, name))
        else:
            self._attempt("write", name, lambda: self._write(name, [data]))

    def upload(self, name: str, file: BinaryIO) -> None:
        """Upload a file, and close it."""

        def write() -> None:
            file.seek(0)
            self._write(name, iter(lambda: file.read(PIECE_BYTES), b""))

        with file:
            self._attempt("write", name, write)

    def get(self, name: str) -> bytes | None:
        def read() -> bytes:
            with self._fs.open_input_file(self._path(name)) as file:
                return bytes(file.read())

        try:
            return self._attempt("read", name, read)
        except FileNotFoundError:
            return None

    def find(self, name: str) -> Entry | None:
        info = self._attempt("look up", name, lambda: self._fs.get_file_info(self._path(name)))
        return _entry(info, name) if info.type == pafs.FileType.File else None

    def entries(self, *, recursive: bool = False) -> Iterator[Entry]:
        for info in self._infos(recursive=recursive):
            if info.type == pafs.FileType.File:
                yield _entry(info, info.path[len(self._root) + 1 :])

    def folders(self) -> list[str]:
        return [info.base_name for info in self._infos(recursive=False) if info.type == pafs.FileType.Directory]

    def _infos(self, *, recursive: bool) -> Any:
        selector = pafs.FileSelector(self._root, recursive=recursive, allow_not_found=True)
        return self._attempt("list", "", lambda: self._fs.get_file_info(selector))

    def delete(self, names: Iterable[str]) -> None:
        wanted = list(names)
        if len(wanted) > 1:
            with ThreadPoolExecutor(min(AT_ONCE, len(wanted))) as pool:
                for _ in pool.map(self._delete, wanted):
                    pass
        elif wanted:
            self._delete(wanted[0])

    def _delete(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._attempt("delete", name, lambda: self._fs.delete_file(self._path(name)))
        worker_cache().forget(self.object_key(name))

    def delete_all(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._attempt("delete", "", lambda: self._fs.delete_dir(self._root))

    def publish(self, name: str, to: Store) -> None:
        assert isinstance(to, ObjectStore)
        if self._fs.type_name == "hdfs":
            self._attempt("rename", name, lambda: self._fs.move(self._path(name), to._path(name)))
        else:
            self._attempt("copy", name, lambda: self._fs.copy_file(self._path(name), to._path(name)))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def _write(self, name: str, pieces: Iterable[bytes]) -> None:
        """One attempt. A file system with directories may need to create them."""
        try:
            stream = self._fs.open_output_stream(self._path(name))
        except FileNotFoundError:
            self._fs.create_dir(posixpath.dirname(self._path(name)), recursive=True)
            stream = self._fs.open_output_stream(self._path(name))
        for piece in pieces:
            stream.write(piece)
        stream.close()

    def _replace(self, mine: str, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._fs.delete_file(self._path(name))
        self._fs.move(self._path(mine), self._path(name))

    def _download(self, name: str, file: BinaryIO) -> None:
        """Download in pieces. A failed piece is requested again."""
        source = self._attempt("read", name, lambda: self._fs.open_input_file(self._path(name)))
        with source:
            size = source.size()
            for start in range(0, size, PIECE_BYTES):
                read = partial(source.read_at, min(PIECE_BYTES, size - start), start)
                file.write(self._attempt("read", name, read))

    def _attempt(self, verb: str, name: str, action: Callable[[], T]) -> T:
        """Retry while it may help. A missing object is raised as FileNotFoundError."""
        place = self / name if name else self
        for attempt in range(ATTEMPTS):
            try:
                return action()
            except (OSError, pa.ArrowException) as error:
                text, missing = str(error), isinstance(error, FileNotFoundError)
            # Raised here and not above: the original error would be shown with it, and may contain secrets.
            if missing and not any(word in text for word in REFUSED):
                raise FileNotFoundError(f"{place} is missing")
            if attempt + 1 == ATTEMPTS or any(word in text for word in REFUSED):
                break
            time.sleep(pause(attempt))
        raise StateError(
            f"cannot {verb} {place}: {without_secrets(text, place.uri, _secrets(self._open_uri))}. {ADVICE}"
        )


def _secrets(open_uri: Opener) -> list[str]:
    """Secrets that an opener has and the URI does not."""
    return [value for name, value in getattr(open_uri, "settings", ()) if name.endswith(("_key", "_token"))]


class _PatientFile(io.RawIOBase):
    """An object that is read in parts, with failed parts requested again. Threads that read it take turns."""

    def __init__(self, store: ObjectStore, name: str, file: pa.NativeFile, nbytes: int) -> None:
        self._store, self._name, self._file, self._nbytes = store, name, file, nbytes
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._nbytes}[whence]
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._nbytes - self._at)
        wanted = left if size is None or size < 0 else min(size, left)
        if not wanted:
            return b""
        data: bytes = self._store._attempt("read", self._name, partial(self._file.read_at, wanted, self._at))
        self._at += len(data)
        return data

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


class _CachedUpload(Upload):
    """Written to the cache, then uploaded; in the background, if there is a list of pending uploads."""

    def __init__(
        self, store: ObjectStore, name: str, kept: LocalCache, keep: bool, pending: list[Future[None]] | None
    ) -> None:
        self._store, self._name, self._kept, self._keep, self._pending = store, name, kept, keep, pending
        self._unfinished = kept.unfinished()
        super().__init__(self._unfinished)

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise self._kept.error(error) from error

    def publish(self) -> None:
        self.flush()
        self.close()
        file = open(self._unfinished, "rb")  # noqa: SIM115  stays readable when its entry is removed
        if self._pending is None:
            self._store.upload(self._name, file)
        if self._keep:
            self._kept.keep(self._store.object_key(self._name), self._unfinished, self.size)
        else:
            self.discard()
        if self._pending is not None:
            self._pending.append(_uploaders().submit(self._store.upload, self._name, file))

    def discard(self) -> None:
        self._unfinished.unlink(missing_ok=True)


@cache
def _uploaders() -> ThreadPoolExecutor:
    """The upload threads of this process."""
    return ThreadPoolExecutor(AT_ONCE)


def pause(attempt: int) -> float:
    """Seconds until the next attempt."""
    return jittered(backoff(attempt + 1, FIRST_PAUSE_S, LONGEST_PAUSE_S))


def _entry(info: Any, name: str) -> Entry:
    return Entry(name, info.size or 0, (info.mtime_ns or 0) / 1e9)


def _opened(uri: str, open_uri: Opener) -> tuple[FileSystem, str]:
    """The file system of a URI, one per process.

    Functions cannot be compared, since each task has its own copy. Openers with `settings` are compared by these.
    """
    key = (uri, getattr(open_uri, "settings", None))
    if key not in _file_systems:
        try:
            _file_systems[key] = open_uri(uri)
        except (OSError, ValueError, TypeError, ImportError, pa.ArrowException) as error:
            text = without_secrets(str(error), uri, _secrets(open_uri))
        else:
            return _file_systems[key]
        raise InputError(f"{redacted(uri)} cannot be opened: {text}. {ADVICE}")  # not chained, as above
    return _file_systems[key]


def opener(scheme: str, uri: str) -> Opener:
    """The opener for URIs of a scheme that pyarrow supports."""
    if scheme not in KNOWN:
        raise InputError(
            f"{redacted(uri)}: {scheme} is not a known file system. Known are paths, file, {', '.join(KNOWN)}; for "
            "others call dovetail.spark.register_file_system."
        )
    return open_s3 if KNOWN[scheme] == "s3" else open_known


def open_known(uri: str) -> tuple[FileSystem, str]:
    scheme, colon, rest = uri.partition(":")
    fs, path = pafs.FileSystem.from_uri(KNOWN[scheme.lower()] + colon + rest)
    return fs, path.rstrip("/")


def open_s3(uri: str) -> tuple[FileSystem, str]:
    """Like pyarrow's own, but a small object takes one request."""
    parts = urlsplit(uri)
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    user, at, bucket = parts.netloc.rpartition("@")
    path = f"{bucket}{unquote(parts.path)}".rstrip("/")
    if given.keys() - S3_OPTIONS or not bucket:
        return open_known(uri)
    if at:
        key, _, secret = user.partition(":")
        given |= {"access_key": unquote(key), "secret_key": unquote(secret)}
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if endpoint and "endpoint_override" not in given:
        scheme, _, host = endpoint.rpartition("://")
        given |= {"endpoint_override": host.rstrip("/"), **({"scheme": scheme} if scheme else {})}
    return make_s3(bucket, given), path


def _timeout(name: str, given: Mapping[str, str]) -> float:
    """The timeout in seconds."""
    variable = VARIABLE.format(name.upper())
    text = given.get(name) or os.environ.get(variable)
    with contextlib.suppress(ValueError):
        if not text or 0 < float(text) < math.inf:
            return float(text or TIMEOUTS_S[name])
    raise InputError(f"{name} (or {variable}) is a positive number of seconds; got {text!r}.")


def make_s3(bucket: str, given: Mapping[str, str]) -> FileSystem:
    """A small object takes one request, which is retried here and not by AWS's library."""
    settings: dict[str, Any] = dict(given) | {name: _timeout(name, given) for name in TIMEOUTS_S}
    if not given.keys() & {"region", "endpoint_override"} and not any(map(os.environ.get, REGION_VARIABLES)):
        with contextlib.suppress(OSError):
            settings["region"] = pafs.resolve_s3_region(bucket)
    once = pafs.AwsStandardS3RetryStrategy(max_attempts=1)
    return pafs.S3FileSystem(allow_delayed_open=True, background_writes=False, retry_strategy=once, **settings)
