"""Dovetail: joins that answer while the data is still arriving."""

from dovetail.api import aggregate, count, explain, join, progressive
from dovetail.api_multi import multijoin
from dovetail.api_write import write
from dovetail.errors import DovetailError
from dovetail.estimate import Estimate
from dovetail.following import finish, follow
from dovetail.lazy import lazy_modules
from dovetail.live.recording import Recording
from dovetail.live.report import report
from dovetail.live.server import watch
from dovetail.live.streams import listen
from dovetail.live.terminal import show
from dovetail.runtimes.simulated import simulate
from dovetail.runtimes.simulated_multi import simulate_multi
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
