"""Dovetail: joins that return results while the data is still arriving."""

from typing import TYPE_CHECKING

from dovetail import accessor
from dovetail.core.lazy import accept_old_modules, lazy_attributes
from dovetail.errors import DovetailError
from dovetail.window import window

if TYPE_CHECKING:
    from dovetail.api import aggregate, count, explain, join, multijoin, progressive, sql, write
    from dovetail.core.metrics import Estimate
    from dovetail.monitoring.recording import Recording
    from dovetail.monitoring.report import report
    from dovetail.monitoring.server import watch
    from dovetail.monitoring.spark_streams import finish, follow, listen
    from dovetail.monitoring.terminal import show
    from dovetail.spark.catalyst.enabling import disable, enable

__version__ = "0.2.0"  # the only definition of the version: pyproject.toml reads it from here

__all__ = [
    "DovetailError",
    "Estimate",
    "Recording",
    "__version__",
    "aggregate",
    "asof",
    "count",
    "disable",
    "enable",
    "explain",
    "finish",
    "follow",
    "join",
    "listen",
    "multijoin",
    "nearest",
    "progressive",
    "report",
    "show",
    "sql",
    "watch",
    "window",
    "write",
]

# Importing Numba, Arrow and the parser takes a second or two, so it is left to the first call that needs them.
__getattr__ = lazy_attributes(
    __name__,
    modules=("cli", "kernels", "simulation", "sources", "spark", "testing"),
    names={
        **dict.fromkeys(
            ("aggregate", "asof", "count", "explain", "join", "multijoin", "nearest", "progressive", "sql", "write"),
            "api",
        ),
        **dict.fromkeys(("finish", "follow", "listen"), "monitoring.spark_streams"),
        **dict.fromkeys(("disable", "enable"), "spark.catalyst.enabling"),
        "Estimate": "core.metrics",
        "Recording": "monitoring.recording",
        "report": "monitoring.report",
        "show": "monitoring.terminal",
        "watch": "monitoring.server",
    },
    moved={"simulate": "testing"},
)
accept_old_modules(
    __name__,
    {
        "simulation": "testing",
        "simulation.clock": "testing.clock",
        "simulation.laboratory": "testing.simulation",
        "sources.pace": "testing.arrival_times",
        "sources.values": "testing.values",
        "sources.workload": "testing.workload",
    },
)


def __dir__() -> list[str]:
    return __all__


accessor.register()
