"""Build the wheel and the source archive, install each into an empty environment, and run joins in it.

python tools/distributions.py dist [python …]

Runs with each of the given Pythons, or with every supported version that is found. Spark is tried with the oldest and
the newest.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCKS = ROOT / "locks"
SUPPORTED = ("3.11", "3.12", "3.13")

# setuptools changes sys.argv.
BUILD = """
import sys
from setuptools import build_meta
place = sys.argv[1]
build_meta.build_sdist(place)
build_meta.build_wheel(place)
"""

# Checks that the installed package is used and not the checkout, that files other than Python are included, and that
# joins work in process and on Spark.
TRY = """
import sys
from importlib.metadata import version
from importlib.resources import files
import pyarrow as pa
import dovetail

assert "site-packages" in dovetail.__file__, dovetail.__file__
assert dovetail.__version__ == sys.argv[1] == version("dovetail-joins")
for name in ("py.typed", "monitoring/style.css", "monitoring/page.js", "spark/session/log4j2.properties"):
    assert files("dovetail").joinpath(name).is_file(), name
left, right = pa.table({"x": [1, 5]}), pa.table({"y": [3, 9]})
assert dovetail.join(left, right, "l.x < r.y").num_rows == 3
if "spark" in sys.argv:
    from dovetail.spark.session import local_session
    spark = local_session()
    frames = [spark.createDataFrame(table) for table in (left, right)]
    assert dovetail.join(*frames, "l.x < r.y").count() == 3
    spark.stop()
"""


def main(place: str, named: list[str]) -> None:
    dist = (ROOT / place).resolve()
    dist.mkdir(parents=True, exist_ok=True)
    run(sys.executable, "-c", BUILD, str(dist), cwd=ROOT)
    (wheel,), (archive,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    pythons = dict(sorted((version_of(python), python) for python in named or found()))
    if () in pythons:
        sys.exit(f"{pythons[()]} cannot make environments: it has no ensurepip, or is not there")
    for version, python in pythons.items():
        try_out(wheel, archive, version, python, with_spark=version in (min(pythons), max(pythons)))
    missing = [version for version in SUPPORTED if tuple(map(int, version.split("."))) not in pythons]
    if missing:
        say(f"not tried, because not found: Python {', '.join(missing)}")


def found() -> list[str]:
    """The Pythons on the path, and this one. pyenv may have a shim for a version that is not installed."""
    return [python for python in (*(f"python{version}" for version in SUPPORTED), sys.executable) if version_of(python)]


def version_of(python: str) -> tuple[int, ...]:
    """The version, or () if this Python cannot make environments."""
    with suppress(OSError):
        words = [python, "-c", "import ensurepip, sys; print(*sys.version_info[:2])"]
        return tuple(map(int, subprocess.run(words, capture_output=True, text=True, check=False).stdout.split()))
    return ()


def try_out(wheel: Path, archive: Path, number: tuple[int, ...], base: str, *, with_spark: bool) -> None:
    """Install both into an empty environment of this Python, and run joins in it."""
    version, name = wheel.name.split("-")[1], f"Python {'.'.join(map(str, number))}"
    with tempfile.TemporaryDirectory(prefix="dovetail-dist-") as empty:
        python = str(Path(empty) / "environment" / "bin" / "python")
        run(base, "-m", "venv", str(Path(empty) / "environment"), cwd=Path(empty))
        began = time.monotonic()
        install(python, "--require-hashes", "--requirement", str(LOCKS / "run.txt"))
        install(python, "--no-deps", str(wheel))
        installed = time.monotonic()
        say(f"{name}: {wheel.name}: installed with its dependencies in {installed - began:.0f} s")
        run(python, "-c", TRY, version, cwd=Path(empty))
        say(f"{name}: first result in process {time.monotonic() - installed:.0f} s later, kernels compiled")
        if with_spark:
            again = time.monotonic()
            run(python, "-c", TRY, version, "spark", cwd=Path(empty))
            say(f"{name}: first result on Spark {time.monotonic() - again:.0f} s later")
        run(str(Path(python).with_name("dovetail")), "--version", cwd=Path(empty))
        install(python, "--require-hashes", "--requirement", str(LOCKS / "build.txt"))
        install(python, "--no-deps", "--no-build-isolation", "--force-reinstall", str(archive))
        run(python, "-c", TRY, version, cwd=Path(empty))
        say(f"{name}: {archive.name}: built, installed and tried")


def install(python: str, *words: str) -> None:
    run(
        python,
        "-m",
        "pip",
        "--quiet",
        "--no-input",
        "--disable-pip-version-check",
        "install",
        *words,
        cwd=ROOT / "tools",
    )


def run(*words: str, cwd: Path) -> None:
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(words)[:200]}: exit code {done.returncode}\n{done.stdout}{done.stderr}")


def say(words: str) -> None:
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
