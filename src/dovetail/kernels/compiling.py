"""The decorator for all kernels, and the cache for their machine code.

Compiling takes seconds, loading from the cache a fraction of a second. The cache consists of pickles, so it is in a
directory that no other user can write to; otherwise there is no cache. Numba raises an error if the cache cannot be
written, so the directory is tested first. Machine code is found by the contents of the sources: another environment or
checkout with the same kernels can use it, and a kernel is compiled again when a kernel that it calls has changed. Code
that no process has used for a month is removed.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib
import importlib.util
import logging
import os
import pkgutil
import re
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import numba
from numba.core import event
from numba.core.caching import UserProvidedCacheLocator

from dovetail.core.directories import check_contents, private_directory, user_cache
from dovetail.errors import InputError

F = TypeVar("F", bound=Callable[..., Any])

log = logging.getLogger("dovetail.kernels")

UNUSED_SECONDS = 30 * 24 * 3600  # after this time machine code is removed


def _find_cache() -> tuple[Path | None, str]:
    """A private directory that Numba can write to; if there is none, the reason."""
    objections = []
    for path, temporary in _candidates():
        try:
            directory = private_directory(path)
            check_contents(directory)
            tempfile.TemporaryFile(dir=directory).close()
            if temporary:
                _lock(directory)
            return directory, ""
        except (InputError, OSError) as error:
            objections.append(str(error))
    return None, " ".join(objections)


def _candidates() -> Iterator[tuple[Path, bool]]:
    """The directory that the user has set; otherwise one in the user's cache, then a temporary one."""
    named, cache = os.environ.get("NUMBA_CACHE_DIR"), user_cache()
    if named:
        yield Path(named).absolute() / "dovetail", False
        return
    if cache is not None:
        yield cache / "dovetail" / "numba", False
    yield Path(tempfile.gettempdir()) / f"dovetail-numba-{os.geteuid()}", True


def _lock(directory: Path, how: int = fcntl.LOCK_SH) -> int:
    """Keeps systemd from removing the directory while this process runs; afterwards another user could create it."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, how | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise
    return handle


_directory, _objections = _find_cache()
if _directory is None:
    log.warning(
        "kernels are not cached, so every process compiles them again, which takes seconds. "
        "Set NUMBA_CACHE_DIR to a directory of your own. %s",
        _objections,
    )
_setting = threading.Lock()
_kernels: list[Any] = []


@contextmanager
def _numba_settings(**settings: str) -> Iterator[None]:
    """Change settings of Numba temporarily: other libraries keep theirs."""
    with _setting:
        before = {name: getattr(numba.config, name) for name in settings}
        try:
            for name, value in settings.items():
                setattr(numba.config, name, value)
            yield
        finally:
            for name, value in before.items():
                setattr(numba.config, name, value)


class CacheByContents(UserProvidedCacheLocator):
    """Numba names a cache directory by the path of a source, and checks only that file for changes.

    The machine code of a kernel contains that of the kernels it calls, which may be in other files.
    """

    @classmethod
    def get_suitable_cache_subpath(cls, py_file: str) -> str:
        directory = Path(py_file).parent
        name = f"{directory.name}_{_digest(directory)}"
        assert _directory is not None
        _keep(_directory / name)
        return name


@cache
def _keep(directory: Path) -> None:
    """Mark machine code as used until this process ends. The first process of a version removes unused code."""
    with suppress(OSError):
        is_new = not directory.exists()
        directory.mkdir(mode=0o700, exist_ok=True)
        _lock(directory)
        os.utime(directory)
        if is_new:
            _remove_unused(directory.parent)


def _remove_unused(cache: Path) -> None:
    for directory in cache.iterdir():
        if not re.fullmatch(r"\w+_[0-9a-f]{32}", directory.name):
            continue
        with suppress(OSError):
            if time.time() - directory.lstat().st_mtime > UNUSED_SECONDS:
                handle = _lock(directory, fcntl.LOCK_EX)
                try:
                    shutil.rmtree(directory)
                finally:
                    os.close(handle)


@cache
def _digest(directory: Path) -> str:
    """A digest of all sources in the directory, and of all kernels of this package."""
    digest = hashlib.sha256()
    for source in sorted({*directory.glob("*.py"), *Path(__file__).parent.glob("*.py")}):
        digest.update(f"{source.name} {source.stat().st_size}\n".encode() + source.read_bytes())
    return digest.hexdigest()[:32]


def kernel(function: F) -> F:
    """Compile on first call; release the GIL; cache the machine code between processes."""
    if _directory is None:
        compiled = numba.njit(function, nogil=True, error_model="numpy")
    else:
        # Only in this directory: Numba would try others, which have not been checked.
        with _numba_settings(CACHE_DIR=str(_directory), CACHE_LOCATOR_CLASSES=f"{__name__}.{CacheByContents.__name__}"):
            compiled = numba.njit(function, cache=True, nogil=True, error_model="numpy")
    _kernels.append(compiled)
    return cast(F, compiled)


def _load_numba() -> None:
    """Load the part of Numba that every kernel needs, without SciPy.

    Numba imports scipy.linalg there, only to check whether it is installed; this takes a third of a second. Functions
    that use linear algebra import it themselves.
    """
    if getattr(numba.config, "DISABLE_JIT", False) or "scipy.linalg" in sys.modules:
        return
    linalg: Any = importlib.import_module("numba.np.linalg")
    ensure_blas = getattr(linalg, "ensure_blas", None)
    if ensure_blas is None:
        return
    linalg.ensure_blas = _find_scipy
    try:
        importlib.import_module("numba.np.arraymath")
    finally:
        linalg.ensure_blas = ensure_blas
        arraymath: Any = sys.modules.get("numba.np.arraymath")
        if getattr(arraymath, "ensure_blas", None) is _find_scipy:
            arraymath.ensure_blas = ensure_blas


def _find_scipy() -> None:
    if importlib.util.find_spec("scipy") is None:
        raise ImportError("scipy is not installed")


_load_numba()


@contextmanager
def compiling_reported(report: Callable[[bool], object]) -> Iterator[None]:
    """Call `report` with True when compiling a kernel starts in this context, and with False when it is done.

    Loading from the cache is not reported. Kernels that a kernel calls are compiled within it.
    """
    listener = _Listener(report)
    with event.install_listener("numba:compile", listener):
        yield


class _Listener(event.Listener):
    def __init__(self, report: Callable[[bool], object]) -> None:
        self._report, self._depth = report, 0

    def on_start(self, _: event.Event) -> None:
        self._depth += 1
        if self._depth == 1:
            self._report(True)

    def on_end(self, _: event.Event) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._report(False)


class Cache(NamedTuple):
    """Where this process keeps machine code, and for how many kernels."""

    directory: str | None
    objections: str  # why there is no directory
    kernels: int
    compiled: int


def inspect_cache() -> Cache:
    """The current state of the cache. Kernels are compiled per argument types; code for some types may be missing."""
    package = importlib.import_module("dovetail.kernels")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"dovetail.kernels.{module.name}")
    compiled = 0 if _directory is None else sum(map(_is_compiled, _kernels))
    return Cache(None if _directory is None else str(_directory), _objections, len(_kernels), compiled)


def _is_compiled(kernel: Any) -> bool:
    """Whether Numba's index has machine code of the kernel, in the directory for the current sources."""
    if not hasattr(kernel, "py_func"):  # NUMBA_DISABLE_JIT
        return False
    code = kernel.py_func.__code__
    source, python = Path(code.co_filename), f"py{sys.version_info[0]}{sys.version_info[1]}{sys.abiflags}"
    name = f"{source.stem}.{kernel.py_func.__qualname__}-{code.co_firstlineno}.{python}.nbi"
    return Path(kernel.stats.cache_path, name).is_file()
