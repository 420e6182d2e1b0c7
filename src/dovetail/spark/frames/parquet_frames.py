"""DataFrames that are plain reads of Parquet files: columns of them, under any names, and simple filters.

Rows have positions: files in the order of their paths, row groups and rows as they are in the files. Whoever knows them
can read any part of the DataFrame in any process, without Spark. Everything else is refused with a reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from dovetail.condition import Call, Column, Expression, Literal, parse
from dovetail.errors import ConditionError
from dovetail.sources.parquet_files import File, ParquetRows, row_bytes
from dovetail.spark.frames.schemas import arrow_schema, session_zone

PARQUET = "org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat"
PASSED = ("SubqueryAlias", "View")
LEGACY = b"org.apache.spark.legacy"  # files of old calendars, which Spark converts as it reads
WHOLE = ("us", "ms")  # units of time that Spark's microseconds can hold
SIMPLE = frozenset(["and", "or", "not", "=", "!=", "<", "<=", ">", ">=", "<=>", "in", "is_null", "like"])
"""What filters may be made of: nothing that can fail, or that depends on Spark's settings."""


class NotPlainError(Exception):
    """Why a DataFrame cannot be read without Spark."""


class PlainRead(NamedTuple):
    """Rows of files, and what those of them that are in the DataFrame satisfy, as conditions on a left side."""

    rows: ParquetRows
    filters: tuple[Expression, ...]


def plain_read(frame: DataFrame) -> PlainRead:
    """The rows of a DataFrame by position; NotPlainError if that is not possible."""
    schema = arrow_schema(frame)
    if not hasattr(frame, "_jdf"):
        raise NotPlainError("a Connect session does not show which files a DataFrame reads")
    columns, filters = _columns(frame, schema)
    paths = sorted(_local(uri) for uri in frame.inputFiles())
    if not paths:
        raise NotPlainError("there are no files")
    footers = [_footer(path) for path in paths]
    for path, footer in zip(paths, footers, strict=True):
        _check(path, footer, columns, schema)
    files = [File.from_metadata(path, footer) for path, footer in zip(paths, footers, strict=True)]
    stored = pa.schema([field.with_name(name) for field, name in zip(schema, columns, strict=True)])
    whole = [all(_is_whole(footer, name) for footer in footers) for name in columns]
    return PlainRead(ParquetRows(files, columns, schema, row_bytes(footers, stored), whole), tuple(filters))


def _is_whole(footer: pq.FileMetaData, name: str) -> bool:
    """Whether the file says that a column has no nulls."""
    position = footer.schema.names.index(name) if footer.schema.names.count(name) == 1 else -1
    if position < 0 or footer.schema.column(position).path != name:  # part of another column
        return False
    for group in range(footer.num_row_groups):
        statistics = footer.row_group(group).column(position).statistics
        if statistics is None or not statistics.has_null_count or statistics.null_count:
            return bool(footer.schema.column(position).max_definition_level == 0)
    return True


def _columns(frame: DataFrame, schema: pa.Schema) -> tuple[list[str], list[Expression]]:
    """What the columns are called in the files, and the filters."""
    plan = frame._jdf.queryExecution().withCachedData()
    filters: list[Expression] = []
    wanted = [attribute.exprId().id() for attribute in _each(plan.output())]
    while True:
        match kind := str(plan.getClass().getSimpleName()):
            case "Project":
                made = dict(_projected_column(item) for item in _each(plan.projectList()))
                wanted = [made[number] for number in wanted]
                plan = plan.child()
            case "Filter":
                filters += _filter(plan.condition(), wanted, schema, session_zone(frame))
                plan = plan.child()
            case "LogicalRelation":
                names = _relation(plan)
                if not all(number in names for number in wanted):
                    raise NotPlainError("it has a column that is not in the files")
                return [names[number] for number in wanted], filters
            case _ if kind in PASSED:
                plan = plan.child()
            case _:
                raise NotPlainError(f"it is not a plain read of files, but has a {kind}")


def _projected_column(item: Any) -> tuple[int, int]:
    kind = str(item.getClass().getSimpleName())
    number = item.exprId().id()
    if kind == "Alias":
        item = item.child()
        kind = str(item.getClass().getSimpleName())
    if kind != "AttributeReference":
        raise NotPlainError(f"it has a computed column, {item.sql()}")
    return number, item.exprId().id()


def _filter(condition: Any, wanted: list[int], schema: pa.Schema, zone: str) -> Sequence[Expression]:
    """A filter over columns that are in the result under the names that it uses."""
    text = str(condition.sql())
    for attribute in _each(condition.references().toSeq()):
        number = attribute.exprId().id()
        if number not in wanted or schema.names[wanted.index(number)] != str(attribute.name()):
            raise NotPlainError(f"it is filtered by {attribute.name()}, which is not among its columns")
    try:
        parsed = parse(text, schema, pa.schema([]), zone)
    except ConditionError as error:
        raise NotPlainError(f"it is filtered by {text}: {error}") from error
    if not all(_is_simple(part) for part in (*parsed.filters[0], *parsed.residual)):
        raise NotPlainError(f"it is filtered by {text}, which only Spark evaluates")
    return (*parsed.filters[0], *parsed.residual)


def _is_simple(expression: Expression) -> bool:
    match expression:
        case Column() | Literal():
            return True
        case Call("cast", (Column(type=from_),), to):
            return from_ is not None and to is not None and pa.types.is_integer(from_) and to == pa.int64()
        case Call(function, args):
            return function in SIMPLE and all(_is_simple(arg) for arg in args)
    return False


def _relation(plan: Any) -> dict[int, str]:
    """The columns of a relation by the numbers that Spark gave them."""
    relation = plan.relation()
    name = str(relation.getClass().getSimpleName())
    if name != "HadoopFsRelation":
        raise NotPlainError(f"it reads a {name}")
    format_ = str(relation.fileFormat().getClass().getName())
    if format_ != PARQUET:
        raise NotPlainError(f"it reads files of {format_.rpartition('.')[2]}, not plain Parquet")
    if relation.partitionSchema().size():
        raise NotPlainError("it is partitioned by columns that are not in the files")
    return {attribute.exprId().id(): str(attribute.name()) for attribute in _each(plan.output())}


def _local(uri: str) -> str:
    parsed = urlparse(uri)
    if parsed.scheme not in ("", "file"):
        raise NotPlainError(f"{uri} is not in a file system that every process mounts")
    return unquote(parsed.path)


def _footer(path: str) -> pq.FileMetaData:
    try:
        return pq.read_metadata(path)
    except (OSError, pa.ArrowException) as error:
        raise NotPlainError(f"{path} cannot be read here: {error}") from error


def _check(path: str, footer: pq.FileMetaData, columns: Sequence[str], schema: pa.Schema) -> None:
    """See that the file has the columns, of the types that Spark reads them as."""
    if any(key.startswith(LEGACY) for key in footer.metadata or {}):
        raise NotPlainError(f"{path} has dates in an old calendar")
    stored = footer.schema.to_arrow_schema()
    for name, field in zip(columns, schema, strict=True):
        if len(stored.get_all_field_indices(name)) != 1:
            raise NotPlainError(f"{path} has no column called exactly {name}")
        found = stored.field(name).type
        if not _reads_as(found, field.type):
            raise NotPlainError(f"{name} is {found} in {path}, and {field.type} in Spark")


def _reads_as(found: pa.DataType, wanted: pa.DataType) -> bool:
    t = pa.types
    if t.is_dictionary(found):
        found = found.value_type
    if t.is_large_string(found) or t.is_string_view(found):
        found = pa.string()
    if t.is_large_binary(found) or t.is_binary_view(found):
        found = pa.binary()
    if t.is_timestamp(found) and t.is_timestamp(wanted):
        return (found.tz is None) == (wanted.tz is None) and found.unit in WHOLE
    return bool(found == wanted)


def _each(sequence: Any) -> list[Any]:
    """The items of a Scala sequence."""
    return [sequence.apply(position) for position in range(sequence.size())]
