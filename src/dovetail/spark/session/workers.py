"""Making repeated tasks in one Python worker cheap."""

from __future__ import annotations

import gc
import sys

FEW_MODULES = 20

_modules = 0


def freeze_modules() -> None:
    """Call this at the end of a task.

    Spark collects garbage after every task, which goes through everything that was ever imported: with Numba loaded,
    about 70 ms each time. What is there by now is there to stay, so it is taken out of the collector's sight.
    """
    global _modules
    if len(sys.modules) > _modules + FEW_MODULES:
        _modules = len(sys.modules)
        gc.collect()
        gc.freeze()
