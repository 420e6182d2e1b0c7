import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.patience import PATIENCE_S
from tests.storage.test_stored_state import QUERY, two_batches

from dovetail import __version__ as version
from dovetail.cli import main, small_joins
from dovetail.cli.results import Target, open_writer


def dovetail(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the command in this process."""
    words, code = list(map(str, arguments)), 0
    with (
        redirect_stdout(io.StringIO()) as out,
        redirect_stderr(io.StringIO()) as errors,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(sys, "argv", ["dovetail", *words])
        try:
            main()
        except SystemExit as leaving:
            code = int(leaving.code or 0)
    return subprocess.CompletedProcess(words, code, out.getvalue(), errors.getvalue())


def process(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the command in a separate process."""
    command = [sys.executable, "-m", "dovetail.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)


@pytest.fixture
def inputs(tmp_path: Path) -> list[object]:
    pq.write_table(pa.table({"id": range(100), "price": [1.5] * 100}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"id": range(0, 200, 2), "name": ["x"] * 100}), tmp_path / "b.parquet")
    return ["--left", tmp_path / "a.parquet", "--right", tmp_path / "b.parquet"]


@pytest.mark.one_in(2)
def test_join_in_process(inputs: list[object], tmp_path: Path) -> None:
    out = tmp_path / "out"
    run = process("join", *inputs, "--on", "l.id = r.id", "--out", out, "--in-process")
    assert run.returncode == 0, run.stderr
    assert "50 rows" in run.stdout
    assert pq.read_table(out).column_names == ["id", "price", "id_right", "name"]
    again = process("join", *inputs, "--on", "l.id < r.id", "--out", out, "--in-process")
    assert again.returncode == 2
    assert "is not empty" in again.stderr
    replaced = dovetail("join", *inputs, "--on", "l.id < r.id", "--out", out, "--in-process", "--overwrite")
    assert replaced.returncode == 0, replaced.stderr
    assert pq.read_table(out).num_rows == sum(sum(x < y for x in range(100)) for y in range(0, 200, 2))


@pytest.mark.parametrize("live", [[], ["--live"]], ids=str)
def test_limit(inputs: list[object], tmp_path: Path, live: list[str]) -> None:
    out = tmp_path / "out"
    run = dovetail("join", *inputs, "--on", "l.id < r.id", "--out", out, "--in-process", "--limit", 7, *live)
    assert run.returncode == 0, run.stderr
    assert pq.read_table(out).num_rows == 7
    assert dovetail("join", *inputs, "--on", "l.id < r.id", "--out", out, "--limit", -1).returncode == 2


@pytest.mark.parametrize("live", [[], ["--live"]], ids=str)
def test_overwriting_leaves_other_files_alone(inputs: list[object], tmp_path: Path, live: list[str]) -> None:
    """Here the inputs themselves: --out names their directory."""
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    request = ["join", *inputs, "--on", "l.id = r.id", "--out", tmp_path, "--in-process", "--overwrite", *live]
    run = dovetail(*request)
    assert run.returncode == 2
    assert "not results of a join: a.parquet, b.parquet." in run.stderr
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_files_that_come_while_a_join_is_written_stay(tmp_path: Path) -> None:
    for name in ("part-0.parquet", "part-1.parquet", "_SUCCESS"):
        (tmp_path / name).write_text("of an earlier run")
    with open_writer(Target(tmp_path, "parquet"), pa.schema({"k": pa.int64()})) as write:
        (tmp_path / "notes.txt").write_text("of somebody else")
        write(pa.table({"k": [1]}))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt", "part-0.parquet"]
    assert pq.read_table(tmp_path / "part-0.parquet").to_pydict() == {"k": [1]}


def test_without_a_place_the_first_rows_are_a_table(inputs: list[object]) -> None:
    run = dovetail("join", *inputs, "--on", "l.id = r.id", "--in-process", "--select", "l.id, name AS who")
    assert run.returncode == 0, run.stderr
    header, first, *others = run.stdout.splitlines()
    assert (header.split(), first.split()) == (["id", "who"], ["0", "x"])
    assert len(others) == 19
    assert "20 rows" in run.stderr
    assert "there are more: --limit" in run.stderr
    few = dovetail("join", *inputs, "--on", "l.id = r.id", "--in-process", "--limit", 3)
    assert len(few.stdout.splitlines()) == 4
    assert "more" not in few.stderr


LINES = {"csv": ['"id","who"', '0,"x"'], "json": ['{"id": 0, "who": "x"}', '{"id": 2, "who": "x"}']}


@pytest.mark.parametrize("live", [[], ["--live"]], ids=str)
@pytest.mark.parametrize("format_", ["csv", "json"])
def test_csv_and_json(inputs: list[object], tmp_path: Path, format_: str, live: list[str]) -> None:
    request = ["join", *inputs, "--on", "l.id = r.id", "--in-process", "--select", "id, r.name AS who", *live]
    printed = dovetail(*request, "--format", format_)
    assert printed.returncode == 0, printed.stderr
    lines = printed.stdout.splitlines()
    assert set(LINES[format_]) < set(lines)  # in the order found, some of them by threads
    assert format_ == "json" or lines[0] == LINES["csv"][0]
    assert "50 rows" in printed.stderr
    rows = 50 + (format_ == "csv")
    assert len(lines) == rows
    file, place = tmp_path / "new" / f"out.{format_}", tmp_path / "out"
    assert dovetail(*request, "--out", file).returncode == 0
    assert dovetail(*request, "--out", place, "--format", format_).returncode == 0
    for written in (file, place / f"part-0.{format_}"):
        assert sorted(written.read_text().splitlines()) == sorted(lines)
    assert "already exists" in dovetail(*request, "--out", file).stderr
    assert dovetail(*request, "--out", file, "--overwrite", "--limit", 1).returncode == 0
    assert len(file.read_text().splitlines()) == rows - 49
    assert dovetail(*request, "--out", place, "--overwrite").returncode == 0
    assert [path.name for path in place.iterdir()] == ["part-0.parquet"]


def test_values_that_csv_and_json_do_not_have(tmp_path: Path) -> None:
    """All values written as JSON are accepted by any JSON parser."""
    values = {"x": [float("nan")], "n": [Decimal("1.50")], "d": [date(2026, 1, 2)], "b": [b"\x01"], "s": [[None]]}
    u = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(15) + b"\x01"], pa.binary(16)))
    table = pa.table({"k": [1], **values, "e": pa.array(["a"]).dictionary_encode(), "u": u})
    pq.write_table(table, tmp_path / "a.parquet")
    inputs = ["--left", tmp_path / "a.parquet", "--right", tmp_path / "a.parquet", "--in-process"]
    request = ["join", *inputs, "--on", "l.k = r.k", "--how", "left_semi"]
    (line,) = dovetail(*request, "--format", "json").stdout.splitlines()
    expected = {"k": 1, "x": "NaN", "n": 1.5, "d": "2026-01-02", "b": "01", "s": [None], "e": "a"}
    expected |= {"u": "00000000-0000-0000-0000-000000000001"}
    assert json.loads(line, parse_constant=pytest.fail) == expected
    refused = dovetail(*request, "--format", "csv")
    assert refused.returncode == 2
    assert "CSV cannot hold lists and structs: s." in refused.stderr
    assert (
        dovetail(*request, "--format", "csv", "--select", "k, n, d, e, u").stdout.splitlines()[1]
        == '1,1.50,2026-01-02,"a","00000000-0000-0000-0000-000000000001"'
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--select", "l.idd"], "there is no column l.idd. Did you mean 'id'?"),
        (["--select", "l.nam"], "there is no column l.nam. Did you mean 'r.name'?"),
        (["--select", "l.id + 1"], "'l.id + 1' is not one"),
        (["--select", "id FROM x"], "--select takes columns"),
        (["--select", "("], "cannot be read"),
        (["--select", "id, price AS id"], "two columns called 'id'"),
        (["--select", "r.name", "--how", "left_anti"], "the result has columns of l; got 'r'"),
        (["--out", "x.xlsx"], "--out x.xlsx: .xlsx cannot be written. Give a file that ends with .parquet, .arrow,"),
        (["--out", "x.csv.gz"], ".gz cannot be written"),
        (["--format", "xml"], "--format is one of parquet, arrow, csv, json"),
        (["--format", "parquet"], "--format parquet needs --out"),
        (["--format", "arrow"], "--format arrow needs --out"),
        (["--spark", "--live"], "--spark joins files as a whole"),
        (["--format", "csv", "--out", "x.jsonl"], "x.jsonl is a file of json, --format says csv"),
    ],
)
def test_a_result_that_cannot_be(inputs: list[object], change: list[str], message: str) -> None:
    run = dovetail("join", *inputs, "--on", "l.id = r.id", "--in-process", *change)
    assert run.returncode == 2
    assert message in run.stderr.replace("\n", " ")


def test_an_input_is_never_overwritten(tmp_path: Path) -> None:
    for name in ("left", "right"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "part-0.csv").write_text("id\n1\n")
    inputs = ["--left", tmp_path / "left", "--right", tmp_path / "right", "--in-process", "--overwrite"]
    for place in ("left", "left/part-0.csv", "left/new.csv"):
        run = dovetail("join", *inputs, "--on", "l.id = r.id", "--out", tmp_path / place)
        assert (run.returncode, "contains an input of the join" in run.stderr) == (2, True)
    assert (tmp_path / "left" / "part-0.csv").read_text() == "id\n1\n"


def test_an_unexpected_error_is_one_line(inputs: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError('the first line\n  File "x.py", line 3\nthe last one')

    monkeypatch.setattr("dovetail.calls.join", fail)
    request = ["join", *inputs, "--on", "l.id = r.id", "--in-process"]
    run = dovetail(*request)
    assert run.returncode == 1
    assert run.stderr == "error: RuntimeError: the first line … the last one (DOVETAIL_TRACEBACK=1 shows where)\n"
    monkeypatch.setenv("DOVETAIL_TRACEBACK", "1")
    with pytest.raises(RuntimeError):
        dovetail(*request)


def test_the_version() -> None:
    run = dovetail("--version")
    assert (run.returncode, run.stdout) == (0, f"dovetail {version}\n")


def test_one_row_is_no_rows(inputs: list[object]) -> None:
    run = dovetail("join", *inputs, "--on", "l.id = r.id", "--in-process", "--limit", 1)
    assert run.stderr.startswith("1 row in ")


def test_without_spark(inputs: list[object]) -> None:
    script = "import sys; sys.modules['pyspark'] = None; from dovetail.cli import main; main()"
    command = [sys.executable, "-c", script, "join", *map(str, inputs), "--on", "l.id = r.id", "--spark"]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith("error: PySpark is not installed: pip install 'dovetail-joins[spark]'.")


def test_whoever_has_seen_enough_may_leave(inputs: list[object]) -> None:
    command = [sys.executable, "-m", "dovetail.cli", "join", *map(str, inputs), "--on", "l.id <> r.id", "--in-process"]
    run = subprocess.Popen([*command, "--format", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert run.stdout is not None
    assert run.stderr is not None
    run.stdout.close()
    assert "Traceback" not in run.stderr.read()
    assert run.wait(PATIENCE_S) == 1


def test_completion_for_shells() -> None:
    environment = os.environ | {
        "_DOVETAIL_COMPLETE": "complete_bash",
        "COMP_WORDS": "dovetail join --how l",
        "COMP_CWORD": "3",
    }
    command = [sys.executable, "-c", "import sys; sys.argv[0] = 'dovetail'; from dovetail.cli import main; main()"]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert told.stdout.split() == ["left", "left_semi", "left_anti"]


@pytest.mark.one_in(2)
def test_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_joins, "CONDITIONS", small_joins.CONDITIONS[:1])
    monkeypatch.setattr(small_joins, "operator_names", lambda: ["shj"])
    run = dovetail("warmup")
    assert run.returncode == 0, run.stderr
    assert "kernels are ready: 9 small joins" in run.stdout


@pytest.mark.slow
def test_warm_up_for_every_kind_of_join() -> None:
    run = dovetail("warmup")
    assert run.returncode == 0, run.stderr


def test_explain(inputs: list[object]) -> None:
    diag = dovetail("explain", *inputs, "--on", "l.id = r.id", "--in-process", "--algorithm", "diag")
    assert "operator   diag: asked for\nclustered" in diag.stdout
    alone = dovetail("explain", *inputs, "--on", "l.id < r.id", "--how", "left", "--in-process")
    assert "kernel     one_inequality" in alone.stdout
    early = dovetail("explain", *inputs, "--on", "abs(l.id - r.id) <= 1", "--how", "left", "--progressive")
    assert "operator   pmj: progressive merge join; " in early.stdout
    assert "memory     256,000,000 bytes per cell" in early.stdout


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"--on": "l.idd = r.id"}, "error: l.idd: no such column; did you mean l.id?"),
        ({"--on": "l.price = r.name"}, "error: l.price (double) cannot be compared with r.name (string)."),
        ({"--on": "l.id = AND"}, "error: cannot read the condition"),
        ({"--left": "nowhere.parquet"}, "error: nowhere.parquet: no such file or directory."),
        ({"--out": "/proc/nowhere/out"}, "cannot be written to"),
        ({"--memory": "1KB"}, "Give 65,536 bytes or more."),
        ({"--memory": "much"}, "memory must be"),
        ({"--algorithm": "magic"}, "no algorithm is called 'magic'"),
        ({"--how": "sideways"}, "how must be one of"),
        ({"--algorithm": "diag", "--on": "l.id < r.id"}, "needs an equality"),
    ],
)
def test_a_wrong_request_is_one_line_and_exit_code_2(
    inputs: list[object], tmp_path: Path, change: dict[str, str], message: str
) -> None:
    given = {"--on": "l.id = r.id", "--out": str(tmp_path / "out")} | dict(zip(inputs[::2], inputs[1::2], strict=True))
    given |= change
    run = dovetail("join", *(word for pair in given.items() for word in pair))
    assert run.returncode == 2
    assert message in run.stderr
    assert not list((tmp_path / "out").glob("*"))


def test_what_spark_does_not_join_is_refused_before_it_starts(inputs: list[object]) -> None:
    run = dovetail("join", *inputs, "--on", "l.id = r.id", "--algorithm", "pmj", "--how", "left", "--spark")
    assert run.returncode == 2
    assert "algorithm='pmj' supports inner joins only on Spark" in run.stderr


def test_a_file_that_is_not_what_it_says(inputs: list[object], tmp_path: Path) -> None:
    (tmp_path / "c.parquet").write_text("not parquet")
    run = dovetail("explain", "--left", tmp_path / "c.parquet", *inputs[2:], "--on", "l.id = r.id")
    assert run.returncode == 2
    assert "cannot be read as parquet" in run.stderr


def test_nanoseconds_are_refused_before_spark_starts(inputs: list[object], tmp_path: Path) -> None:
    """Spark cannot read them, even if the column is not requested."""
    pq.write_table(pa.table({"id": [1], "at": pa.array([1], pa.timestamp("ns"))}), tmp_path / "ns.parquet")
    request = ["join", "--left", tmp_path / "ns.parquet", *inputs[2:], "--on", "l.id = r.id"]
    refused = dovetail(*request, "--spark")
    assert refused.returncode == 2
    assert "column at has timestamps with nanoseconds, which Spark cannot read" in refused.stderr
    assert dovetail(*request).returncode == 0


@pytest.mark.one_in(2)
def test_progress_in_plain_text(inputs: list[object], tmp_path: Path) -> None:
    request = ["join", *inputs, "--on", "l.id = r.id", "--in-process", "--overwrite", "--out", tmp_path / "out"]
    assert process(*request).stderr == ""
    assert dovetail(*request, "--no-progress").stderr == ""
    told = dovetail(*request, "--progress")
    assert told.returncode == 0
    assert "50 rows" in told.stdout
    assert "results" not in told.stdout


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """The state of a query that was last written long ago."""
    two_batches(tmp_path)
    for path in tmp_path.rglob("*"):
        os.utime(path, (0, 0))
    return tmp_path


def test_state_shows_joins_and_cells(state: Path) -> None:
    shown = dovetail("state", state)
    assert shown.returncode == 0, shown.stderr
    header, line = shown.stdout.splitlines()
    assert header.split() == ["query", "join", "algorithm", "cells", "rows", "skew", "bytes", "segments", "written"]
    assert line.split()[:6] == [QUERY, "dovetail", "shj", "1", "20", "1.00"]
    cells = dovetail("state", state, "--cells", "--query", QUERY)
    assert cells.stdout.splitlines()[1].split()[:5] == [QUERY, "dovetail", "shj", "3", "20"]
    assert "no join of streams keeps state here" in dovetail("state", state / QUERY).stdout
    assert dovetail("state", state / "no").returncode == 2


def test_state_is_removed_when_it_is_certain(state: Path) -> None:
    asked = dovetail("state", state, "--clean", QUERY)  # there is no terminal for a question
    assert (asked.returncode, (state / QUERY).is_dir()) == (2, True)
    assert "add --yes" in asked.stderr
    (state / QUERY / "dovetail" / "manifest-3.json").touch()
    young = dovetail("state", state, "--clean", QUERY)
    assert "the query may be running. Stop it" in young.stderr
    removed = dovetail("state", state, "--clean", QUERY, "--yes")
    assert (removed.returncode, (state / QUERY).exists()) == (0, False)
    again = dovetail("state", state, "--clean", QUERY, "--yes")
    assert again.returncode == 2
    assert "no state of a query" in again.stderr


def test_a_name_of_a_column_joins_on_it(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,note,x\n1,a,1\n2,b,5\n3,c,9\n")
    (tmp_path / "b.csv").write_text("id,note,y\n2,q,4\n3,r,1\n4,s,7\n")
    places = [str(tmp_path / "a.csv"), str(tmp_path / "b.csv")]
    out = tmp_path / "hits.parquet"
    select = ["--select", "l.id, r.id AS other, note_right, y"]
    result = dovetail("join", *places, "id", "--how", "full", "--out", str(out), *select)
    assert result.returncode == 0, result.stderr
    rows = pq.read_table(out).sort_by("id").to_pylist()
    assert [row["id"] for row in rows] == [row["other"] for row in rows] == [1, 2, 3, 4]
    assert [row["note_right"] for row in rows] == [None, "q", "r", "s"]
