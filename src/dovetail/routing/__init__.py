"""From a condition and statistics of the data to a router: candidates, and the choice between them."""

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
