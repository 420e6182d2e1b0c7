"""Joins on Spark. The only package that imports pyspark."""

from typing import TYPE_CHECKING

from dovetail.core.lazy import lazy_attributes

if TYPE_CHECKING:
    from dovetail.spark.batch.counts import count_dataframes
    from dovetail.spark.catalyst.report import explain_query
    from dovetail.spark.early.waves import explain_waves, progressive_dataframes
    from dovetail.spark.exchange.publishing import written_files
    from dovetail.spark.frames.sink import Written, write_dataframe
    from dovetail.spark.joins import (
        aggregate_dataframes,
        best_dataframes,
        explain_dataframes,
        join_dataframes,
        order_dataframes,
    )
    from dovetail.spark.multiway.multijoin import explain_several_dataframes, multijoin_dataframes
    from dovetail.spark.plain_sql import query_spark
    from dovetail.spark.session.shared_directory import register_file_system
    from dovetail.spark.streaming.spark_metrics import publish_metrics

__all__ = [
    "Written",
    "aggregate_dataframes",
    "best_dataframes",
    "count_dataframes",
    "explain_dataframes",
    "explain_query",
    "explain_several_dataframes",
    "explain_waves",
    "join_dataframes",
    "multijoin_dataframes",
    "order_dataframes",
    "progressive_dataframes",
    "publish_metrics",
    "query_spark",
    "register_file_system",
    "write_dataframe",
    "written_files",
]

# Lazy, because workers that only read a source or the stored state do not need these imports.
__getattr__ = lazy_attributes(
    __name__,
    modules=("connect_server", "run", "session", "sources"),
    names={
        "join_dataframes": "catalyst.lazy_joins",
        "count_dataframes": "batch.counts",
        "explain_query": "catalyst.report",
        **dict.fromkeys(("explain_waves", "progressive_dataframes"), "early.waves"),
        "written_files": "exchange.publishing",
        **dict.fromkeys(("Written", "write_dataframe"), "frames.sink"),
        **dict.fromkeys(("aggregate_dataframes", "best_dataframes", "explain_dataframes", "order_dataframes"), "joins"),
        **dict.fromkeys(("explain_several_dataframes", "multijoin_dataframes"), "multiway.multijoin"),
        "query_spark": "plain_sql",
        "publish_metrics": "streaming.spark_metrics",
        "register_file_system": "session.shared_directory",
    },
)
