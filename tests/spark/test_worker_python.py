"""Workers that would run another Python than the driver, in sessions created by users."""

from __future__ import annotations

import json
import os
import platform
import site
import subprocess
import sys
import venv
from pathlib import Path
from shutil import which
from typing import Any

import pytest

import dovetail
from dovetail.errors import WorkerError
from dovetail.spark.worker_python import NEEDED, check_worker

JOB = str(Path(__file__).with_name("worker_python_job.py"))


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The executables of a Python without packages."""
    place = tmp_path_factory.mktemp("bare")
    venv.create(place, with_pip=False, symlinks=True)
    return place / "bin"


def run(master: str, place: Path, bare: Path, **environment: str) -> list[Any]:
    """The output of the script with a bare `python3` on the PATH."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    found = subprocess.run(
        [sys.executable, JOB, master, str(place)],
        env={**inherited, "PATH": f"{bare}{os.pathsep}{inherited['PATH']}", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert found.returncode == 0, found.stderr[-4000:]
    said: list[Any] = json.loads((place / "said.json").read_text())
    return said


@pytest.mark.spark
@pytest.mark.slow
def test_on_one_machine_workers_run_the_python_of_the_script(tmp_path: Path, bare: Path) -> None:
    assert run("local[1]", tmp_path, bare) == [19, 45, 45]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("master", ["local-cluster[2,1,1024]", "connect"])
def test_elsewhere_it_is_said_what_workers_lack(master: str, tmp_path: Path, bare: Path) -> None:
    pairs, said = run(master, tmp_path, bare)
    assert pairs == 19  # computed by Spark's own operators
    python = f"{bare / 'python3'} ({platform.python_version()})"
    assert said.startswith(f"WorkerError: the workers of this Spark session run {python}, where dovetail, numba")
    assert f"PYSPARK_PYTHON set to a Python that has it; this process runs {sys.executable}." in said


@pytest.mark.spark
@pytest.mark.slow
def test_on_one_machine_a_python_without_packages_is_not_used(tmp_path: Path, bare: Path) -> None:
    assert run("local[1]", tmp_path, bare, PYSPARK_PYTHON=str(bare / "python")) == [19, 45, 45]


@pytest.mark.spark
@pytest.mark.slow
def test_a_python_of_another_version(tmp_path: Path, bare: Path) -> None:
    other = next(filter(runs, (f"python3.{minor}" for minor in range(9, 20) if minor != sys.version_info[1])), None)
    if other is None:
        pytest.skip("there is no Python of another version")
    pairs, said = run("local-cluster[1,1,1024]", tmp_path, bare, PYSPARK_PYTHON=other)
    assert pairs == 19
    here = f"3.{sys.version_info[1]}"
    versions = f"run Python {other.removeprefix('python')}, and this process Python {here}: Spark does not support that"
    assert said.startswith(f"WorkerError: the workers of this Spark session {versions}.")
    assert f"PYSPARK_PYTHON set to a Python {here} that has dovetail; this process runs {sys.executable}." in said


def runs(program: str) -> bool:
    return (
        which(program) is not None and subprocess.run([program, "-V"], capture_output=True, check=False).returncode == 0
    )


@pytest.mark.spark
@pytest.mark.slow
def test_a_python_that_was_chosen_is_kept(tmp_path: Path, bare: Path) -> None:
    venv.create(tmp_path / "other", with_pip=False, symlinks=True)
    lines = "".join(f"import site; site.addsitedir({path!r})\n" for path in site.getsitepackages())
    (packages,) = (tmp_path / "other").glob("lib/*/site-packages")
    (packages / "ours.pth").write_text(lines)
    assert run("local[1]", tmp_path, bare, PYSPARK_PYTHON=str(tmp_path / "other" / "bin" / "python")) == [19, 45, 45]


def worker(**versions: Any) -> dict[str, Any]:
    modules = {**dict.fromkeys(NEEDED), "dovetail": dovetail.__version__, **versions}
    return {"python": "/usr/bin/python3", "version": "3.9.2", "modules": modules}


def test_a_worker_with_another_version() -> None:
    check_worker(worker())
    with pytest.raises(WorkerError, match=rf"where dovetail is 0\.0\.1; here it is {dovetail.__version__}\."):
        check_worker(worker(dovetail="0.0.1"))


@pytest.mark.parametrize("missing", NEEDED)
def test_a_worker_without_a_package(missing: str) -> None:
    found = worker()
    del found["modules"][missing]
    said = rf"the workers of this Spark session run /usr/bin/python3 \(3.9.2\), where {missing} cannot be imported"
    with pytest.raises(WorkerError, match=said):
        check_worker(found)
