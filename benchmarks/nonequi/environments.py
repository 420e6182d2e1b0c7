"""Virtual environments of the contenders: their packages exclude each other, so they have several. `make` makes them.

tables       systems that join tables in process
polars_bio   needs earlier releases of Polars and pyarrow
spark        Dovetail, PySpark, and what runs on it
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
PLACE = ROOT / ".venv-nonequi"
NAMES = ("tables", "polars_bio", "spark")


def python_of(environment: str) -> Path:
    return PLACE / environment / "bin" / "python"


def is_made(environment: str) -> bool:
    return python_of(environment).exists()
