"""Prove an operator or a router right."""

from dovetail.testing.conformance import (
    CONDITIONS,
    check_operator,
    check_router,
    check_run,
    definition,
    random_schedule,
)
from dovetail.testing.random_tables import COLUMNS, random_table
from dovetail.testing.several import check_multi_operator
from dovetail.testing.sweep import check_sweep

__all__ = [
    "COLUMNS",
    "CONDITIONS",
    "check_multi_operator",
    "check_operator",
    "check_router",
    "check_run",
    "check_sweep",
    "definition",
    "random_schedule",
    "random_table",
]
