"""Dovetail: joins that answer while the data is still arriving."""

from dovetail.api import aggregate, count, explain, join, multijoin, progressive, write
from dovetail.core.lazy import lazy_modules
from dovetail.core.metrics import Estimate
from dovetail.errors import DovetailError
from dovetail.monitoring.follow_query import finish, follow
from dovetail.monitoring.recording import Recording
from dovetail.monitoring.report import report
from dovetail.monitoring.server import watch
from dovetail.monitoring.spark_streams import listen
from dovetail.monitoring.terminal import show
from dovetail.simulation.laboratory import simulate, simulate_multi
from dovetail.window import window

__version__ = "0.1.0"

__getattr__ = lazy_modules(__name__, "spark", "testing")

__all__ = [
    "DovetailError",
    "Estimate",
    "Recording",
    "__version__",
    "aggregate",
    "count",
    "explain",
    "finish",
    "follow",
    "join",
    "listen",
    "multijoin",
    "progressive",
    "report",
    "show",
    "simulate",
    "simulate_multi",
    "watch",
    "window",
    "write",
]
