"""Makes repeated tasks in one Python worker cheap."""

from __future__ import annotations

import gc
import sys

FEW_MODULES = 20

_modules = 0


def freeze_modules() -> None:
    """Exclude all current objects from garbage collection. Call this at the end of a task.

    Spark collects garbage after every task, which visits everything that was ever imported: with Numba loaded, about 70
    ms each time. These objects stay in memory anyway.
    """
    global _modules
    if len(sys.modules) > _modules + FEW_MODULES:
        _modules = len(sys.modules)
        gc.collect()
        gc.freeze()
