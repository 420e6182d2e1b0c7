"""The cache directory of kernels: Numba's index files are pickles, so other users must not be able to create them.

The attacks are real: pickles that run code when loaded, under every name that a process may use for its cache, in
directories that another user owns or can write to. The attacked process then calls a kernel.
"""

from __future__ import annotations

import fcntl
import json
import os
import pickle
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dovetail.kernels import compiling

MALLORY = 54321  # a user id that does not exist here
pytestmark = pytest.mark.skipif(
    bool({"NUMBA_DISABLE_JIT", "NUMBA_BOUNDSCHECK"} & os.environ.keys()),
    reason="the process under attack has neither setting: the tests of compiled kernels cover it",
)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")

# Forks for every line, so that tests do not wait for imports; the child sets up the cache like a new process.
VICTIM = """
import fcntl, json, os, sys, tempfile
import numpy as np
import dovetail.kernels.hashing

dovetail.kernels.hashing.mix(np.uint64(7))  # what compiling imports may be where another user cannot read

for line in sys.stdin:
    if child := os.fork():
        if os.waitpid(child, 0)[1]:
            print("null", flush=True)
        continue
    wanted = json.loads(line)
    os.environ.clear()
    os.environ.update(wanted["environment"])
    if wanted["user"] is not None:
        os.setgroups([])
        os.setgid(wanted["user"])
        os.setuid(wanted["user"])
    os.dup2(os.open(wanted["log"], os.O_WRONLY | os.O_CREAT), 2)
    tempfile.tempdir = None
    del sys.modules["dovetail.kernels.compiling"], sys.modules["dovetail.kernels.hashing"]
    from dovetail.kernels.hashing import mix
    mix(np.uint64(7))
    cache, locked = mix.stats.cache_path, False
    if cache is not None:
        try:
            fcntl.flock(os.open(os.path.dirname(cache), os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            locked = True
    print(json.dumps([cache, locked]), flush=True)
    os._exit(0)
"""


class Outcome(NamedTuple):
    cache: Path | None  # the directory in which the kernel was cached
    locked: bool
    log: str


Victim = Callable[[dict[str, str], int | None, Path], Outcome]
CallKernel = Callable[..., Outcome]


@pytest.fixture(scope="module")
def victim() -> Iterator[Victim]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    with subprocess.Popen(
        [sys.executable, "-c", VICTIM], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        questions, answers = process.stdin, process.stdout
        assert questions is not None
        assert answers is not None

        def ask(environment: dict[str, str], user: int | None, log: Path) -> Outcome:
            questions.write(json.dumps({"environment": environment, "user": user, "log": str(log)}) + "\n")
            questions.flush()
            answer = json.loads(answers.readline())
            assert answer is not None, log.read_text()
            cache, locked = answer
            return Outcome(Path(cache).parent if cache else None, locked, log.read_text())

        yield ask
        questions.close()


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that all users can access, unlike those of pytest."""
    directory = Path(tempfile.mkdtemp(prefix="dovetail-test-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def call_kernel(victim: Victim, place: Path) -> CallKernel:
    """Call a kernel in a separate process, with its home and temporary directories in `place`."""
    temporary, log = place / "tmp", place / "log"
    temporary.mkdir()
    temporary.chmod(0o1777)
    log.touch()
    log.chmod(0o666)

    def call(user: int | None = None, **environment: str | Path) -> Outcome:
        settings = {"HOME": place / "home", "TMPDIR": temporary} | environment
        return victim({name: str(value) for name, value in settings.items() if value}, user, log)

    return call


class Payload:
    """Leaves a trace when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self._trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return os.makedirs, (str(self._trace), 0o700, True)


class Trap(NamedTuple):
    """Planted files, and the trace that they leave when loaded."""

    trace: Path

    @property
    def sprung(self) -> bool:
        return self.trace.exists()


@pytest.fixture(scope="module")
def index_name(victim: Victim, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The path of the kernel's index file in a cache directory."""
    place = tmp_path_factory.mktemp("named")
    cache = victim({"NUMBA_CACHE_DIR": str(place)}, None, place / "log").cache
    assert cache is not None
    (index,) = cache.rglob("hashing.mix-*.nbi")
    return index.relative_to(cache)


@pytest.fixture
def plant(index_name: Path, place: Path) -> Callable[..., Trap]:
    """Put a malicious index file into a cache directory, as its owner or as another user."""

    def plant(directory: Path, owner: int | None = None) -> Trap:
        trap = Trap(place / "trace")
        index = directory / index_name
        index.parent.mkdir(parents=True, exist_ok=True)
        index.write_bytes(pickle.dumps(Payload(trap.trace)))
        if owner is not None:
            for path in (directory, index.parent, index):
                os.chown(path, owner, owner)
        return trap

    return plant


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.one_in(2)
def test_the_trap_works(call_kernel: CallKernel, plant: Callable[..., Trap], place: Path) -> None:
    """A file planted in the user's own cache is executed; otherwise the tests below would prove nothing."""
    home = place / "home" / ".cache" / "dovetail" / "numba"
    assert call_kernel().cache == home
    trap = plant(home)
    call_kernel()
    assert trap.sprung


def test_private_and_used_again(call_kernel: CallKernel, place: Path) -> None:
    cache = call_kernel().cache
    assert cache == place / "home" / ".cache" / "dovetail" / "numba"
    assert mode_of(cache) == 0o700
    made = {path: path.stat().st_mtime_ns for path in cache.rglob("*.nb?")}
    assert len(made) == 2
    assert call_kernel() == (cache, False, "")
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("*.nb?")} == made


def test_cache_of_an_earlier_version_is_closed_to_others(call_kernel: CallKernel, place: Path) -> None:
    home = place / "home" / ".cache" / "dovetail" / "numba"
    home.mkdir(parents=True)
    home.chmod(0o755)
    assert call_kernel().cache == home
    assert mode_of(home) == 0o700


def test_without_a_home(call_kernel: CallKernel, place: Path) -> None:
    (place / "file").touch()  # a directory without write permission does not stop root
    cache, locked, _ = call_kernel(HOME=place / "file")
    assert cache == place / "tmp" / f"dovetail-numba-{os.geteuid()}"
    assert mode_of(cache) == 0o700
    assert locked  # otherwise it could be removed while in use, and recreated by another user


def test_relative_cache_home_is_passed_over(call_kernel: CallKernel, place: Path) -> None:
    assert call_kernel(XDG_CACHE_HOME="relative").cache == place / "home" / ".cache" / "dovetail" / "numba"


def test_named_by_the_user(call_kernel: CallKernel, place: Path) -> None:
    cache = call_kernel(NUMBA_CACHE_DIR=place / "named").cache
    assert cache == place / "named" / "dovetail"
    assert mode_of(cache) == 0o700


@needs_root
def test_as_a_user_without_home_and_name(call_kernel: CallKernel, place: Path) -> None:
    cache = call_kernel(user=MALLORY, HOME="").cache
    assert cache == place / "tmp" / f"dovetail-numba-{MALLORY}"
    assert cache.stat().st_uid == MALLORY
    assert mode_of(cache) == 0o700


def test_nothing_can_be_written(call_kernel: CallKernel, place: Path) -> None:
    (place / "file").touch()
    outcome = call_kernel(HOME=place / "file", XDG_CACHE_HOME=place / "file", NUMBA_CACHE_DIR=place / "file")
    assert outcome.cache is None
    assert "Set NUMBA_CACHE_DIR to a directory of your own" in outcome.log
    assert f"{place / 'file'} is not a directory" in outcome.log


@needs_root
def test_temporary_directory_taken_by_somebody_else(
    call_kernel: CallKernel, plant: Callable[..., Trap], place: Path
) -> None:
    (place / "file").touch()
    trap = plant(place / "tmp" / f"dovetail-numba-{os.geteuid()}", MALLORY)
    outcome = call_kernel(HOME=place / "file")
    assert outcome.cache is None
    assert not trap.sprung
    assert f"belongs to user {MALLORY}" in outcome.log


@pytest.mark.parametrize(
    ("which", "mode"),
    [
        ("home/.cache/dovetail/numba", 0o777),
        ("home/.cache/dovetail/numba", 0o770),
        ("tmp/dovetail-numba-{user}", 0o1777),
    ],
)
def test_cache_that_others_can_write_to(
    which: str, mode: int, call_kernel: CallKernel, plant: Callable[..., Trap], place: Path
) -> None:
    directory = place / which.format(user=os.geteuid())
    trap = plant(directory)
    directory.chmod(mode)
    (place / "file").touch()
    outcome = call_kernel(**{} if which.startswith("home") else {"HOME": place / "file"})
    assert outcome.cache != directory
    assert not trap.sprung


@pytest.mark.parametrize(("which", "mode"), [("", 0o777), ("named", 0o775), ("named/between", 0o777)])
def test_named_directory_that_others_can_change(
    which: str, mode: int, call_kernel: CallKernel, plant: Callable[..., Trap], place: Path
) -> None:
    """The directory itself or a parent: a user who can rename entries can replace the directory."""
    trap = plant(place / "named" / "between" / "dovetail")
    (place / which).chmod(mode)
    outcome = call_kernel(NUMBA_CACHE_DIR=place / "named" / "between")
    assert outcome.cache is None
    assert not trap.sprung
    assert f"{place / which} can be written to by others" in outcome.log


@needs_root
@pytest.mark.parametrize("which", ["named", "named/between", "named/between/dovetail"])
def test_named_directory_of_somebody_else(
    which: str, call_kernel: CallKernel, plant: Callable[..., Trap], place: Path
) -> None:
    trap = plant(place / "named" / "between" / "dovetail")
    os.chown(place / which, MALLORY, MALLORY)
    outcome = call_kernel(NUMBA_CACHE_DIR=place / "named" / "between")
    assert outcome.cache is None
    assert not trap.sprung
    assert f"{place / which} belongs to user {MALLORY}" in outcome.log


@pytest.mark.parametrize("writable", [False, True])
def test_link_in_place_of_the_cache(
    writable: bool, call_kernel: CallKernel, plant: Callable[..., Trap], place: Path
) -> None:
    trap = plant(place / "elsewhere")
    (place / "elsewhere").chmod(0o777 if writable else 0o700)
    (place / "named").mkdir()
    (place / "named" / "dovetail").symlink_to(place / "elsewhere")
    outcome = call_kernel(NUMBA_CACHE_DIR=place / "named")
    assert outcome.cache is None
    assert not trap.sprung
    assert f"{place / 'named' / 'dovetail'} is a link" in outcome.log


@needs_root
def test_link_of_somebody_else_on_the_way(call_kernel: CallKernel, plant: Callable[..., Trap], place: Path) -> None:
    trap = plant(place / "elsewhere" / "dovetail")
    (place / "named").symlink_to(place / "elsewhere")
    os.chown(place / "named", MALLORY, MALLORY, follow_symlinks=False)
    assert call_kernel(NUMBA_CACHE_DIR=place / "named").cache is None
    assert not trap.sprung


def test_link_of_ones_own_on_the_way(call_kernel: CallKernel, place: Path) -> None:
    (place / "disk").mkdir(0o700)
    (place / "home").mkdir()
    (place / "home" / ".cache").symlink_to("../disk")
    assert call_kernel().cache == place / "disk" / "dovetail" / "numba"


@needs_root
def test_files_of_somebody_else_in_a_private_cache(
    call_kernel: CallKernel, plant: Callable[..., Trap], index_name: Path, place: Path
) -> None:
    """They were created before the cache was private."""
    home = place / "home" / ".cache" / "dovetail" / "numba"
    trap = plant(home)
    home.chmod(0o700)
    os.chown(home / index_name, MALLORY, MALLORY)
    outcome = call_kernel()
    assert outcome.cache == place / "tmp" / f"dovetail-numba-{os.geteuid()}"
    assert not trap.sprung


INSPECT = """
import json, sys
import numpy as np
from dovetail.kernels.compiling import inspect_cache
from dovetail.kernels.hashing import mix

before = inspect_cache()
mix(np.uint64(7))
print(json.dumps([before, inspect_cache()]))
"""


def test_what_is_said_of_the_cache(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INSPECT],
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    (directory, objections, kernels, none), (*_, one) = json.loads(done.stdout)
    assert (directory, objections) == (str(tmp_path / "dovetail"), "")
    assert (none, one) == (0, 1)
    assert kernels > 50


def test_a_first_join_does_not_import_scipy() -> None:
    """Numba checks whether SciPy is installed; other code compiled with SciPy still works."""
    program = """
import sys
import pyarrow as pa
import dovetail
table = pa.table({"k": [1, 2]})
assert dovetail.count(table, table, "l.k < r.k") == 1
assert "scipy.linalg" not in sys.modules, "imported"
import numba, numpy as np
from numba.np import arraymath, linalg
assert arraymath.ensure_blas is linalg.ensure_blas
if arraymath._HAVE_BLAS:
    assert numba.njit(lambda a: np.dot(a, a))(np.ones(3)) == 3
"""
    subprocess.run([sys.executable, "-c", program], check=True)


PACKAGE = {
    "inner.py": "@kernel\ndef inner(x):\n    return x + {added}\n",
    "outer.py": "from {package}.inner import inner\n\n\n@kernel\ndef outer(x):\n    return 2 * inner(x)\n",
}
CALL = "from {package}.outer import outer; print(outer(1), sum(outer.stats.cache_hits.values()))"


def test_machine_code_follows_the_contents_of_all_kernels(tmp_path: Path) -> None:
    """Identical kernels elsewhere are not compiled again; a changed kernel is never used from an old cache."""

    def call(place: str, added: int) -> tuple[int, int]:
        directory = tmp_path / place / "some_kernels"
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in PACKAGE.items():
            source = "from dovetail.kernels.compiling import kernel\n" + text.format(
                added=added, package="some_kernels"
            )
            (directory / name).write_text(source)
        done = subprocess.run(
            [sys.executable, "-c", CALL.format(package="some_kernels")],
            cwd=tmp_path / place,
            env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": ""},
            capture_output=True,
            text=True,
            check=True,
        )
        result, hits = map(int, done.stdout.split())
        return result, hits

    assert call("here", 1) == (4, 0)
    assert call("here", 5) == (12, 0)
    assert call("there", 1) == (4, 1)


def test_machine_code_that_nobody_uses_is_removed(tmp_path: Path) -> None:
    """The first process of another version removes it, except files that are in use, recently used, or foreign."""
    month_ago = time.time() - compiling.UNUSED_SECONDS - 60
    names = {name: f"kernels_{digit * 32}" for name, digit in (("old", "a"), ("used", "b"), ("recent", "c"))}
    names |= {"other": "other", "link": f"kernels_{'d' * 32}"}
    target = tmp_path / "elsewhere"
    cache = tmp_path / "cache"
    for directory in (target, *(cache / name for key, name in names.items() if key != "link")):
        directory.mkdir(parents=True)
        (directory / "code.nbi").write_bytes(b"code")
    (cache / names["link"]).symlink_to(target)
    for name in ("old", "used", "other", "link"):
        os.utime(cache / names[name], (month_ago, month_ago), follow_symlinks=False)
    handle = os.open(cache / names["used"], os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_SH)
    compiling._keep(cache / f"kernels_{'e' * 32}")
    os.close(handle)
    left = {path.name for path in cache.iterdir()}
    assert left == {name for key, name in names.items() if key != "old"} | {f"kernels_{'e' * 32}"}
    assert (target / "code.nbi").exists()
