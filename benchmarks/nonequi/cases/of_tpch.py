"""A TPC-H join on two inequalities that is used in benchmarks of nested loops: 169,757,135 pairs at scale 0.01."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from benchmarks.nonequi.case import Case, Tables
from benchmarks.nonequi.cases.columns import side
from benchmarks.nonequi.question import Compare, Pairs

SCALE = "0.01"


def generate(rows: int, rng: np.random.Generator) -> Tables:
    with tempfile.TemporaryDirectory(prefix="nonequi-tpch-") as directory:
        generator = Path(sys.executable).with_name("tpchgen-cli")
        wanted = ["--scale-factor", SCALE, "--tables", "orders,lineitem", "--output-dir", directory]
        subprocess.run([generator, "parquet", *wanted], check=True, capture_output=True)
        tables = (
            ("lineitem", "l", {"orderkey": "l_orderkey", "partkey": "l_partkey"}),
            ("orders", "r", {"orderkey": "o_orderkey", "custkey": "o_custkey"}),
        )
        left, right = (
            side(prefix, {new: read[old].to_numpy() for new, old in names.items()}, rng)
            for name, prefix, names in tables
            for read in [pq.read_table(Path(directory) / f"{name}.parquet", columns=list(names.values()))]
        )
    return left, right


TERMS = (Compare("l_orderkey", ">", "r_orderkey"), Compare("l_partkey", "<", "r_custkey"))
CASES = [
    Case("tpch", "TPC-H: items and orders", generate, Pairs(TERMS), "TPC-H, scale 0.01", 60_175, only_counted=True),
]
