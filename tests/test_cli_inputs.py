"""Arguments of `dovetail join`: words instead of options, formats, choice of the runtime, early errors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.orc
import pyarrow.parquet as pq
import pytest
from tests.patience import PATIENCE_S
from tests.test_cli import dovetail, process

import dovetail as library
from dovetail.cli import runtime
from dovetail.cli.early_checks import Asked, check_early
from dovetail.cli.results import Target, open_writer
from dovetail.cli.runtime import choose_runtime, free_bytes, table_bytes
from dovetail.condition import parse
from dovetail.errors import InputError

ON = "l.x < r.y"
LEFT = pa.table({"x": [1, 5, 7], "name": ["a", "b", "c"]})
RIGHT = pa.table({"y": [3, 9], "label": ["p", "q"]})
FORMATS = ["parquet", "csv", "json", "jsonl", "arrow", "feather", "orc"]


def write(table: pa.Table, path: Path) -> str:
    match path.suffix:
        case ".parquet":
            pq.write_table(table, path)
        case ".csv":
            pyarrow.csv.write_csv(table, path)
        case ".orc":
            pa.orc.write_table(table, path)
        case ".arrow" | ".feather":
            with pa.ipc.new_file(path, table.schema) as file:
                file.write_table(table)
        case _:
            path.write_text("".join(f"{line}\n" for line in map(_json, table.to_pylist())))
    return str(path)


def _json(row: dict[str, object]) -> str:
    return json.dumps(row)


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    return write(LEFT, tmp_path / "a.parquet"), write(RIGHT, tmp_path / "b.csv")


def rows(table: pa.Table) -> list[str]:
    return sorted(map(str, table.to_pylist()))


EXPECTED = rows(library.join(LEFT, RIGHT, ON))


# Words.


@pytest.mark.parametrize(
    "words",
    [
        ["{a}", "{b}", ON],
        ["{a}", "{b}", "--on", ON],
        ["{b}", ON, "--left", "{a}"],
        ["--right", "{b}", "{a}", ON],
        ["--left", "{a}", "--right", "{b}", "--on", ON],
    ],
)
def test_words_take_the_places_that_options_leave(words: list[str], files: tuple[str, str], tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    run = dovetail("join", *(word.format(a=files[0], b=files[1]) for word in words), "--out", out)
    assert run.returncode == 0, run.stderr
    assert rows(pq.read_table(out)) == EXPECTED
    assert (
        "where      in this process" in dovetail("explain", *(w.format(a=files[0], b=files[1]) for w in words)).stdout
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], 'there is no left input and no right input and no condition. For example: dovetail join a.csv b.csv "'),
        (["a", "b"], "there is no condition."),
        (["a", "b", "l.x", "=", "r.y"], 'the condition is one argument, in quotes: "l.x = r.y".'),
        (["a", "b", "--on", ON, "c"], "unexpected argument 'c'"),
    ],
)
def test_words_that_are_missing_or_too_many(words: list[str], message: str) -> None:
    run = dovetail("join", *words)
    assert run.returncode == 2
    assert message in run.stderr.replace("\n", " ")


# Formats.


@pytest.mark.parametrize("name", FORMATS)
def test_files_of_every_format(name: str, tmp_path: Path) -> None:
    left, right = write(LEFT, tmp_path / f"a.{name}"), write(RIGHT, tmp_path / "b.parquet")
    out = tmp_path / "out.parquet"
    run = dovetail("join", left, right, ON, "--out", out)
    assert run.returncode == 0, run.stderr
    assert rows(pq.read_table(out)) == EXPECTED


@pytest.mark.parametrize("name", FORMATS)
def test_paths_of_every_format_in_python(name: str, tmp_path: Path) -> None:
    left, right = write(LEFT, tmp_path / f"a.{name}"), Path(write(RIGHT, tmp_path / "b.csv"))
    assert rows(library.join(left, right, ON)) == EXPECTED
    assert library.count(left, right, ON) == len(EXPECTED)
    with library.progressive(left, right, ON) as steps:
        assert rows(pa.Table.from_batches([step.batch for step in steps if step.batch.num_rows])) == EXPECTED
    several = library.multijoin({"a": left, "b": str(right), "c": left}, "a.x < b.y AND a.x = c.x")
    assert several.num_rows == len(EXPECTED)
    assert library.explain(left, right, ON).how == "inner"


@pytest.mark.parametrize("name", ["parquet", "arrow", "csv", "jsonl"])
def test_one_file_or_a_directory(name: str, files: tuple[str, str], tmp_path: Path) -> None:
    """The end of the name decides: a suffix means a file, a slash a directory."""
    file, directory = tmp_path / "new" / f"hits.{name}", f"{tmp_path}/{name}-hits/"
    assert dovetail("join", *files, ON, "--out", file).returncode == 0
    assert file.is_file()
    assert rows(library.join(file, pa.table({"k": [1]}), "TRUE", how="left_semi")) == EXPECTED
    format_ = "json" if name == "jsonl" else name
    assert dovetail("join", *files, ON, "--out", directory, "--format", format_).returncode == 0
    assert [path.name for path in Path(directory).iterdir()] == [f"part-0.{format_}"]
    again = dovetail("join", *files, ON, "--out", directory, "--format", format_, "--overwrite")
    assert again.returncode == 0, again.stderr
    slash = dovetail("join", *files, ON, "--out", f"{tmp_path}/named.parquet/")
    assert slash.returncode == 0
    assert (tmp_path / "named.parquet" / "part-0.parquet").is_file()


def test_dictionaries_that_grow_are_written_to_one_arrow_file(tmp_path: Path) -> None:
    groups = [pa.table({"s": pa.array(words).dictionary_encode()}) for words in (["a", "b"], ["c"])]
    with open_writer(Target.read(tmp_path / "x.parquet", None), groups[0].schema) as write_group:
        for group in groups:
            write_group(group)
    with open_writer(Target.read(tmp_path / "x.arrow", None), groups[0].schema) as write_group:
        for group in groups:
            write_group(group)
    for name in ("x.parquet", "x.arrow"):
        found = library.join(tmp_path / name, pa.table({"k": [1]}), "TRUE", how="left_semi")
        assert found.column("s").to_pylist() == ["a", "b", "c"]


# The choice of the runtime.


def choose(files: tuple[str, str], on: str = ON, asked: bool | None = None) -> runtime.Runtime:
    places = Asked(*files, on)
    return choose_runtime(places, check_early(places, "inner", None, in_process=asked), asked)


def test_files_that_fit_are_joined_here(files: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose(files).in_process
    assert choose(files, asked=False) == (False, "asked for")
    size = sum(table_bytes(Path(file)) for file in files)
    assert 0 < size < 1000
    monkeypatch.setattr(runtime, "free_bytes", lambda: 4 * size)
    assert choose(files).in_process
    monkeypatch.setattr(runtime, "free_bytes", lambda: 4 * size - 1)
    assert not choose(files).in_process
    assert "of which a quarter is enough; --in-process joins here" in choose(files).why
    assert choose(files, asked=True) == (True, "asked for")
    monkeypatch.setattr(runtime, "find_spec", lambda _: None)
    with pytest.raises(InputError, match=r"PySpark is not installed\. pip install 'dovetail-joins\[spark\]', or add"):
        choose(files)


def test_arrow_is_joined_here_and_functions_of_spark_there(files: tuple[str, str], tmp_path: Path) -> None:
    arrow = write(RIGHT, tmp_path / "b.arrow")
    assert choose((files[0], arrow)) == (True, "Spark does not read Arrow files")
    with pytest.raises(InputError, match=r"b\.arrow: Spark does not read Arrow files\. Join it in process"):
        choose((files[0], arrow), asked=False)
    assert choose(files, "soundex(l.name) = soundex(r.label)") == (
        False,
        "Spark alone evaluates a function of the condition",
    )


def test_the_memory_that_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "GROUP", tmp_path)
    free = free_bytes()
    assert free > 1 << 20
    (tmp_path / "memory.max").write_text("3000\n")
    (tmp_path / "memory.current").write_text("1000\n")
    assert free_bytes() == 2000
    (tmp_path / "memory.max").write_text("max\n")
    assert free_bytes() > 1 << 20


# Errors are raised before slow steps.


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{a}", "nowhere.csv", ON], "nowhere.csv: no such file"),
        (["{a}", "{b}", "l.xx < r.y"], "l.xx: no such column"),
        (["{a}", "{b}", "l.x <"], "cannot read the condition"),
        (["{a}", "{b}", ON, "--how", "sideways"], "how must be one of"),
        (["{a}", "{b}", ON, "--memory", "much"], "memory must be"),
        (["{a}", "{b}", ON, "--out", "x.xlsx"], ".xlsx cannot be written"),
        (["{a}", "{b}", "l.xx < r.y", "--spark"], "l.xx: no such column"),
    ],
)
@pytest.mark.one_in(2)
def test_errors_need_no_compiler_and_no_spark(words: list[str], message: str, files: tuple[str, str]) -> None:
    """These take more than a second to import, and seconds to start."""
    script = (
        "import sys\nfrom dovetail.cli.__main__ import run\ntry:\n    run()\nfinally:\n"
        "    print([name for name in ('numba', 'pandas', 'pyspark', 'dovetail.operators') if name in sys.modules])"
    )
    given = ["join", *(word.format(a=files[0], b=files[1]) for word in words)]
    command = [sys.executable, "-c", script, *given]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert message in run.stderr
    assert run.stdout == "[]\n"


def test_a_join_in_a_process_of_its_own_does_without_pandas(files: tuple[str, str]) -> None:
    run = process("join", *files, ON, "--format", "csv")
    assert run.returncode == 0, run.stderr
    assert len(run.stdout.splitlines()) == 1 + len(EXPECTED)


def test_the_condition_is_parsed_once(files: tuple[str, str]) -> None:
    """The early check and the plan share the parser's cache."""
    found = check_early(Asked(*files, ON), "inner", None, in_process=True)
    assert found is parse(ON, *(pa.schema(table.schema) for table in (LEFT, RIGHT)), in_process=True)
