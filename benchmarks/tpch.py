"""Orders and line items of TPC-H, sorted by date, from the generator on PyPI."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest import SkipTest

import duckdb

from dovetail.core.directories import private_directory


def orders_and_items(scale: float) -> tuple[Path, Path]:
    """TPC-H orders sorted by o_orderdate and lineitem by l_shipdate, as Parquet files that are created once."""
    directory = private_directory(Path(tempfile.gettempdir()) / f"dovetail-tpch-{scale:g}-{os.geteuid()}")
    generator = shutil.which("tpchgen-cli", path=str(Path(sys.executable).parent)) or shutil.which("tpchgen-cli")
    if generator is None:
        raise SkipTest("tpchgen-cli is not installed: pip install tpchgen-cli")
    orders, items = directory / "orders_by_date.parquet", directory / "lineitem_by_shipdate.parquet"
    if not (orders.exists() and items.exists()):
        command = [generator, "parquet", "--scale-factor", f"{scale:g}", "--tables", "orders,lineitem"]
        subprocess.run([*command, "--output-dir", str(directory)], check=True, capture_output=True)
        with duckdb.connect() as connection:
            for name, by, file in (("orders", "o_orderdate", orders), ("lineitem", "l_shipdate", items)):
                source = directory / f"{name}.parquet"
                connection.execute(f"COPY (FROM '{source}' ORDER BY {by}) TO '{file}' (FORMAT parquet)")
                source.unlink()
    return orders, items
