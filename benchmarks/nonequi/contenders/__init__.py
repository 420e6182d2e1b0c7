"""The contenders, one file each, in the order of the tables on the page."""

from __future__ import annotations

from importlib import import_module

from benchmarks.nonequi.contender import Contender

CONTENDERS = {
    "dovetail": "dovetail:Dovetail",
    "duckdb": "duckdb:DuckDB",
    "polars": "polars:Polars",
    "datafusion": "datafusion:DataFusion",
    "chdb": "chdb:Chdb",
    "pandas": "pandas:Pandas",
    "scipy": "scipy:SciPy",
    "sedonadb": "sedonadb:SedonaDB",
    "polars_bio": "polars_bio:PolarsBio",
    "bioframe": "bioframe:Bioframe",
    "pyranges1": "pyranges1:PyRanges1",
    "dovetail_spark": "dovetail_spark:DovetailOnSpark",
    "spark": "spark:Spark",
    "spark_bins": "spark_bins:SparkWithBins",
    "tempo": "tempo:Tempo",
}
OURS = ("dovetail", "dovetail_spark")


def find(name: str) -> type[Contender]:
    module, _, kind = CONTENDERS[name].partition(":")
    found: type[Contender] = getattr(import_module(f"{__name__}.{module}"), kind)
    return found
