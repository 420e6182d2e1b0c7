"""Test operators, routers and sources: scripted and simulated runs, workloads, random joins, oracles.

simulate("pmj", left, right, on, schedule)   one operator on a script of arrivals, stalls, restarts
play("diner", workload, on)                  one operator on a simulated clock
check_operator("diner")                      random joins against the definition and DuckDB
"""

from dovetail.core.lazy import lazy_attributes
from dovetail.testing.clock import play
from dovetail.testing.conformance import check_operator, check_router, check_run, definition
from dovetail.testing.random_joins import COLUMNS, CONDITIONS, random_condition, random_schedule, random_table
from dovetail.testing.simulation import simulate
from dovetail.testing.sweep import check_sweep
from dovetail.testing.workload import Workload

__all__ = [
    "COLUMNS",
    "CONDITIONS",
    "Workload",
    "check_operator",
    "check_router",
    "check_run",
    "check_sweep",
    "definition",
    "play",
    "random_condition",
    "random_schedule",
    "random_table",
    "simulate",
]

__getattr__ = lazy_attributes(__name__, modules=("arrival_times", "values"))
