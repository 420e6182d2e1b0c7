"""Real data sets outside the repository: parquet files in a directory next to it, or in $DOVETAIL_DATA."""

from __future__ import annotations

import os
from pathlib import Path
from unittest import SkipTest

import pyarrow as pa
import pyarrow.parquet as pq

DIRECTORY = Path(os.environ.get("DOVETAIL_DATA") or Path(__file__).parents[2] / "shared" / "data")


def read_columns(name: str, *columns: str) -> pa.Table:
    """These columns of a data set, in one chunk each."""
    path = DIRECTORY / f"{name}.parquet"
    if not path.exists():
        raise SkipTest(f"{path.name} is not here: put it into a directory and name that in DOVETAIL_DATA")
    return pq.read_table(path, columns=list(columns)).combine_chunks()
