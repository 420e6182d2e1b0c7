"""`dovetail sql "SELECT …"`: runs a query over files in this process.

    dovetail sql "SELECT * FROM 'trips.csv' t JOIN 'fares.parquet' f ON t.km < f.up_to"
    dovetail sql "SELECT * FROM trips JOIN fares ON km < up_to" trips=trips.csv fares=fares.parquet

Files are named in quotes in the query, or given names after it.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from rich.console import Console

from dovetail.cli.results import Target, open_writer
from dovetail.cli.table import ColumnOfResult, show_table
from dovetail.core.file_formats import FORMATS
from dovetail.errors import InputError
from dovetail.plain_sql import sql
from dovetail.query.text import read_query, tables_in


def read_tables(given: Sequence[str]) -> dict[str, str]:
    """The files, by the names that the query uses for them."""
    tables: dict[str, str] = {}
    for text in given:
        name, equals, place = text.partition("=")
        if not equals or not name.isidentifier() or not place:
            raise InputError(f"a table is NAME=FILE, such as trips=trips.csv; got {text!r}.")
        if name in tables:
            raise InputError(f"{name} is given twice.")
        tables[name] = place
    return tables


def run_query(text: str, tables: dict[str, str], target: Target, console: Console, *, overwrite: bool) -> int:
    """Write the result of a query. Returns its number of rows."""
    tree = read_query(text)
    named = [name for name in tables_in(tree) if any(name.endswith(suffix) for suffix in FORMATS)] if tree else []
    target.check(overwrite=overwrite, inputs=[*tables.values(), *named])
    found: pa.Table = sql(text, None, tables)
    target.check_schema(found.schema)
    shown = target.rows_for_people
    with open_writer(
        target,
        found.schema,
        lambda rows: show_table(
            rows, console, [ColumnOfResult(of_right=False, is_key=True) for _ in rows.column_names]
        ),
    ) as write:
        write(found if shown is None else found.slice(0, shown))
    return int(found.num_rows)
