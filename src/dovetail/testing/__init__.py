"""Prove an operator or a router right."""

from dovetail.testing.conformance import check_operator, check_router, check_run, definition
from dovetail.testing.random_joins import COLUMNS, CONDITIONS, random_condition, random_schedule, random_table
from dovetail.testing.sweep import check_sweep

__all__ = [
    "COLUMNS",
    "CONDITIONS",
    "check_operator",
    "check_router",
    "check_run",
    "check_sweep",
    "definition",
    "random_condition",
    "random_schedule",
    "random_table",
]
