"""The format of a file, by the end of its name. Imports no Arrow, so a wrong path is refused at once."""

from __future__ import annotations

import os
from pathlib import Path

from dovetail.core.addresses import local_path
from dovetail.errors import InputError

FORMATS = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".orc": "orc",
}


def input_path(given: str | os.PathLike[str]) -> Path:
    return local_path(given, "an input is a path of this machine, or a pyarrow.dataset.dataset with a filesystem")


def format_of(path: Path) -> str:
    """The format of a file or a directory of files, by name."""
    if not path.exists():
        raise InputError(f"{path}: no such file or directory.")
    files = files_in(path)
    found = {FORMATS[file.suffix] for file in files if file.suffix in FORMATS}
    if len(found) != 1:
        what = "files of several formats" if found else "no file of a known format"
        raise InputError(f"{path}: {what}. Known are {', '.join(FORMATS)}.")
    return found.pop()


def files_in(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
