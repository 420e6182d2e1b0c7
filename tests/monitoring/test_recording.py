import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.monitoring.runs import Clock
from tests.sources.scripted import Gate, Scripted
from tests.storage.s3_server import SECRET_KEY, Faults, s3_server

import dovetail
from dovetail.core.metrics import Estimate, Moment, SourceState
from dovetail.core.rows import Arrival, End, Side
from dovetail.errors import InputError
from dovetail.execution.in_process import Sizes
from dovetail.monitoring.recording import Catalogue, Recording, from_line, to_line
from dovetail.monitoring.snapshot import DONE, FAILED, RUNNING, STOPPED, Heading
from dovetail.sources.parquet_files import parquet_source
from dovetail.storage.open_store import open_store

HEADING = Heading("l.k = r.k", ("orders", "payments"), "shj", "join  inner")
ROWS = pa.table({"k": [i % 5 for i in range(40)]})


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_moment_goes_to_a_line_and_back() -> None:
    sources = (SourceState("<b>", 3, "stalled"), SourceState("r", 4, "ended"))
    moment = Moment("reactive", {"arriving": 2}, {"arriving": 0.5}, 7, 8, sources, Estimate(9.0, 8.0, 10.0, 0.95))
    for each in (moment, Moment("preparing"), Moment("arriving", objection="sorted")):
        assert from_line(json.loads(json.dumps(to_line(1.25, each)))) == (1.25, each)
    assert moment.results == 2


def test_the_last_moment_is_noted(tmp_path: Path) -> None:
    clock, path = Clock(), tmp_path / "deep" / "run.jsonl"
    recording = Recording(path, clock=clock)
    recording.begin(HEADING)
    for second in range(1, 4):
        recording.tell(Moment("arriving", {"arriving": second - 1}))
        recording.tell(Moment("arriving", {"arriving": second}))  # the previous one was not read
        clock.now = float(second)
        recording.note()
    recording.finish()
    assert [(noted.second, noted.moment.results) for noted in recording.moments[:4]] == [(0, 0), (1, 1), (2, 2), (3, 3)]
    first, *rest = lines(path)
    assert first["dovetail"] == 1
    assert first["join"] == ["orders", "payments"]
    assert rest[-1] == {"t": 3.0, "outcome": "done"}
    again = Recording.read(path)
    assert again.heading == recording.heading
    assert [noted.moment for noted in again.moments[:4]] == [noted.moment for noted in recording.moments[:4]]
    assert (again.outcome, again.seconds) == (DONE, 3.0)


def test_silence_is_one_long_moment_and_a_line_each_second(tmp_path: Path) -> None:
    clock, path = Clock(), tmp_path / "run.jsonl"
    recording = Recording(path, clock=clock)
    recording.begin(HEADING)
    recording.tell(Moment("waiting", {"arriving": 5}))
    for tenth in range(1, 101):
        clock.now = tenth / 10
        recording.note()
    recording.finish()
    assert len(recording.moments) == 3
    assert recording.moments[-1].second == 10.0
    assert 10 <= len(lines(path)) <= 15


def test_a_reader_sees_whole_lines_only(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    recording = Recording(path)
    recording.begin(HEADING)
    recording.finish()
    whole = path.read_bytes()
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        if b"\n" not in whole[:cut]:
            with pytest.raises(InputError, match="not a recording"):
                Recording.read(path)
        else:
            assert Recording.read(path).outcome == (DONE if cut == len(whole) else RUNNING)
    path.write_bytes(whole[: whole.index(b"\n") + 1])
    followed = Recording.read(path)
    for cut in range(whole.index(b"\n"), len(whole) + 1, 5):
        path.write_bytes(whole[: max(cut, 1 + whole.index(b"\n"))])
        followed.refresh()
    path.write_bytes(whole)
    followed.refresh()
    assert (followed.outcome, len(followed.moments)) == (DONE, 2)


def test_lines_that_make_no_sense_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    recording = Recording(path)
    recording.begin(HEADING)
    nonsense = ['{"t": NaN, "phase": "x"}', "[1]", "3", '{"t": 1}', "}", '{"t": "a", "phase": 1}', "\xff", "null"]
    nonsense += ['{"t": 1, "phase": "x", "found": [1]}', '{"t": 1, "phase": "x", "sources": [["a"]]}']
    with path.open("a") as file:
        file.write("\n".join(nonsense) + "\n")
    recording.finish()
    assert len(Recording.read(path).moments) == 2


def test_a_new_run_in_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    first = Recording(path)
    first.begin(HEADING)
    for number in range(20):
        first.tell(Moment("arriving", {"arriving": number}))
        first.note()
    first.finish()
    followed = Recording.read(path)
    Recording(path).begin(Heading("l.x < r.x"))
    followed.refresh()
    assert followed.heading is not None
    assert (followed.heading.on, followed.outcome, len(followed.moments)) == ("l.x < r.x", RUNNING, 1)


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("a,b\n")
    refused = Recording(tmp_path / "data.csv")
    with pytest.raises(InputError, match="is not a recording"):
        refused.begin(HEADING)
    assert refused.heading is None
    assert (tmp_path / "data.csv").read_text() == "a,b\n"
    with pytest.raises(InputError, match="cannot be written"):
        Recording(tmp_path).begin(HEADING)
    recording = Recording()
    recording.begin(HEADING)
    with pytest.raises(InputError, match="holds one run"):
        recording.begin(HEADING)


def test_a_fifo_or_a_link_of_somebody_else_is_no_recording(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.jsonl")
    signal.alarm(20)  # instead of hanging
    try:
        with pytest.raises(InputError, match="is not a recording"):
            Recording(tmp_path / "fifo.jsonl").begin(HEADING)
        with pytest.raises(InputError, match="is not a recording"):
            Catalogue(tmp_path / "fifo.jsonl")
    finally:
        signal.alarm(0)
    if os.geteuid() == 0:
        (tmp_path / "precious").touch()
        (tmp_path / "run.jsonl").symlink_to("precious")
        os.chown(tmp_path / "run.jsonl", 54321, 54321, follow_symlinks=False)
        with pytest.raises(InputError, match="is a link that belongs to user 54321"):
            Recording(tmp_path / "run.jsonl").begin(HEADING)
        assert (tmp_path / "precious").read_bytes() == b""


@pytest.mark.parametrize("algorithm", ["shj", "xjoin", "hmj", "dphj", "rpj", "diner", "pmj", "nested_loop"])
def test_a_join_of_stalling_sources(algorithm: str) -> None:
    """While both sources are blocked at a gate, the recording shows that they stall."""
    gates = [Gate(14), Gate(21)]
    sources = [Scripted(ROWS, gates=[gate]) for gate in gates]
    recording, told = Recording(), threading.Event()
    states: set[str] = set()

    def watch() -> None:
        for gate in gates:
            gate.reached.wait()
        while recording.latest.phase != "waiting" or [s.rows for s in recording.latest.sources] != [14, 21]:
            told.wait(0.005)
        states.update(source.state for source in recording.latest.sources)
        told.set()
        for gate in gates:
            gate.opened.set()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    joined = dovetail.progressive(*sources, "l.k = r.k", memory="1MB", algorithm=algorithm, record=recording)
    assert sum(step.batch.num_rows for step in joined) == 5 * 8 * 8
    assert told.is_set()
    assert states == {"stalled"}
    last = recording.moments[-1].moment
    assert recording.outcome == DONE
    assert last.results == 5 * 8 * 8
    assert [(source.rows, source.state) for source in last.sources] == [(40, "ended")] * 2
    assert last.resident_rows is not None
    assert recording.heading is not None
    assert recording.heading.join == ("scripted", "scripted")
    assert f"operator   {algorithm}" in recording.heading.plan
    assert sum(last.seconds.values()) <= recording.seconds


def test_joins_that_are_left_or_fail(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    steps = dovetail.progressive(ROWS, ROWS, ["k"], record=path)
    next(steps)
    assert Recording.read(path).outcome == RUNNING
    steps.close()  # type: ignore[attr-defined]  # a generator, as an iterator for users
    assert Recording.read(path).outcome == STOPPED
    broken = Scripted(ROWS, breaks=[7], resumable=False)
    recording = Recording()
    with pytest.raises(dovetail.DovetailError):
        list(dovetail.progressive(broken, ROWS, ["k"], record=recording))
    assert recording.outcome == FAILED
    assert "the line is dead" in recording.error


def test_joins_that_tell_steps_only() -> None:
    keys = pa.table({"k": range(40)})
    recording = Recording()
    list(dovetail.progressive(keys, keys, ["k"], algorithm="diag", record=recording))
    assert recording.latest.results == 40
    assert recording.latest.resident_rows is None
    for aggregate in (None, {"n": "count(*)"}):
        parallel = Recording()
        list(dovetail.progressive(ROWS, ROWS, ["k"], workers=2, aggregate=aggregate, record=parallel))
        assert (parallel.outcome, parallel.latest.results) == (DONE, 5 * 8 * 8)


def test_sources_that_say_how_many_rows_they_have(tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "l.parquet")
    file = parquet_source(tmp_path / "l.parquet")
    assert file is not None
    assert Sizes.from_inputs([ROWS, file]).rows == [40, 40]
    assert Sizes.from_inputs([file, Scripted(ROWS)]).rows == [40, None]
    batch = ROWS.to_batches()[0]
    sizes = Sizes([50, 30])
    seen = [
        list(sizes.rows) for _ in sizes.watch([Arrival(Side.LEFT, batch), Arrival(Side.RIGHT, batch), End(Side.LEFT)])
    ]
    assert seen == [[50, 30], [50, None], [40, None]]  # arrived rows count


def test_why_there_is_no_estimate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dovetail.execution.monitor.EVERY_S", 0.0)
    path = tmp_path / "in_order.parquet"  # rows of a table could be sampled randomly
    pq.write_table(pa.table({"k": np.arange(60_000)}), path)
    recording = Recording()
    objections = set()
    for step in dovetail.progressive(path, path, ["k"], memory="500kB", algorithm="pmj", record=recording):
        if step.estimate is None and recording.latest.objection is not None:
            objections.add(recording.latest.objection)
    assert objections
    assert all("order" in objection for objection in objections)
    assert recording.latest.objection is None  # everything is known in the end


def test_files_are_called_by_their_names_and_estimated(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    for name in "lr":
        pq.write_table(pa.table({"k": rng.integers(0, 500, 20_000)}), tmp_path / f"{name}.parquet")
    files, recording = [tmp_path / "l.parquet", tmp_path / "r.parquet"], Recording()
    steps = list(dovetail.progressive(*files, ["k"], memory="300KB", algorithm="pmj", record=recording))
    assert recording.heading is not None
    assert recording.heading.join == ("l", "r")
    assert recording.latest.estimate is not None
    assert recording.latest.estimate.total == recording.latest.results == steps[-1].results


def test_a_recording_in_a_store() -> None:
    """It can be followed while it is written; it does not contain any part of the address."""
    table = pa.table({"k": list(range(100))})
    with s3_server() as server:
        server.faults = Faults(1, error=0.1, lose=0.1)
        place = server.uri("runs/one.jsonl")
        steps = dovetail.progressive(table, table, ["k"], record=place)
        next(iter(steps))
        followed = Recording.read(place)
        assert followed.outcome == RUNNING
        for _ in steps:
            pass
        followed.refresh()
        assert (followed.outcome, followed.latest.results) == (DONE, 100)
        assert Catalogue(place).runs()["run"].outcome == DONE
        assert server.names() == ["runs/one.jsonl"]
        for text in (server.objects["runs/one.jsonl"].data.decode(), followed.name):
            assert SECRET_KEY not in text
        open_store(server.uri("")).put("other.txt", b"of somebody else")
        with pytest.raises(InputError, match=r"s3://…@bucket/other\.txt.* exists and is not a recording"):
            next(iter(dovetail.progressive(table, table, ["k"], record=server.uri("other.txt"))))
