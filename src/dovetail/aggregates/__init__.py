"""Aggregates over the pairs of a join without enumerating them.

    rows of a cell --> partial_aggregates --> one row per group --\
    rows of a cell --> partial_aggregates --> one row per group ---+--> merged by group --> finish --> the result

Partial results have ordinary columns (`partial_schema`). Each is merged by sum, min or max (`merge` of
`partial_columns`). A single cell that has all rows, as in process, needs no merging.
"""

from dovetail.aggregates.columns import PartialColumn, finish, partial_columns, partial_schema, result_schema
from dovetail.aggregates.partial import ROW, aggregates_of_left, partial_aggregates, partials_by_row

__all__ = [
    "ROW",
    "PartialColumn",
    "aggregates_of_left",
    "finish",
    "partial_aggregates",
    "partial_columns",
    "partial_schema",
    "partials_by_row",
    "result_schema",
]
