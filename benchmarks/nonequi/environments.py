"""Virtual environments of the contenders. `make` creates several, because some packages conflict.

tables       systems that join tables in process
polars_bio   needs earlier releases of Polars and pyarrow
spark        Dovetail, PySpark, and what runs on it
"""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

ROOT = Path(__file__).parents[2]
PLACE = ROOT / ".venv-nonequi"
NAMES = ("tables", "polars_bio", "spark")


def python_of(environment: str) -> Path:
    return PLACE / environment / "bin" / "python"


def has(environment: str, distribution: str) -> bool:
    sites = map(str, (PLACE / environment).glob("lib/python*/site-packages"))
    return any(importlib.metadata.distributions(name=distribution, path=list(sites)))
