"""Recognises DataFrames that are plain reads of Parquet files: columns under any names, and simple filters.

Rows have positions: files in the order of their paths, row groups and rows as stored; for a partitioned table,
partitions in the order of their values. So any process can read any part of the DataFrame without Spark. Filters on
partitions skip files. Anything else is refused with a reason.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from dovetail.condition import Call, Column, Expression, Literal, columns_of, evaluate, parse, unqualified
from dovetail.condition.expression import SIMPLE
from dovetail.core.addresses import redacted
from dovetail.errors import ConditionError, DovetailError
from dovetail.sources.parquet_files import File, Footer, ParquetRows, Stamp, group_sizes, read_footer, row_bytes
from dovetail.spark.frames.file_systems import stored_file
from dovetail.spark.frames.parquet_types import absent_columns, conversion, difference
from dovetail.spark.frames.schemas import arrow_schema, session_zone
from dovetail.spark.versions import arrow_type
from dovetail.storage.store import Store

PARQUET = "org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat"
CATALOG = "CatalogFileIndex"
PASSED = ("SubqueryAlias", "View")
MARK = "(true)"  # a column that is true in each row, and not in any file
AT_ONCE = 16  # footers read in parallel


class NotPlainError(Exception):
    """The reason why a DataFrame cannot be read without Spark."""


class PlainRead(NamedTuple):
    """Rows of files, and the filters of the DataFrame as conditions on a left side."""

    rows: ParquetRows
    filters: tuple[Expression, ...]


class _Layout(NamedTuple):
    """The paths of all files, and the values of the columns that are not in the files, by directory."""

    paths: Sequence[str]
    names: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    values: Mapping[str, tuple[Any, ...]]


class _Facts(NamedTuple):
    """The facts kept from a footer."""

    groups: tuple[int, ...]
    stamp: Stamp
    whole: tuple[bool, ...]  # by column
    absent: set[str]
    row_bytes: int


def plain_read(frame: DataFrame, most_files: int | None = None, *, with_filtered: bool = False) -> PlainRead:
    """The rows of a DataFrame by position. Raises NotPlainError if that is not possible.

    `most_files`: the limit in an object store, where each footer takes a request; None: no limit. `with_filtered`:
    filter columns that are not in the DataFrame come after its own columns.
    """
    visible = arrow_schema(frame)
    if not hasattr(frame, "_jdf"):
        raise NotPlainError("a Connect session does not show which files a DataFrame reads")
    columns, schema, filters, layout = _columns(frame, visible)
    found = _files(frame, layout)
    if not found:
        raise NotPlainError("there are no files")
    filters, found = _prune(filters, found, layout, dict(zip(schema.names, columns, strict=True)))
    if not found:
        raise NotPlainError("its filters leave no files")
    used = {column.name for part in filters for column in columns_of(part)}
    kept = [i for i, name in enumerate(schema.names) if i < len(visible) or name in used]
    columns, schema = [columns[i] for i in kept], pa.schema([schema.field(i) for i in kept])
    if len(schema) > len(visible) and not with_filtered:
        raise NotPlainError(f"it is filtered by {columns[-1]}, which is not among its columns")
    if most_files is not None and sum(store.path is None for store, _, _ in found) > most_files:
        raise NotPlainError(f"it has {len(found):,} files")
    if (setting := conversion(frame.sparkSession, schema)) is not None:
        raise NotPlainError(f"Spark may convert its dates and times, by {setting}")
    stored = [name for name in columns if name not in layout.names and name != MARK]
    fields = dict(zip(columns, schema, strict=True))
    facts = _read_facts(found, stored, pa.schema([fields[name].with_name(name) for name in stored]))
    marks = {MARK: True} if MARK in columns else {}
    files = [
        File(store, name, known.groups, known.stamp, {**values, **marks, **dict.fromkeys(known.absent)})
        for (store, name, values), known in zip(found, facts, strict=True)
    ]
    whole = {name: all(known.whole[i] for known in facts) for i, name in enumerate(stored)} | {MARK: True}
    without_nulls = [whole.get(name, False) for name in columns]
    widths = [known.row_bytes for known in facts if known.groups]  # files may lack columns that others have
    width = max(widths, default=0) + 8 * (len(columns) - len(stored))
    return PlainRead(ParquetRows(files, columns, schema, width, without_nulls), tuple(filters))


_Found = tuple[Store, str, Mapping[str, Any]]
"""A file by store and name, and the values in the name of its directory."""


def _files(frame: DataFrame, layout: _Layout) -> list[_Found]:
    """In the order of partitions, then of paths."""
    roots: dict[str, Store] = {}
    found: list[_Found] = []
    for uri in sorted(layout.paths, key=lambda uri: urlsplit(uri).path):
        try:
            store, name = stored_file(frame.sparkSession, uri, roots)
        except DovetailError as error:
            raise NotPlainError(f"{redacted(uri)} cannot be read here: {error}") from error
        values: tuple[Any, ...] = ()
        if layout.names:
            if (known := layout.values.get(uri.rpartition("/")[0])) is None:
                raise NotPlainError(f"{redacted(uri)} is in no partition that Spark knows")
            values = known
        found.append((store, name, dict(zip(layout.names, values, strict=True))))
    if layout.names:
        found.sort(key=lambda file: [(value is not None, value) for value in file[2].values()])
    return found


def _prune(
    filters: list[Expression], found: list[_Found], layout: _Layout, columns: Mapping[str, str]
) -> tuple[list[Expression], list[_Found]]:
    """Evaluate filters on columns that are constant in each file. Returns the remaining filters and files.

    `columns`: the table's names for the columns of the DataFrame.
    """
    types = dict(zip(layout.names, layout.types, strict=True))
    names = {column.name: columns.get(column.name, column.name) for part in filters for column in columns_of(part)}
    used = [{names[column.name] for column in columns_of(part)} for part in filters]
    constant = [part for part, some in zip(filters, used, strict=True) if some and some <= types.keys()]
    if not constant:
        return filters, found

    def passes(values: Mapping[str, Any]) -> bool:
        row = {ours: pa.array([values[name]], types[name]) for ours, name in names.items() if name in types}
        batch = pa.RecordBatch.from_pydict(row)
        return all(evaluate(part, batch, None)[0].as_py() for part in constant)

    return [part for part in filters if part not in constant], [file for file in found if passes(file[2])]


def _read_facts(found: Sequence[_Found], columns: Sequence[str], schema: pa.Schema) -> list[_Facts]:
    """The footers of all files, read in parallel. `schema`: of the columns, as Spark reads them."""
    refused: dict[Store, NotPlainError] = {}

    def read(file: _Found) -> _Facts | NotPlainError:
        store, name, _ = file
        if store in refused:  # one failure is enough
            return refused[store]
        try:
            footer = _footer(store, name)
            if (reason := difference(str(store / name), footer.metadata, columns, schema)) is not None:
                raise NotPlainError(reason)
        except NotPlainError as error:
            return refused.setdefault(store, error)
        whole = tuple(_is_whole(footer.metadata, column) for column in columns)
        width = row_bytes([footer.metadata], schema)
        return _Facts(
            group_sizes(footer.metadata), footer.stamp, whole, absent_columns(footer.metadata, columns), width
        )

    first = [read(file) for file in found[:1]]  # checked first, so that not all requests fail
    with ThreadPoolExecutor(AT_ONCE) as pool:
        facts = [*first, *pool.map(read, found[1:])]
    for known in facts:
        if isinstance(known, NotPlainError):
            raise known
    return [known for known in facts if isinstance(known, _Facts)]


def _is_whole(footer: pq.FileMetaData, name: str) -> bool:
    """Whether the file's statistics show that a column has no nulls."""
    position = footer.schema.names.index(name) if footer.schema.names.count(name) == 1 else -1
    if position < 0 or footer.schema.column(position).path != name:  # a part of another column
        return False
    for group in range(footer.num_row_groups):
        statistics = footer.row_group(group).column(position).statistics
        if statistics is None or not statistics.has_null_count or statistics.null_count:
            return bool(footer.schema.column(position).max_definition_level == 0)
    return True


class _Filter(NamedTuple):
    text: str  # of Spark
    read: dict[str, int]  # Spark's column numbers at this point


Shown = dict[str, Any]
"""A node of a plan or expression, in Spark's JSON format."""


def _columns(frame: DataFrame, schema: pa.Schema) -> tuple[list[str], pa.Schema, list[Expression], _Layout]:
    """The names of the columns in the files, the filters, and the columns that are not in the files.

    Filter columns that are not in the DataFrame come last in the schema.
    """
    zone = session_zone(frame)
    filters: list[_Filter] = []
    wanted: list[int] | None = None
    marks: dict[int, int] = {}
    for plan, shown in _nodes(frame._jdf.queryExecution().withCachedData()):
        match _kind(shown):
            case "Project":
                items = [_projected_column(plan, item, place) for place, item in enumerate(shown["projectList"])]
                wanted = [number for number, _ in items] if wanted is None else wanted
                marks |= {number: number for number, read in items if read is None}
                made = marks | {number: read for number, read in items if read is not None}
                wanted = [made[number] for number in wanted]
                filters = [one._replace(read={n: made[number] for n, number in one.read.items()}) for one in filters]
            case "Filter":
                filters.append(_read_filter(plan, shown))
            case "LogicalRelation":
                columns = {_number(column): column for (column,) in shown["output"]}
                names = {number: str(column["name"]) for number, column in columns.items()} | dict.fromkeys(marks, MARK)
                wanted = [*columns] if wanted is None else wanted
                numbers = {*wanted, *(number for one in filters for number in one.read.values())}
                if not numbers <= names.keys():
                    raise NotPlainError("it has a column that is not in the files")
                called = dict(zip(wanted, schema.names, strict=True))
                for number in sorted(numbers - called.keys()):
                    called[number] = f"{names[number]} (filtered)"
                    wanted.append(number)
                    schema = schema.append(pa.field(called[number], _type_of(columns[number], zone)))
                read = [e for one in filters for e in _filter(one, called, schema, zone)]
                return [names[number] for number in wanted], schema, read, _layout(frame, plan.relation())
    raise NotPlainError("it is not a plain read of files")


def _nodes(plan: Any) -> list[tuple[Any, Shown]]:
    """The nodes of a plan, down to the files that it reads. Fetched as one JSON text, since each call takes time."""
    nodes = [plan]
    while (kind := str(nodes[-1].getClass().getSimpleName())) != "LogicalRelation":
        if kind not in ("Project", "Filter", *PASSED):
            raise NotPlainError(f"it is not a plain read of files, but has a {kind}")
        nodes.append(nodes[-1].child())
    _check_relation(nodes[-1].relation())
    try:
        shown = json.loads(str(plan.toJSON()))
    except Py4JJavaError as error:
        raise NotPlainError("Spark cannot write its plan") from error
    return list(zip(nodes, shown, strict=True))


def _kind(shown: Shown) -> str:
    return str(shown["class"]).rpartition(".")[2]


def _number(column: Shown) -> int:
    """Spark's identifier of a column."""
    return int(column["exprId"]["id"])


def _read_filter(plan: Any, shown: Shown) -> _Filter:
    read: dict[str, int] = {}
    qualified: set[tuple[str, ...]] = set()
    for node in shown["condition"]:
        if _kind(node) != "AttributeReference":
            continue
        name = str(node["name"])
        qualified.add((*_parts(node["qualifier"]), name))
        if read.setdefault(name, _number(node)) != _number(node):
            raise NotPlainError(f"it is filtered by two columns called {name}")
    return _Filter(unqualified(str(plan.condition().sql()), qualified), read)


def _parts(qualifier: str | list[str]) -> list[str]:
    """Spark's JSON has a qualifier as the text `[a, b]`. A part with a comma will not be recognised in filters."""
    return qualifier.strip("[]").split(", ") if isinstance(qualifier, str) else qualifier


def _type_of(column: Shown, zone: str) -> pa.DataType:
    """The type of a column of a relation."""
    field = {"name": "", "type": column["dataType"], "nullable": True, "metadata": {}}
    return arrow_type(StructField.fromJson(field).dataType, zone)


def _projected_column(plan: Any, item: list[Shown], place: int) -> tuple[int, int | None]:
    """A column of a projection, and its source column. None for the source if it is true in each row."""
    outer, *inner = item
    if _kind(outer) == "Alias" and len(inner) == 1:
        if _kind(inner[0]) == "Literal" and (inner[0]["value"], inner[0]["dataType"]) == ("true", "boolean"):
            return _number(outer), None
        if _kind(inner[0]) == "AttributeReference":
            return _number(outer), _number(inner[0])
    elif _kind(outer) == "AttributeReference":
        return _number(outer), _number(outer)
    computed = plan.projectList().apply(place)
    computed = computed.child() if _kind(outer) == "Alias" else computed
    raise NotPlainError(f"it has a computed column, {computed.sql()}")


def _filter(given: _Filter, called: Mapping[int, str], schema: pa.Schema, zone: str) -> Sequence[Expression]:
    """A filter over the columns of a schema with other names."""
    text = given.text
    own = pa.schema([schema.field(called[number]).with_name(name) for name, number in given.read.items()])
    try:
        parsed = parse(text, own, pa.schema([]), zone)
    except ConditionError as error:
        raise NotPlainError(f"it is filtered by {text}: {error}") from error
    parts = (*parsed.filters[0], *parsed.residual)
    if not all(_is_simple(part) for part in parts):
        raise NotPlainError(f"it is filtered by {text}, which only Spark evaluates")
    return [_renamed(part, {name: called[number] for name, number in given.read.items()}) for part in parts]


def _renamed(expression: Expression, names: Mapping[str, str]) -> Expression:
    match expression:
        case Column(name=name):
            return replace(expression, name=names[name])
        case Call(args=args):
            return replace(expression, args=tuple(_renamed(arg, names) for arg in args))
    return expression


def _is_simple(expression: Expression) -> bool:
    match expression:
        case Column() | Literal():
            return True
        case Call("cast", (Column(type=from_),), to):
            return from_ is not None and to is not None and pa.types.is_integer(from_) and to == pa.int64()
        case Call(function, args):
            return function in SIMPLE and all(_is_simple(arg) for arg in args)
    return False


def _check_relation(relation: Any) -> None:
    """Check that it reads Parquet files."""
    name = str(relation.getClass().getSimpleName())
    if name != "HadoopFsRelation":
        raise NotPlainError(f"it reads a {name}")
    format_ = str(relation.fileFormat().getClass().getName())
    if format_ != PARQUET:
        raise NotPlainError(f"it reads files of {format_.rpartition('.')[2]}, not plain Parquet")


def _layout(frame: DataFrame, relation: Any) -> _Layout:
    """The files, and the partition values as Spark has read them from directory names or from the catalog."""
    schema = StructType.fromJson(json.loads(relation.partitionSchema().json()))
    types = tuple(arrow_type(field.dataType, session_zone(frame)) for field in schema)
    values: dict[str, tuple[Any, ...]] = {}
    location = relation.location()
    # The optimizer would be run for `frame.inputFiles()`. It prunes the partitions of a catalog.
    by_catalog = str(location.getClass().getSimpleName()) == CATALOG
    paths = frame.inputFiles() if by_catalog else list(map(str, location.inputFiles()))
    if types:
        for field, type_ in zip(schema, types, strict=True):
            if not _is_constant(type_):
                raise NotPlainError(f"it is partitioned by {field.name}, which is {type_}")
        jvm: Any = frame.sparkSession._jvm
        everything = jvm.PythonUtils.toSeq([])
        for directory in _each(location.listFiles(everything, everything)):
            files = directory.files()
            if files.size():
                row = _each(directory.values().toSeq(relation.partitionSchema()))
                path = str(files.apply(0).getPath().toUri().toString()).rpartition("/")[0]
                values[path] = tuple(_value(value, type_) for value, type_ in zip(row, types, strict=True))
    return _Layout(paths, tuple(field.name for field in schema), types, values)


def _is_constant(type_: pa.DataType) -> bool:
    t = pa.types
    return bool(t.is_primitive(type_) or t.is_boolean(type_) or t.is_string(type_) or t.is_decimal(type_))


def _value(value: Any, type_: pa.DataType) -> Any:
    """A value in Spark's internal form: days, microseconds, its own strings."""
    t = pa.types
    if value is None:
        return None
    if t.is_string(type_):
        return str(value.toString())
    if t.is_decimal(type_):
        return Decimal(str(value.toString()))
    if t.is_date(type_):
        return pa.scalar(value, pa.int32()).cast(type_).as_py()
    if t.is_timestamp(type_):
        return pa.scalar(value, pa.int64()).cast(type_).as_py()
    return value


def _footer(store: Store, name: str) -> Footer:
    try:
        return read_footer(store, name)
    except (OSError, pa.ArrowException, DovetailError) as error:
        raise NotPlainError(f"{store / name} cannot be read here: {error}") from error


def _each(sequence: Any) -> list[Any]:
    """The items of a Scala sequence."""
    return [sequence.apply(position) for position in range(sequence.size())]
