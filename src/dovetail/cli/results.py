"""Writes the rows of `dovetail join`: to Parquet, Arrow, CSV or JSON lines files, or to standard output.

    --out hits.parquet, .arrow, .csv, .jsonl     one file
    --out hits/, or another name                 a directory: of Parquet, or in the format of --format
    --format csv, json                           standard output, for other programs
    nothing                                      standard output, a table of the first rows, for people

Files replace earlier ones only when they are complete.
"""

from __future__ import annotations

import io
import json
import math
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from dovetail.core.addresses import local_path
from dovetail.core.directories import check_link
from dovetail.core.drafts import draft, is_draft
from dovetail.core.tables import check_output, is_part_of_result, uses_dictionaries
from dovetail.errors import InputError
from dovetail.visible import visible

PARQUET, ARROW, CSV, JSON, TABLE = "parquet", "arrow", "csv", "json", "table"
FORMATS = (PARQUET, ARROW, CSV, JSON)
FILES = {
    ".parquet": PARQUET,
    ".arrow": ARROW,
    ".feather": ARROW,
    ".csv": CSV,
    ".json": JSON,
    ".jsonl": JSON,
    ".ndjson": JSON,
}
OTHERS = {".avro", ".gz", ".orc", ".tsv", ".txt", ".xls", ".xlsx", ".zip"}
"""Suffixes of other formats: a directory with such a name is probably a mistake."""
SUFFIXES = {PARQUET: ".parquet", ARROW: ".arrow", CSV: ".csv", JSON: ".json"}
GROUP_ROWS = 1 << 20  # rows of one group in a Parquet file
SHOWN_ROWS = 20  # of a table on the terminal, if no limit is given


class Target(NamedTuple):
    """The destination of rows, and the format."""

    path: Path | None
    format: str
    is_file: bool = False

    @classmethod
    def read(cls, given: str | os.PathLike[str] | None, format_: str | None) -> Target:
        """A name that ends with a slash is a directory, also if it has a suffix. So is an existing directory."""
        if format_ is not None and format_ not in FORMATS:
            raise InputError(f"--format is one of {', '.join(FORMATS)}; got {format_!r}.")
        if given is None:
            if format_ in (PARQUET, ARROW):
                raise InputError(f"--format {format_} needs --out; csv and json can go to standard output.")
            return cls(None, format_ or TABLE)
        out = local_path(given, "--out is a path of this machine")
        is_directory = os.fspath(given).endswith("/") or out.is_dir()
        named = None if is_directory else FILES.get(out.suffix.lower())
        if named is not None and format_ not in (None, named):
            raise InputError(f"--out {out} is a file of {named}, --format says {format_}: leave one of them out.")
        if not is_directory and out.suffix.lower() in OTHERS:
            raise InputError(
                f"--out {out}: {out.suffix} cannot be written. Give a file that ends with {', '.join(FILES)}, "
                "or a directory, with a slash at the end."
            )
        return cls(out, named or format_ or PARQUET, named is not None)

    def check(self, *, overwrite: bool, inputs: Iterable[str]) -> None:
        """Check that results can be written there, before any work is done."""
        if self.path is None:
            return
        check_link(self.path)
        if not self.is_file:
            check_output(self.path, overwrite=overwrite)
        here = self.path.resolve()
        for place in (Path(name).resolve() for name in inputs):
            if place == here or here in place.parents or (place.is_dir() and place in here.parents):
                raise InputError(f"{self.path} contains an input of the join. Give another place for the results.")
        if not self.is_file:
            return
        if self.path.exists() and not overwrite:
            raise InputError(f"{self.path} already exists. Give another file, or --overwrite.")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=self.path.parent).close()
        except OSError as error:
            raise InputError(f"{self.path} cannot be written to: {error.strerror}.") from error

    def check_schema(self, schema: pa.Schema) -> None:
        """CSV has plain values only. An Arrow file has one dictionary per column, but dictionaries grow as rows
        arrive.
        """
        inside = [field.name for field in schema if pa.types.is_nested(field.type) and uses_dictionaries(field.type)]
        if self.format == ARROW and inside:
            names = ", ".join(inside)
            raise InputError(f"an Arrow file cannot hold dictionaries in lists and structs: {names}. Write Parquet.")
        nested = [field.name for field in schema if pa.types.is_nested(field.type)]
        if self.format == CSV and nested:
            names = ", ".join(nested)
            raise InputError(f"CSV cannot hold lists and structs: {names}. --select other columns, or --format json.")

    @property
    def has_result(self) -> bool:
        """Whether there is an earlier result that this one would replace."""
        if self.path is None or self.is_file:
            return self.path is not None and self.path.exists()
        files = self.path.iterdir() if self.path.is_dir() else ()
        return any(is_part_of_result(file) and not file.name.startswith(".") for file in files)

    @property
    def prints_lines(self) -> bool:
        """Whether rows are printed to standard output as they are found."""
        return self.path is None and self.format != TABLE

    @property
    def rows_for_people(self) -> int | None:
        """The number of rows to show in a table, if no limit is given."""
        return SHOWN_ROWS if self.format == TABLE else None


Write = Callable[[pa.Table], None]


def _print(data: bytes) -> None:
    """Print bytes unchanged for other programs, and readable on a terminal."""
    text = data.decode()
    sys.stdout.write(visible(text) if sys.stdout.isatty() else text)


@contextmanager
def open_writer(
    target: Target, schema: pa.Schema, show: Callable[[pa.Table], object] = lambda _: None
) -> Iterator[Write]:
    """A function that writes tables. Files appear when everything is written; `show` gets the rows for a terminal."""
    if target.format == TABLE:
        shown: list[pa.Table] = []
        yield shown.append
        show(pa.concat_tables(shown) if shown else schema.empty_table())
    elif target.path is None:
        yield _text_writer(target.format, _print)
        sys.stdout.flush()
    else:
        one_file = draft(target.path) if target.is_file else _replace_directory(target.path, target.format)
        with one_file as file:
            if target.format == PARQUET:
                with pq.ParquetWriter(file, schema) as groups:
                    yield lambda table: groups.write_table(table, GROUP_ROWS)
            elif target.format == ARROW:
                with pa.ipc.new_file(file, _plain(schema)) as batches:
                    yield lambda table: batches.write_table(_without_dictionaries(table))
            else:
                yield _text_writer(target.format, file.write)


@contextmanager
def _replace_directory(directory: Path, format_: str) -> Iterator[BinaryIO]:
    """A file that replaces an earlier result in the directory when it is complete."""
    with draft(directory / f"part-0{SUFFIXES[format_]}") as file:
        yield file
        for path in directory.iterdir():
            if is_part_of_result(path) and not is_draft(path):  # another process may be writing one
                path.unlink()


def _text_writer(format_: str, write: Callable[[bytes], Any]) -> Write:
    return _csv_writer(write) if format_ == CSV else lambda table: _write_json(table, write)


def _csv_writer(write: Callable[[bytes], Any]) -> Write:
    header = [True]

    def write_table(table: pa.Table) -> None:
        text = io.BytesIO()
        options = pyarrow.csv.WriteOptions(include_header=header.pop() if header else False)
        pyarrow.csv.write_csv(_without_dictionaries(_with_texts(table)), text, options)
        write(text.getvalue())

    return write_table


def _with_texts(table: pa.Table) -> pa.Table:
    """Text instead of types that CSV does not have, such as UUID."""
    for number, field in enumerate(table.schema):
        if isinstance(field.type, pa.BaseExtensionType):
            texts = [None if value is None else str(value) for value in table.column(number).to_pylist()]
            table = table.set_column(number, field.name, pa.array(texts, pa.string()))
    return table


def _without_dictionaries(table: pa.Table) -> pa.Table:
    return table.cast(_plain(table.schema))


def _plain(schema: pa.Schema) -> pa.Schema:
    """Values instead of dictionaries: CSV has none, and an Arrow file needs one for all rows from the start."""
    types = [field.type.value_type if pa.types.is_dictionary(field.type) else field.type for field in schema]
    return pa.schema([field.with_type(type_) for field, type_ in zip(schema, types, strict=True)])


def _write_json(table: pa.Table, write: Callable[[bytes], Any]) -> None:
    for batch in table.to_batches():
        lines = (json.dumps(row, default=_as_json, ensure_ascii=False) for row in map(_without_nans, batch.to_pylist()))
        write("".join(f"{line}\n" for line in lines).encode())


def _without_nans(value: Any) -> Any:
    """JSON has no NaN or infinity. They become text, as in Spark."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {name: _without_nans(inner) for name, inner in value.items()}
    return [_without_nans(inner) for inner in value] if isinstance(value, list) else value


def _as_json(value: Any) -> Any:
    if isinstance(value, date | datetime | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return float(value)
    return value.hex() if isinstance(value, bytes) else str(value)
