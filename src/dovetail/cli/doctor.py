"""`dovetail doctor`: checks whether this machine and the workers of a cluster can run joins, and says how to fix it.

    this process     Python, packages, kernel cache, PySpark, Java, disk
    another process  starts Spark and asks the workers (dovetail.spark.session.probe); has a timeout

A check is a function from collected facts to findings, so it can be tested without a cluster.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import IO, Any

from rich.console import Console
from rich.text import Text

from dovetail.core.addresses import redacted, without_secrets
from dovetail.errors import InputError
from dovetail.visible import visible

OLDEST_PYTHON, NEWEST_PYTHON = (3, 11), (3, 13)
OLDEST_SPARK, TESTED_SPARK = (4, 0), (4, 3)
PACKAGES = {"numba": "numba>=0.68", "pyarrow": "pyarrow>=26", "pandas": "pandas<3"}  # as in pyproject.toml
INSTALL_SPARK = "pip install 'dovetail-joins[spark]'"
LITTLE_BYTES = 5 << 30  # of free disk space: spilling joins may fill less than this
NO_BYTES = 100 << 20
SKEW_S = 2.0
MANY_PARTITIONS = 10  # per core
ENDING_S = 10.0  # for a process to end after it was asked to
COLORS = {"ok": "green", "warning": "yellow", "problem": "bold red"}
PROBE = "from dovetail.spark.session.probe import main; main()"
SECRET = re.compile("key|password|secret|token", re.IGNORECASE)  # in names of settings
GIVEN_UP = "stopped SparkContext"  # Spark's message when the master cannot be reached
SAME_PYTHON = (
    "Install the same Python and packages on all machines (docs/clusters.md), and set PYSPARK_PYTHON to that Python."
)

Facts = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    status: str  # ok, warning, problem
    found: str
    fix: str = ""


def examine(
    master: str | None,
    state_dir: str | None,
    conf: Mapping[str, str],
    timeout_s: float,
    console: Console,
    *,
    in_json: bool,
) -> bool:
    """Print a line for each check. Returns whether there is no problem."""
    findings = []
    for finding in _findings(master, state_dir, conf, timeout_s):
        findings.append(finding)
        if not in_json:
            console.print(_line(finding), highlight=False, soft_wrap=True)
    healthy = all(finding.status != "problem" for finding in findings)
    if in_json:
        report = {"healthy": healthy, "findings": [asdict(finding) for finding in findings]}
        console.print(json.dumps(report, indent=2), highlight=False, markup=False, soft_wrap=True)
    return healthy


def parse_settings(given: Iterable[str]) -> dict[str, str]:
    """NAME=VALUE settings, as Spark's own programs take them."""
    settings = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InputError("--conf takes NAME=VALUE; one that was given has no name, or no =.")
        settings[name] = value
    return settings


def _line(finding: Finding) -> Text:
    fix = f" {finding.fix}" if finding.fix else ""
    words = visible(f" {finding.check:<15} {_sentence(finding.found)}{fix}")
    return Text.assemble((f"{finding.status:<8}", COLORS[finding.status]), words)


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."


def _findings(
    master: str | None, state_dir: str | None, conf: Mapping[str, str], timeout_s: float
) -> Iterator[Finding]:
    here = describe_here()
    yield check_python(here)
    yield check_packages(here)
    yield check_cache("kernel cache", [_describe_cache()])
    yield check_disk("disk", [(here["temporary"], here["free_bytes"])])
    pyspark = check_pyspark(_pyspark_version(), is_wanted=master is not None)
    yield pyspark
    if _pyspark_version() is None or pyspark.status == "problem":
        if state_dir is not None:
            text = f"{redacted(state_dir)} was not tried, for want of Spark"
            yield Finding("state place", "problem", text, pyspark.fix)
        return
    master = master or "local[*]"
    if not master.startswith("sc://"):  # the server of Spark Connect has its own
        java = check_java()
        yield java
        if java.status == "problem":
            return
    told = ask_cluster(master, state_dir, conf, timeout_s)
    yield from check_cluster(told, here, redacted(master), state_dir, timeout_s)


def describe_here() -> dict[str, Any]:
    """Facts about this process, in the form in which workers report theirs."""
    modules = {}
    for name in ("dovetail", *PACKAGES):
        with suppress(Exception):  # a broken package counts as missing
            modules[name] = str(importlib.import_module(name).__version__)
    temporary = tempfile.gettempdir()
    return {
        "host": platform.node(),
        "python": sys.executable,
        "version": platform.python_version(),
        "modules": modules,
        "temporary": temporary,
        "free_bytes": shutil.disk_usage(temporary).free,
    }


def check_python(here: Facts) -> Finding:
    found, version = f"{here['version']} ({here['python']})", _numbers(here["version"])
    if version < OLDEST_PYTHON:
        return Finding("Python", "problem", found, "Dovetail needs Python 3.11 or newer.")
    if version > NEWEST_PYTHON:
        return Finding("Python", "warning", found, "Dovetail is tested with Python 3.11 to 3.13: use one of them.")
    return Finding("Python", "ok", found)


def check_packages(here: Facts) -> Finding:
    needed = [name for name in PACKAGES if name != "pandas" or _pyspark_version() is not None]
    missing = [name for name in needed if name not in here["modules"]]
    found = _versions(here["modules"])
    if missing:
        text = f"{found}; {', '.join(missing)} cannot be imported"
        wanted = " ".join(f"'{PACKAGES[name]}'" for name in missing)
        return Finding("packages", "problem", text, f"Run: {here['python']} -m pip install {wanted}.")
    return Finding("packages", "ok", found)


def check_pyspark(version: str | None, *, is_wanted: bool) -> Finding:
    install = f"Run: {INSTALL_SPARK}."
    if version is None:
        text = "not installed: joins run in this process only"
        return Finding("PySpark", "problem" if is_wanted else "warning", text, install)
    if _numbers(version) < OLDEST_SPARK:
        return Finding("PySpark", "problem", f"{version}; joins need 4.0 or newer", install)
    if _numbers(version) != TESTED_SPARK:
        return Finding("PySpark", "warning", f"{version}; Dovetail is tested with 4.3", install)
    return Finding("PySpark", "ok", version)


def check_java() -> Finding:
    from dovetail.spark.session.java import ensure_java, java_version

    before = os.environ.get("JAVA_HOME")
    try:
        home = ensure_java()
    except InputError as error:
        return Finding("Java", "problem", str(error))
    finally:
        if before is not None:
            os.environ["JAVA_HOME"] = before  # the probe finds it itself
        else:
            os.environ.pop("JAVA_HOME", None)
    return Finding("Java", "ok", f"{java_version(home)} ({home})")


def check_cache(check: str, caches: Iterable[Facts]) -> Finding:
    """Check the cache of this machine, or the worst cache of all workers."""
    caches = list(caches)
    homeless = [cache for cache in caches if cache["directory"] is None]
    if homeless:
        text = f"{_at(homeless)}kernels are compiled anew by every process. {homeless[0]['objections']}"
        fix = "Set NUMBA_CACHE_DIR to a directory that only the user of the process can write to."
        return Finding(check, "warning", text, fix)
    coldest = min(caches, key=lambda cache: int(cache["compiled"]))
    text = (
        f"{_at([coldest])}{coldest['directory']}, private and writable; {coldest['compiled']} of "
        f"{coldest['kernels']} kernels are compiled"
    )
    if coldest["compiled"] < coldest["kernels"]:
        text += ", the others at their first use"
    if 2 * coldest["compiled"] < coldest["kernels"]:
        return Finding(check, "warning", text, "First joins take seconds longer. Run there, once: dovetail warmup.")
    return Finding(check, "ok", text)


def check_disk(check: str, places: Iterable[tuple[str, int]]) -> Finding:
    """Check the place with the least free space."""
    place, free = min(places, key=lambda entry: entry[1])
    text = f"{free / (1 << 30):,.1f} GiB free in {place}"
    fix = "Rows that do not fit into memory= are written there: make room, or set TMPDIR to a larger disk."
    if free < LITTLE_BYTES:
        return Finding(check, "problem" if free < NO_BYTES else "warning", text, fix)
    return Finding(check, "ok", text)


def check_cluster(told: Facts, here: Facts, master: str, state_dir: str | None, timeout_s: float) -> Iterator[Finding]:
    """Check what the probe has found out, as far as it got."""
    if "session" in told:
        yield check_session(told["session"]["version"], master, _pyspark_version())
    workers = told.get("workers", [])
    if "worker_error" in told:
        yield Finding("workers", "problem", told["worker_error"], "See docs/clusters.md.")
    elif "workers" in told:
        yield check_worker_python(workers, here)
        yield check_worker_packages(workers, here)
    if "clocks" in told:
        yield check_clocks(told["clocks"])
    if "caches" in told:
        yield check_cache("worker kernels", told["caches"])
    places = [(f"{w['temporary']} of {w['host']}", int(w["free_bytes"])) for w in workers if "free_bytes" in w]
    if places:
        yield check_disk("worker disk", places)
    elif workers:
        yield Finding("worker disk", "problem", "workers have no temporary directory", "Set TMPDIR on workers.")
    if "shared" in told:
        yield from check_shared(told["shared"])
    elif state_dir is not None:
        yield Finding("state place", "problem", f"{redacted(state_dir)} was not tried", "Mend what is above first.")
    if "tasks" in told:
        yield check_partitions(told["tasks"], told["session"]["partitions"])
    yield from check_end(told, master, timeout_s)


def check_session(version: str, master: str, here: str | None) -> Finding:
    text = f"{version} at {master}"
    if here is not None and _numbers(version) != _numbers(here):
        return Finding("Spark", "problem", f"{text}; PySpark here is {here}", f"Run: pip install pyspark=={version}.")
    return Finding("Spark", "ok", text)


def check_worker_python(workers: Iterable[Facts], here: Facts) -> Finding:
    workers = list(workers)
    others = [worker for worker in workers if _numbers(worker["version"]) != _numbers(here["version"])]
    if others:
        text = f"{_describe(others[0])}; here it is {here['version']}"
        return Finding("worker Python", "problem", text, SAME_PYTHON)
    hosts = {worker["host"] for worker in workers}
    return Finding("worker Python", "ok", f"{_describe(workers[0])}; {_count(hosts, 'machine')} asked")


def check_worker_packages(workers: Iterable[Facts], here: Facts) -> Finding:
    """The packages must be present, dovetail in the same version. Other versions should be the same."""
    check, workers = "worker packages", list(workers)
    for worker in workers:
        missing = [name for name in ("dovetail", *PACKAGES) if name not in worker["modules"]]
        if missing:
            text = f"{_describe(worker)} has no {', '.join(missing)}"
            return Finding(check, "problem", text, SAME_PYTHON)
    for name, status in (("dovetail", "problem"), *((name, "warning") for name in PACKAGES)):
        for worker in workers:
            there, mine = worker["modules"][name], here["modules"].get(name)
            if there != mine:
                text = f"{_describe(worker)} has {name} {there}; here it is {mine}"
                return Finding(check, status, text, SAME_PYTHON)
    return Finding(check, "ok", _versions(workers[0]["modules"]))


def check_clocks(clocks: Facts) -> Finding:
    """A worker's clock was read between two readings of our own: how far it is outside of them."""
    skews = {host: max(clocks["began"] - clock, clock - clocks["ended"], 0.0) for host, clock in clocks["workers"]}
    host, skew = max(skews.items(), key=lambda entry: entry[1])
    if skew > SKEW_S:
        fix = "Ages of state and reports of progress will be wrong: let all machines use NTP."
        return Finding("clocks", "warning", f"that of {host} differs by {skew:,.1f} s or more", fix)
    exactness = clocks["ended"] - clocks["began"]
    return Finding("clocks", "ok", f"those of workers differ by {skew + exactness:.1f} s at most")


def check_shared(shared: Facts) -> Iterator[Finding]:
    if "error" in shared:
        yield Finding("state place", "problem", shared["error"])
        return
    where = "tasks and this process" if shared["seen"] else "tasks, not by this process,"
    yield Finding("state place", "ok", f"{shared['path']}: written and read by {where}")
    if shared["free_bytes"] is not None:  # object stores do not report it
        yield check_disk("state disk", [(shared["path"], shared["free_bytes"])])


def check_partitions(tasks: int, partitions: str | None) -> Finding:
    text = f"{_count(range(tasks), 'core')}, spark.sql.shuffle.partitions is {partitions}"
    if partitions is None or not partitions.isdigit():
        return Finding("parallelism", "ok", text)
    if int(partitions) < tasks:
        return Finding("parallelism", "warning", text, f"Some cores will be idle: set it to {tasks} or more.")
    if int(partitions) > MANY_PARTITIONS * tasks:
        fix = f"Every micro-batch of a stream starts as many tasks: set it to {2 * tasks} to {4 * tasks}."
        return Finding("parallelism", "warning", text, fix)
    return Finding("parallelism", "ok", text)


def check_end(told: Facts, master: str, timeout_s: float) -> Iterator[Finding]:
    """Why the probe did not finish, if it did not."""
    reach = f"Is {master} the right address, and can this machine reach it?"
    log = f" Spark's log is {told['log']}." if "log" in told else ""
    if "error" in told:
        check, text = "Spark" if "session" not in told else "tasks", told["error"]
        if GIVEN_UP in text:
            text = f"it has given up on {master}, which does not answer or refuses this application"
        yield Finding(check, "problem", text, f"{reach}{log}")
    elif told.get("late"):
        if "session" not in told:
            text, fix = f"no session at {master}", reach
        elif "tasks" not in told:
            text = "no task was run"
            fix = "Are there workers with free cores and memory, and can they connect to this machine?"
        else:
            text, fix = "workers do not answer", "Are they overloaded? Their logs say more."
        yield Finding("time", "problem", f"{text} within {timeout_s:g} s", f"{fix} --timeout gives it longer.{log}")


def ask_cluster(master: str, state_dir: str | None, conf: Mapping[str, str], timeout_s: float) -> dict[str, Any]:
    """The facts that the probe reports until it ends, or until the timeout."""
    asked = {"master": master, "state_dir": state_dir, "conf": dict(conf)}
    handle, log = tempfile.mkstemp(prefix="dovetail-doctor-", suffix=".log")
    with tempfile.TemporaryFile("w+") as given, tempfile.TemporaryFile("w+") as out, os.fdopen(handle, "r+") as errors:
        json.dump(asked, given)
        given.seek(0)
        process = subprocess.Popen(
            [sys.executable, "-c", PROBE], stdin=given, stdout=out, stderr=errors, start_new_session=True
        )
        told: dict[str, Any] = {}
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            told["late"] = True
        finally:
            _end(process)
        told |= _read(out)
        if process.returncode > 0 and "error" not in told and "late" not in told:
            errors.seek(0)
            lines = errors.read().strip().splitlines()
            told["error"] = lines[-1] if lines else f"the process that asks Spark ended with {process.returncode}"
    if "error" in told:
        told["error"] = without_secrets(told["error"], master, [conf[name] for name in conf if SECRET.search(name)])
    if told.keys() & {"error", "late"}:
        told["log"] = log
    else:
        os.unlink(log)
    return told


def _read(out: IO[str]) -> dict[str, Any]:
    out.seek(0)
    told: dict[str, Any] = {}
    for line in out:
        if line.startswith("{") and line.endswith("}\n"):
            told |= json.loads(line)
    return told


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and Spark's JVM in its process group. If asked to end, the JVM removes its files first."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            continue
    process.wait()


def _pyspark_version() -> str | None:
    try:
        return str(importlib.import_module("pyspark.version").__version__)
    except ImportError:
        return None


def _describe_cache() -> dict[str, Any]:
    from dovetail.kernels.compiling import inspect_cache

    return inspect_cache()._asdict()


def _numbers(version: str) -> tuple[int, int]:
    """Major and minor version."""
    major, minor = re.findall(r"\d+", f"{version}.0")[:2]
    return int(major), int(minor)


def _versions(modules: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {modules[name]}" for name in ("dovetail", *PACKAGES) if name in modules)


def _describe(worker: Facts) -> str:
    return f"{worker['python']} ({worker['version']}) of {worker['host']}"


def _at(caches: Iterable[Facts]) -> str:
    hosts = sorted({cache["host"] for cache in caches if "host" in cache})
    return f"{', '.join(hosts)}: " if hosts else ""


def _count(things: Iterable[Any], name: str) -> str:
    number = len(list(things))
    return f"{number:,} {name}" if number == 1 else f"{number:,} {name}s"
