"""Aggregates over the pairs of a join without enumerating them: partial results that can be merged, and the result."""

from dovetail.aggregates.columns import PartialColumn, partial_columns, partial_schema
from dovetail.aggregates.final import finish, result_schema
from dovetail.aggregates.partial import partial_aggregates

__all__ = ["PartialColumn", "finish", "partial_aggregates", "partial_columns", "partial_schema", "result_schema"]
