"""The cache of a worker: bounded, private, verified, shared by processes."""

from __future__ import annotations

import multiprocessing
import os
import random
import stat
import zlib
from pathlib import Path

import pytest
from tests.full_disk import REASON, full_disk

from dovetail.errors import InputError, StateError
from dovetail.storage.local_cache import FORGOTTEN_S, LOCK, UNFINISHED, LocalCache
from dovetail.storage.store import DamagedError


def content(key: str, size: int = 1000) -> bytes:
    return random.Random(key).randbytes(size)


def read(cache: LocalCache, key: str, size: int = 1000) -> tuple[bytes, bool]:
    """Read an object. Returns it, and whether it had to be fetched."""
    data, fetched = content(key, size), []

    def fetch(file: object) -> None:
        fetched.append(1)
        file.write(data)  # type: ignore[attr-defined]

    with cache.open(key, size, zlib.crc32(data), fetch, mapped=True) as file:
        return file.read(), bool(fetched)


def test_an_object_is_fetched_once(tmp_path: Path) -> None:
    cache = LocalCache(tmp_path / "cache", 1 << 20)
    assert stat.S_IMODE(cache.directory.stat().st_mode) == 0o700
    assert read(cache, "a") == (content("a"), True)
    assert read(cache, "a") == (content("a"), False)
    assert read(LocalCache(tmp_path / "cache", 1 << 20), "a") == (content("a"), False)
    cache.forget("a")
    assert read(cache, "a") == (content("a"), True)


def test_what_was_not_used_goes_first(tmp_path: Path) -> None:
    cache = LocalCache(tmp_path, 10_000)
    for number in range(10):
        read(cache, f"{number}")
        os.utime(cache._entry(f"{number}"), (number, number))
    read(cache, "0")  # used again
    for number in range(10, 14):
        read(cache, f"{number}")
    assert read(cache, "0") == (content("0"), False)
    assert read(cache, "1") == (content("1"), True)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 10_000 + 1000


def test_more_than_the_limit_is_readable(tmp_path: Path) -> None:
    cache = LocalCache(tmp_path, 10_000)
    data = content("a", 50_000)
    mapped = cache.open("a", len(data), zlib.crc32(data), lambda file: file.write(data), mapped=True)  # type: ignore[arg-type, return-value]
    read(cache, "b")
    assert mapped.read() == data


@pytest.mark.parametrize("damage", ["cut", "flip", "empty"])
def test_a_damaged_entry_is_fetched_again(tmp_path: Path, damage: str) -> None:
    cache = LocalCache(tmp_path, 1 << 20)
    read(cache, "a")
    path = cache._entry("a")
    data = bytearray(path.read_bytes())
    data[500] ^= 1
    path.write_bytes({"cut": data[:400], "flip": data, "empty": b""}[damage])
    assert read(LocalCache(tmp_path, 1 << 20), "a") == (content("a"), True)


def test_a_damaged_object_is_an_error(tmp_path: Path) -> None:
    cache = LocalCache(tmp_path, 1 << 20)
    with pytest.raises(DamagedError):
        cache.open("a", 1000, 1, lambda file: file.write(content("a")), mapped=True)  # type: ignore[arg-type, return-value]
    assert not list(tmp_path.glob(f"{UNFINISHED}*"))


def test_a_missing_object_stays_missing(tmp_path: Path) -> None:
    def fetch(file: object) -> None:
        raise FileNotFoundError("it is missing")

    with pytest.raises(FileNotFoundError, match="it is missing"):
        LocalCache(tmp_path, 1 << 20).open("a", 1000, 1, fetch, mapped=True)
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    cache = LocalCache(tmp_path, 1 << 20)
    with pytest.raises(StateError, match=rf"{REASON}\. Set DOVETAIL_CACHE_DIR"), full_disk():
        read(cache, "a")


def test_what_is_not_ours_stays(tmp_path: Path) -> None:
    """A user may name a directory with other files in it."""
    cache = LocalCache(tmp_path, 5000)
    for name in ("thesis.tex", f"{UNFINISHED}novel", "0" * 63):
        (tmp_path / name).write_bytes(b"x" * 10_000)
        os.utime(tmp_path / name, (0, 0))
    (tmp_path / ("0" * 64)).mkdir()
    for key in "abcdef":
        read(cache, key)
    assert {"thesis.tex", f"{UNFINISHED}novel", "0" * 63, "0" * 64} <= {path.name for path in tmp_path.iterdir()}


def test_forgotten_files_of_killed_processes_go(tmp_path: Path) -> None:
    cache = LocalCache(tmp_path, 5000)
    old, new = cache.unfinished(), cache.unfinished()
    for path in (old, new):
        path.write_bytes(b"x" * 4000)
    past = old.stat().st_mtime - 2 * FORGOTTEN_S
    os.utime(old, (past, past))
    for key in "abcdef":
        read(cache, key)
    assert new.exists()
    assert not old.exists()


def test_a_directory_of_others_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(InputError, match="can be written to by others"):
        LocalCache(tmp_path / "open", 1 << 20)


def _use(directory: Path, seed: int) -> None:
    cache, rng = LocalCache(directory, 20_000), random.Random(seed)
    for _ in range(400):
        key = str(rng.randrange(40))
        assert read(cache, key)[0] == content(key)


def test_several_processes_share_it(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_use, args=(tmp_path, seed)) for seed in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    sizes = [path.stat().st_size for path in tmp_path.iterdir() if path.name != LOCK]
    assert sum(sizes) <= 20_000 + 3 * 20_000 // 16 + 3 * 1000
