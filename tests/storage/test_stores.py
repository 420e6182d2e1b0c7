"""Stores: a directory and an object store behave alike, even while requests fail; secrets are not printed."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import pytest
from tests.full_disk import REASON, full_disk
from tests.storage.s3_server import ACCESS_KEY, SECRET_KEY, Faults, S3Server, s3_server

from dovetail.core.addresses import redacted, without_secrets
from dovetail.errors import InputError, StateError
from dovetail.storage import local_cache, object_store
from dovetail.storage import open_store as stores
from dovetail.storage.blocks import BlockStore
from dovetail.storage.local_cache import LocalCache
from dovetail.storage.open_store import open_store
from dovetail.storage.store import DamagedError, Store


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalCache:
    """A separate cache for this test."""
    cache = LocalCache(tmp_path / "cache", 1 << 20)
    monkeypatch.setattr(object_store, "worker_cache", lambda: cache)
    return cache


@pytest.fixture(params=["directory", "s3", "s3 with faults", "registered"])
def store(request: pytest.FixtureRequest, tmp_path: Path, server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Store:
    server.objects.clear()
    server.faults = Faults(error=0.1, drop=0.05, lose=0.1) if "faults" in request.param else Faults()
    monkeypatch.setattr(object_store, "FIRST_PAUSE_S", 0.001)
    if request.param == "directory":
        return open_store(tmp_path / "some" / "where")
    if request.param == "registered":
        monkeypatch.setattr(stores, "_openers", {})
        stores.register_file_system("MEM", _in_a_directory)
        (tmp_path / "mem").mkdir()
        return open_store(f"mem:/{tmp_path}/mem/some/where")
    return open_store(server.uri("some/where"))


def _in_a_directory(uri: str) -> tuple[pafs.FileSystem, str]:
    return pafs.LocalFileSystem(), uri.removeprefix("mem:/")


def test_what_a_store_does(store: Store) -> None:
    store.prepare()
    assert store.name == "where"
    assert (store / "a" / "b").parent.parent == store == pickle.loads(pickle.dumps(store))
    assert (list(store.entries()), store.folders(), store.get("one"), store.find("one")) == ([], [], None, None)
    store.put("one", b"first", durable=True)
    store.put("one", b"second")
    below = store / "below" / "that"
    below.prepare()
    for number in range(150):  # several pages per listing
        below.put(f"n{number}", b"")
    assert store.get("one") == b"second"
    assert [(entry.name, entry.nbytes) for entry in store.entries()] == [("one", 6)]
    assert sorted(entry.name for entry in store.entries(recursive=True)) == sorted(
        ["one", *(f"below/that/n{number}" for number in range(150))]
    )
    assert store.folders() == ["below"]
    assert store.exists("one")
    assert not store.exists("two")
    store.publish("one", below)
    assert below.get("one") == b"second"
    below.delete([f"n{number}" for number in range(140)])
    below.delete(["n141", "never"])
    assert len(list(below.entries())) == 10
    store.delete_all()
    store.delete_all()
    assert list(store.entries(recursive=True)) == []


def test_objects_are_files_of_this_machine(store: Store, kept: LocalCache) -> None:
    store.prepare()
    data = bytes(range(256)) * 100
    for size in (100, 1 << 14):
        upload = store.create(f"of-{size}", durable=True)
        upload.write(data[:size])
        assert not store.exists(f"of-{size}")
        upload.publish()
        for mapped in (True, False):
            file = store.open(f"of-{size}", size, upload.checksum, mapped=mapped)
            assert file.read() == data[:size]
        with pytest.raises(DamagedError):
            store.open(f"of-{size}", size + 1, upload.checksum, mapped=True)
        kept.forget(f"{store.key}/of-{size}")
        with pytest.raises(DamagedError):
            store.open(f"of-{size}", size, upload.checksum + 1, mapped=True)
    store.create("dropped").discard()
    with pytest.raises(FileNotFoundError):
        store.open("dropped", 1, 1, mapped=True)
    assert not [path for path in kept.directory.iterdir() if path.name.startswith(local_cache.UNFINISHED)]


def test_a_full_disk_below_the_cache_is_named(server: S3Server, kept: LocalCache) -> None:
    with pytest.raises(StateError, match=rf"cannot write to the cache .*{REASON}"), full_disk():
        BlockStore(open_store(server.uri("full"))).write(pa.record_batch({"a": [1]}), "l")


def test_names_that_say_everything_are_alone(tmp_path: Path) -> None:
    """A concurrent listing has them or not, and never unfinished files."""
    store, stop, strange = open_store(tmp_path), threading.Event(), set()

    def look() -> None:
        while not stop.is_set():
            strange.update(entry.name for entry in store.entries() if not entry.name.isdigit())

    thread = threading.Thread(target=look)
    thread.start()
    for number in range(500):
        store.put(str(number), b"")
    stop.set()
    thread.join()
    assert not strange


@pytest.mark.one_in(3)
def test_a_large_object_is_sent_and_read_in_pieces(
    server: S3Server, kept: LocalCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_store, "FIRST_PAUSE_S", 0.001)
    server.faults = Faults(error=0.05, drop=0.05)
    store = open_store(server.uri("large"))
    upload = store.create("one")
    for piece in range(30):
        upload.write(bytes([piece]) * (1 << 20))
    upload.publish()
    kept.forget(store.key + "/one")
    server.faults = Faults(1, error=0.1, drop=0.1, lose=0.1)
    with store.open("one", upload.size, upload.checksum, mapped=True) as file:
        assert file.size() == 30 << 20


def test_what_was_just_written_is_not_downloaded(server: S3Server, kept: LocalCache) -> None:
    server.faults = Faults()
    store = open_store(server.uri("own"))
    upload = store.create("one")
    upload.write(b"x" * 1000)
    upload.publish()
    server.requests.clear()
    store.open("one", 1000, upload.checksum, mapped=True)
    assert not server.requests
    kept.forget(store.key + "/one")
    store.open("one", 1000, upload.checksum, mapped=True)
    store.open("one", 1000, upload.checksum, mapped=True)
    assert server.requests["GET"] == 1


def test_a_small_object_is_one_request(server: S3Server) -> None:
    server.faults = Faults()
    server.requests.clear()
    open_store(server.uri("small")).put("one", b"x" * 10_000)
    assert server.requests == {"PUT": 1}


def test_failures_end_with_plain_words(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(object_store, "ATTEMPTS", 2)
    server.faults = Faults(error=1, at_most=None)
    store = open_store(server.uri("never"))
    rows = pa.record_batch({"a": [1]})
    for fail in (
        lambda: store.put("x", b""),
        lambda: store.get("x"),
        lambda: list(store.entries()),
        lambda: BlockStore(store).write(rows, "l"),
    ):
        with pytest.raises(StateError, match=r"^cannot (write|read|list) s3://…@bucket/never.* credentials") as failure:
            fail()
        _no_secrets(failure.value)
    server.faults = Faults()
    elsewhere = open_store(server.uri("x").replace("@bucket/", "@nowhere/"))
    server.requests.clear()
    with pytest.raises(StateError, match="NO_SUCH_BUCKET") as failure:
        elsewhere.put("x", b"")
    assert server.requests.total() == 1  # a retry would not help
    _no_secrets(failure.value)


@pytest.mark.parametrize("fault", ["error", "drop", "lose"])
def test_an_operation_survives_all_faults_but_one_too_many(
    server: S3Server, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setattr(object_store, "FIRST_PAUSE_S", 0.001)
    server.faults = Faults(at_most=object_store.ATTEMPTS - 1, **{fault: 1})
    open_store(server.uri(f"survives-{fault}")).put("one", b"x")
    assert server.objects[f"survives-{fault}/one"].data == b"x"
    server.faults = Faults(at_most=object_store.ATTEMPTS, **{fault: 1})
    store = open_store(server.uri(f"fails-{fault}"))  # no open connection, on which requests are resent
    with pytest.raises(StateError, match=f"^cannot write s3://…@bucket/fails-{fault}/one"):
        store.put("one", b"x")
    store.put("one", b"x")  # the schedule has ended


def test_no_operation_meets_more_faults_than_it_survives(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worst schedule: every request that may fail does."""
    monkeypatch.setattr(object_store, "FIRST_PAUSE_S", 0.001)
    server.objects.clear()
    names = [f"n{number}" for number in range(40)]
    for operation in (
        lambda store: [store.put(name, b"x") for name in names],
        lambda store: store.get("n0"),
        lambda store: store.publish("n0", store / "below"),
        lambda store: list(store.entries(recursive=True)),
        lambda store: store.delete(names[:20]),
        lambda store: store.delete_all(),
    ):
        server.faults = Faults(error=1)
        before = server.failed
        operation(open_store(server.uri("some/where")))
        assert server.failed > before
    assert server.names("some/where/") == []


def test_the_environment_tells_where_and_who(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.faults = Faults()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{server.endpoint}/")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    open_store("s3a://bucket/by/environment").put("x", b"1")
    assert server.names("by/environment") == ["by/environment/x"]


@pytest.mark.one_in(2)
def test_a_store_that_takes_its_time(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slower than the 3-second timeout of AWS's library; the timeout can be set in the URI or in the environment."""
    monkeypatch.setattr(object_store, "ATTEMPTS", 1)
    server.faults = Faults(slow=1)
    server.faults.slow_s = 3.5
    open_store(server.uri("slow")).put("one", b"x")
    found = open_store(server.uri("slow")).find("one")
    assert found is not None
    assert found.nbytes == 1
    hasty = open_store(server.uri("slow") + "&request_timeout=1")
    with pytest.raises(StateError, match=r"cannot look up .* the last 1 seconds"):
        hasty.find("one")
    monkeypatch.setenv("DOVETAIL_S3_REQUEST_TIMEOUT", "1")
    with pytest.raises(StateError, match=r"cannot look up .* the last 1 seconds"):
        open_store(server.uri("slow/by/environment")).find("one")
    server.faults = Faults()


@pytest.mark.parametrize("value", ["0", "-1", "soon", "nan", "inf"])
@pytest.mark.parametrize("name", ["connect_timeout", "request_timeout"])
def test_timeouts_are_positive_seconds(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told = f"{name} .* is a positive number of seconds"
    with pytest.raises(InputError, match=told):
        open_store(f"s3://bucket/a?region=x&{name}={value}")
    monkeypatch.setenv(f"DOVETAIL_S3_{name.upper()}", value)
    with pytest.raises(InputError, match=told):
        open_store(f"s3://bucket/a?region={name}-{value}")


def _no_secrets(error: BaseException | None) -> None:
    while error is not None:
        for secret in (ACCESS_KEY, SECRET_KEY, "loopback%2Fsecret"):
            assert secret not in f"{error} {error!r}"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("/a/b?c=d@e", "/a/b?c=d@e"),
        ("a:b/c", "a:b/c"),
        ("file:/a/b", "file:/a/b"),
        ("s3://bucket/a@b/c", "s3://bucket/…"),
        ("s3://key:secret@bucket/a", "s3://…@bucket/a"),
        ("s3://key:sec%2Fret@bucket", "s3://…@bucket"),
        ("s3://key:sec/ret@bucket/a", "s3://…"),
        ("S3A://k:p@w@bucket/a?access_key=x&secret_key=y&flag", "S3A://…@bucket/a?…"),
        ("s3://host:9000/a@b", "s3://…"),
        ("abfss://box@account.dfs.core.windows.net/a", "abfss://box@account.dfs.core.windows.net/a"),
        ("abfss://box:pass@account.dfs.core.windows.net/a", "abfss://box:…@account.dfs.core.windows.net/a"),
        ("gs://bucket/a#token", "gs://bucket/a#…"),
        ("s3://k:SECRET#x@b/p", "s3://…"),
        ("s3:/k:SECRET@b/x", "s3://…"),
        ("s3:k:SECRET@b/x", "…"),
        (" s3://k:SECRET@b/x", "…"),
        ("s3://k/SECRET@b/x", "s3://k/…"),
        ("hdfs:/a/b", "hdfs:/a/b"),
        ("grpc://u:SECRET/y@host", "grpc://…"),
        ("grpc://host/?token=SECRET", "grpc://host/?…"),
        ("grpc+tls://[::1]:8815", "grpc+tls://[::1]:8815"),
        ("hdfs://name@node:8020/a?kerb_ticket=/tmp/x", "hdfs://…@node:8020/a?…"),
    ],
)
def test_secrets_are_not_shown(given: str, shown: str) -> None:
    assert redacted(given) == shown


def test_secrets_are_not_in_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "from-the-environment")
    uri = "s3://AKIA1:sec%2Fret@bucket/a?session_token=token-1"
    text = f"Cannot parse URI: '{uri}': AKIA1 sec/ret sec%2Fret token-1 from-the-environment"
    assert without_secrets(text, uri) == "Cannot parse URI: 's3://…@bucket/a?…': … … … … …"


def test_stores_do_not_show_secrets(server: S3Server) -> None:
    store = open_store(server.uri("a"))
    for shown in (str(store), repr(store), str(store / "b"), f"{store.parent}"):
        assert SECRET_KEY not in shown
        assert ACCESS_KEY not in shown
    with pytest.raises(InputError, match=r"^gopher://…@host/x: gopher is not a known file system"):
        open_store("gopher://user@host/x")
    with pytest.raises(InputError, match="cannot be read") as failure:
        open_store(f"gs://user:{ACCESS_KEY}@bu cket/%?x={ACCESS_KEY}")
    _no_secrets(failure.value)
