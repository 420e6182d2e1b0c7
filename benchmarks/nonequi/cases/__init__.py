"""The cases, in the order of the tables on the page: twelve kinds of joins, and cases from other benchmarks."""

from __future__ import annotations

from benchmarks.nonequi.case import Case
from benchmarks.nonequi.cases import (
    as_of,
    bands,
    either_equal,
    equality_and_inequality,
    genomic,
    nearest,
    of_datafusion,
    of_duckdb,
    of_glow,
    of_polars,
    of_tpch,
    outer_overlap,
    overlap,
    point_in_interval,
    streams,
    three_inequalities,
    two_inequalities,
    window_sums,
)

KINDS = (
    point_in_interval,
    overlap,
    two_inequalities,
    three_inequalities,
    bands,
    either_equal,
    equality_and_inequality,
    as_of,
    nearest,
    window_sums,
    outer_overlap,
    streams,
)
OF_OTHERS = (of_duckdb, of_datafusion, of_polars, of_tpch, genomic, of_glow)
CASES: dict[str, Case] = {case.name: case for kind in (*KINDS, *OF_OTHERS) for case in kind.CASES}
