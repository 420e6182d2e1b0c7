"""The conditions of a measurement: the machine, its load, and versions."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def describe_machine() -> dict[str, Any]:
    return {
        "cpu": _processor(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "load": [round(load, 2) for load in os.getloadavg()],
    }


def versions(names: Iterable[str]) -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in names}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
