"""Dovetail: joins that answer while the data is still arriving."""

from dovetail.api import aggregate, count, explain, join, progressive
from dovetail.api_multi import multijoin
from dovetail.errors import DovetailError
from dovetail.estimate import Estimate
from dovetail.following import finish, follow
from dovetail.runtimes.simulated import simulate
from dovetail.runtimes.simulated_multi import simulate_multi
from dovetail.window import window

__version__ = "0.1.0"

__all__ = [
    "DovetailError",
    "Estimate",
    "__version__",
    "aggregate",
    "count",
    "explain",
    "finish",
    "follow",
    "join",
    "multijoin",
    "progressive",
    "simulate",
    "simulate_multi",
    "window",
]
