"""Files as inputs: what they are, and their schema, told without reading the data."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds

from dovetail.errors import InputError

FORMATS = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".orc": "orc",
}


def format_of(path: Path) -> str:
    """The format of a file or of a directory of files, by name."""
    if not path.exists():
        raise InputError(f"{path}: no such file or directory.")
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    found = {FORMATS[p.suffix] for p in files if p.suffix in FORMATS}
    if len(found) != 1:
        what = "files of several formats" if found else "no file of a known format"
        raise InputError(f"{path}: {what}. Known are {', '.join(FORMATS)}.")
    return found.pop()


def dataset_of(path: Path) -> ds.Dataset:
    """The file or directory as a dataset; opening it reads the schema only."""
    name = format_of(path)
    try:
        return ds.dataset(path, format=name, partitioning="hive" if path.is_dir() else None)
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"{path} cannot be read as {name}: {error}") from error


def check_output(path: Path, *, overwrite: bool) -> None:
    """See that results can be written there, before any work is done."""
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} is a file; --out takes a directory.")
    if path.is_dir() and any(path.iterdir()) and not overwrite:
        raise InputError(f"{path} is not empty. Give another directory, or --overwrite.")
    try:
        path.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
    except OSError as error:
        raise InputError(f"{path} cannot be written to: {error.strerror}.") from error
