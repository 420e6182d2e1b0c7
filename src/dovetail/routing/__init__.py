"""Chooses a router from a condition and statistics of the data: lists the candidates, and picks one."""

from dovetail.routing.candidates import Task, one_bucket
from dovetail.routing.choice import (
    Routing,
    choose_router,
    expected_pairs,
    home_side,
    in_tasks,
    window_cells,
    window_router,
)

__all__ = [
    "Routing",
    "Task",
    "choose_router",
    "expected_pairs",
    "home_side",
    "in_tasks",
    "one_bucket",
    "window_cells",
    "window_router",
]
