"""The recording of a join: snapshots in memory, and as JSON lines in a file that other processes can follow.

    {"dovetail": 1, "join": ["orders", "payments"], "on": "l.id = r.order_id", …}       how it began
    {"t": 1.2, "phase": "arriving", "found": {"arriving": 812}, …}                      a few times a second
    {"t": 9.7, "outcome": "done"}                                                       how it ended

A run reports snapshots at any time. A thread records the latest one periodically. Every line is appended by a single
call, so a reader sees whole lines, or a prefix of the last one. Object stores cannot append, so there the whole file is
put again periodically and at the end.
"""

from __future__ import annotations

import json
import math
import os
import stat
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from dovetail.core.addresses import scheme_of
from dovetail.core.directories import check_link
from dovetail.core.figures import SHOWN
from dovetail.core.metrics import Estimate, Moment, SourceState
from dovetail.errors import DovetailError, InputError
from dovetail.monitoring.snapshot import DONE, FAILED, RUNNING, STOPPED, Heading, Noted, RunSnapshot, take_snapshot
from dovetail.visible import visible


def to_line(second: float, moment: Moment) -> dict[str, Any]:
    line: dict[str, Any] = {
        "t": round(second, 3),
        "phase": moment.phase,
        "found": dict(moment.found),
        "seconds": {phase: round(seconds, 3) for phase, seconds in moment.seconds.items()},
        "sources": [[source.name, source.rows, source.state] for source in moment.sources],
    }
    if moment.resident_rows is not None:
        line["resident_rows"] = moment.resident_rows
    if moment.spilled_rows is not None:
        line["spilled_rows"] = moment.spilled_rows
    line |= moment.figures
    if moment.objection is not None:
        line["objection"] = moment.objection
    if moment.estimate is not None:
        line["estimate"] = [float(value) for value in moment.estimate]
    return line


def from_line(line: Mapping[str, Any]) -> tuple[float, Moment]:
    """Parse a line. Raises ValueError, TypeError or KeyError if it is not a snapshot."""
    estimate, objection = line.get("estimate"), line.get("objection")
    moment = Moment(
        str(line["phase"]),
        {str(phase): int(count) for phase, count in line.get("found", {}).items()},
        {str(phase): _number(seconds) for phase, seconds in line.get("seconds", {}).items()},
        _count(line.get("resident_rows")),
        _count(line.get("spilled_rows")),
        tuple(SourceState(str(name), int(rows), str(state)) for name, rows, state in line.get("sources", ())),
        None if estimate is None else Estimate(*map(_number, estimate)),
        None if objection is None else str(objection),
        {figure.name: int(line[figure.name]) for figure in SHOWN if figure.name in line},
    )
    return _number(line["t"]), moment


def _count(value: Any) -> int | None:
    return None if value is None else int(value)


def _number(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{value} is not a number")
    return number


S = TypeVar("S")

FORMAT = 1
EVERY_S = 0.1  # interval of snapshots at first; longer in long runs
RARELY_S = 2.0
SHARE = 1e-3  # of the time so far
PUT_S, PUT_SHARE = 2.0, 0.02  # minimum time between two puts into a store; and as a share of the time so far
ALIVE_S = 1.0  # maximum time between lines, so that a reader knows that the run is alive
MARK = b'{"dovetail":'


class Recording:
    """Records what a join does over time. Without a path it is kept in memory only. A notebook shows it as a chart.

    Example:
        >>> import dovetail, pyarrow as pa
        >>> table, recording = pa.table({"k": range(1000)}), dovetail.Recording()
        >>> for step in dovetail.progressive(table, table, "l.k = r.k", record=recording):
        ...     pass
        >>> recording.outcome, recording.latest.results
        ('done', 1000)
    """

    def __init__(
        self, path: str | os.PathLike[str] | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.path = None if path is None or _is_object(path) else Path(path)
        self._object = StoredLines(path) if path is not None and _is_object(path) else None
        self.heading: Heading | None = None
        self.moments: list[Noted] = []
        self.outcome = RUNNING
        self.error = ""
        self._clock = clock
        self._began = 0.0
        self._latest = Moment("preparing")
        self._written_at = 0.0
        self._file: int | None = None
        self._noting: threading.Thread | None = None
        self._over = threading.Event()

    def __repr__(self) -> str:
        if self.heading is None:
            return "<Recording: not yet begun>"
        done = f"{self._latest.results:,} results in {self.seconds:.1f} s"
        return f"<Recording {visible(self.heading.title, one_line=True)}: {self.outcome}, {done}>"

    def _repr_html_(self) -> str:
        from dovetail.monitoring.notebook import run_html

        return "<p>not yet begun</p>" if self.heading is None else run_html(self.snapshot(), repr(self))

    @property
    def latest(self) -> Moment:
        """The latest snapshot, recorded or not."""
        return self._latest

    @property
    def seconds(self) -> float:
        """The duration of the run so far, or its total duration."""
        if self.heading is None or self.outcome != RUNNING:
            return self.moments[-1].second if self.moments else 0.0
        return self._clock() - self._began

    # Called by the run.

    def begin(self, heading: Heading, ago_s: float = 0.0) -> None:
        """Start the recording, now or as of some time ago."""
        if self.heading is not None:
            raise InputError("a recording holds one run. Use a new one for each run.")
        self._file = None if self.path is None else _open_recording(self.path)
        if self._object is not None:
            self._object.check_replaceable()
        self._began = self._clock() - ago_s
        began = heading.began or (datetime.now(UTC) - timedelta(seconds=ago_s)).isoformat(timespec="milliseconds")
        self.heading = Heading(**{**asdict(heading), "began": began})
        self._write({"dovetail": FORMAT, **asdict(self.heading)})
        self._note(0.0)

    def tell(self, moment: Moment) -> None:
        """Report a snapshot, from the thread of the join."""
        self._latest = moment

    def note(self) -> None:
        """Record the latest snapshot. If it has not changed, only its duration is extended."""
        self._note(self._clock() - self._began)

    def _note(self, now: float) -> None:
        moment = self._latest
        unchanged = len(self.moments) > 1 and self.moments[-1].moment is self.moments[-2].moment is moment
        if unchanged:
            self.moments[-1] = Noted(now, moment)
        else:
            self.moments.append(Noted(now, moment))
        if not unchanged or now >= self._written_at + ALIVE_S:
            self._written_at = now
            self._write(to_line(now, moment))

    def finish(self, outcome: str = DONE, error: str = "") -> None:
        """Record how the join ended, and stop recording."""
        self._over.set()
        if self._noting is not None:
            self._noting.join()
        self.note()
        self.outcome, self.error = outcome, error
        self._write({"t": round(self.seconds, 3), "outcome": outcome, **({"error": error} if error else {})})
        if self._object is not None:
            self._object.put()
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def start(self, heading: Heading, ago_s: float = 0.0) -> None:
        """Begin, and record snapshots in a thread until the recording is finished."""
        self.begin(heading, ago_s)
        self._noting = threading.Thread(target=self._keep_noting, name="dovetail-recording", daemon=True)
        self._noting.start()

    @contextmanager
    def running(self, heading: Heading) -> Iterator[None]:
        """Records from beginning to end, also if the run fails."""
        self.start(heading)
        outcome, error = DONE, ""
        try:
            yield
        except (GeneratorExit, KeyboardInterrupt):
            outcome = STOPPED
            raise
        except BaseException as failure:
            outcome, error = FAILED, f"{type(failure).__name__}: {failure}"
            raise
        finally:
            self.finish(outcome, error)

    def of(self, steps: Iterable[S], heading: Heading) -> Iterator[S]:
        """The steps, recorded while they are consumed."""
        with self.running(heading):
            yield from steps

    def _keep_noting(self) -> None:
        while not self._over.wait(min(RARELY_S, max(EVERY_S, SHARE * self.seconds))):
            self.note()

    def _write(self, fields: dict[str, Any]) -> None:
        line = (json.dumps(fields, ensure_ascii=False) + "\n").encode()
        if self._file is not None:
            os.write(self._file, line)
        if self._object is not None:
            self._object.add(line, self.seconds)

    # Called by readers.

    @property
    def name(self) -> str:
        """The location, for messages."""
        return str(self.path if self._object is None else self._object)

    def snapshot(self) -> RunSnapshot:
        """The current snapshot."""
        return take_snapshot(self, self.moments[:])

    def glance(self) -> RunSnapshot:
        """The former name of `snapshot`."""
        warnings.warn("Recording.glance is now Recording.snapshot.", DeprecationWarning, stacklevel=2)
        return self.snapshot()

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Recording:
        """Read a recording from a file. `refresh` reads the lines that follow."""
        recording = Followed(path)
        recording.refresh()
        if recording.heading is None:
            raise InputError(f"{recording.name} is not a recording of a join, or nothing has been recorded yet.")
        return recording

    def refresh(self) -> None:
        """Read what was written since. Does nothing if the run is in this process."""

    @property
    def silent_s(self) -> float:
        """The time since the last write, if the run has not ended."""
        return 0.0


class Followed(Recording):
    """A recording written by another process."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path)
        self._at = 0  # bytes read so far
        self._lock = threading.Lock()

    @property
    def seconds(self) -> float:
        return self.moments[-1].second if self.moments else 0.0

    @property
    def silent_s(self) -> float:
        if self.outcome != RUNNING:
            return 0.0
        if self._object is not None:
            return self._object.silent_s()
        assert self.path is not None
        try:
            return max(0.0, time.time() - self.path.stat().st_mtime)
        except OSError:
            return 0.0

    def refresh(self) -> None:
        with self._lock:
            new = self._read_on() if self._object is None else self._read_object(self._object)
            whole = new[: new.rfind(b"\n") + 1]
            self._at += len(whole)
            for line in whole.splitlines():
                self._take(line)

    def _read_on(self) -> bytes:
        """The bytes appended to the file since."""
        assert self.path is not None
        try:
            with self.path.open("rb") as file:
                if os.fstat(file.fileno()).st_size < self._at:
                    self._forget()
                file.seek(self._at)
                return file.read()
        except FileNotFoundError:  # not written yet
            return b""
        except OSError as error:
            raise InputError(f"{self.path} cannot be read: {error.strerror}.") from error

    def _read_object(self, lines: StoredLines) -> bytes:
        found = lines.get()
        if len(found) < self._at:
            self._forget()
        return found[self._at :]

    def _forget(self) -> None:
        """Start over: another run has begun in the same file."""
        self._at, self.heading, self.moments = 0, None, []
        self.outcome, self.error = RUNNING, ""

    def _take(self, line: bytes) -> None:
        """Malformed lines are skipped: the disk may have been full."""
        try:
            fields = json.loads(line)
            if self.heading is None:
                self.heading = _heading(fields)
            elif "outcome" in fields:
                self.outcome, self.error = str(fields["outcome"]), str(fields.get("error", ""))
            else:
                second, self._latest = from_line(fields)
                self.moments.append(Noted(second, self._latest))
        except (ValueError, TypeError, KeyError, AttributeError):
            return


def _is_object(path: str | os.PathLike[str]) -> bool:
    return scheme_of(path) != ""


class StoredLines:
    """A recording in an object store. Failures are left to readers to notice: no join fails because of them."""

    def __init__(self, uri: str | os.PathLike[str]) -> None:
        from dovetail.storage.open_store import open_store  # imports Arrow

        place = open_store(uri)
        self._store, self._name = place.parent, place.name
        self._lines = b""
        self._next_put_s = 0.0

    def __str__(self) -> str:
        return str(self._store / self._name)

    def check_replaceable(self) -> None:
        if self.get()[: len(MARK)] not in (b"", MARK):
            raise InputError(f"{self} exists and is not a recording: give another name.")

    def add(self, line: bytes, second: float) -> None:
        self._lines += line
        if second >= self._next_put_s:
            self._next_put_s = second + max(PUT_S, PUT_SHARE * second)
            self.put()

    def put(self) -> None:
        with suppress(DovetailError):
            self._store.put(self._name, self._lines)

    def get(self) -> bytes:
        try:
            return self._store.get(self._name) or b""
        except DovetailError as error:
            raise InputError(f"{self} cannot be read: {error}") from error

    def silent_s(self) -> float:
        found = None
        with suppress(DovetailError):
            found = self._store.find(self._name)
        return 0.0 if found is None else max(0.0, time.time() - found.written)


def _open_recording(path: Path) -> int:
    """A file for a new recording. It may replace only an older recording."""
    check_link(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK, 0o644)
        if not stat.S_ISREG(os.fstat(handle).st_mode) or os.pread(handle, len(MARK), 0) not in (b"", MARK):
            os.close(handle)
            raise InputError(f"{path} exists and is not a recording: give another file.")
        os.ftruncate(handle, 0)
        return handle
    except OSError as error:
        raise InputError(f"{path} cannot be written to: {error.strerror}.") from error


def is_recording(path: Path) -> bool:
    """Whether it is a recording, or empty."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(MARK)) in (b"", MARK)


def _heading(values: dict[str, Any]) -> Heading:
    if values["dovetail"] != FORMAT:
        raise ValueError("another format")
    known = {f.name: values[f.name] for f in fields(Heading) if f.name in values}
    memory = known.pop("memory_bytes", None)
    names = tuple(str(name) for name in known.pop("join", ()))
    batched = bool(known.pop("batched", False))
    return Heading(
        **{name: str(value) for name, value in known.items()},
        join=names,
        memory_bytes=None if memory is None else int(memory),
        batched=batched,
    )


SUFFIX = ".jsonl"


class Catalogue:
    """Runs by name. A name is looked up in a listing, and never used as a path."""

    def __init__(self, what: Recording | str | os.PathLike[str]) -> None:
        self._runs: dict[str, Recording] = {}
        self._directory: Path | None = None
        if isinstance(what, Recording):
            self._runs["run"] = what
            return
        if _is_object(what):
            self._runs["run"] = Followed(what)
            return
        path = Path(what)
        if path.is_dir():
            self._directory = path
        elif path.exists() and not is_recording(path):
            raise InputError(f"{path} is not a recording of a join.")
        else:  # it may be written at any time
            self._runs[path.name] = Followed(path)

    @property
    def single(self) -> bool:
        return self._directory is None

    def runs(self) -> dict[str, Recording]:
        """All current runs, latest first."""
        if self._directory is not None:
            for path in self._directory.glob(f"*{SUFFIX}"):
                if path.name not in self._runs and path.is_file() and not path.is_symlink():
                    self._runs[path.name] = Followed(path)
        for run in self._runs.values():
            with suppress(InputError):  # keep what could be read
                run.refresh()
        known = {name: run for name, run in self._runs.items() if run.heading is not None or self.single}
        return dict(
            sorted(known.items(), key=lambda item: item[1].heading.began if item[1].heading else "", reverse=True)
        )
