"""`dovetail.write`: results into Parquet files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from dovetail.errors import InputError

if TYPE_CHECKING:
    from dovetail.spark import Written


def write(frame: Any, path: str | os.PathLike[str], mode: str = "error") -> Written:
    """Write a Spark DataFrame into a directory of Parquet files, from the tasks that compute it.

    What `dovetail.join` gave goes from the join into the file as it is, without becoming Spark's rows in between; any
    other DataFrame is written as well. Readers see nothing until everything is written, whatever fails before. `mode`
    is "error" (if the path is there already), "overwrite" or "append". Gives the number of files and of rows.
    """
    if not type(frame).__module__.startswith("pyspark.sql"):
        raise InputError(f"dovetail.write takes a Spark DataFrame; got {type(frame).__name__}.")
    from dovetail.spark import write_dataframe

    return write_dataframe(frame, path, mode)
