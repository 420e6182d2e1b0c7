"""The end-of-stream column: the last one of an input, true in the marker row after which there are no more rows.

    frame  --SQL of end=--> add_end_column  --marker rows are not packed--> tell_ends: a message to all cells

With end="source", the column comes from a Dovetail source under a reserved name, and is removed from results.

With end="available", there are no marker rows: the first micro-batch without input ends all inputs. A cell cannot tell
that from a micro-batch whose rows visit other cells, so a message tells all cells that there is input.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from dovetail.condition import read_predicate
from dovetail.errors import InputError
from dovetail.spark.exchange.packing import ARROW_PACKED, Rewrite
from dovetail.spark.session.options import SOURCE
from dovetail.spark.sources.columns import END
from dovetail.spark.worker_python import is_connect

MARK = "__dovetail_end"
LAST = 2**62  # the sequence number of a message among packed rows: after all of them
NEWS = -1  # instead of the number of an input: the micro-batch has input
NARROW = {
    *("StreamingRelation", "StreamingRelationV2", "Project", "Filter", "SubqueryAlias", "View", "EventTimeWatermark"),
    *("CollectMetrics", "Generate", "Union", "PythonMapInArrow", "MapInArrow", "MapInPandas"),
}
"""Operators of Spark's plans whose tasks run only if their source has rows to read."""


def add_end_column(frame: DataFrame, names: Sequence[str], ends: str, which: str, *, trusted: bool) -> DataFrame:
    """Add the end column to the frame of an input. `ends` reads the frame's first columns by these names."""
    if ends == END and END not in names:
        raise InputError(
            f"end={SOURCE!r} needs streams of dovetail-flight or dovetail-postgresql that were read with "
            f".option('end', 'true'); {which} has no column {END}."
        )
    predicate = ends if trusted or ends == END else read_predicate(ends, "end= predicate")
    readable = frame.toDF(*names, *(f"{MARK}{i}" for i in range(len(frame.columns) - len(names))))
    try:
        return readable.withColumn(MARK, F.expr(predicate)).toDF(*frame.columns, MARK)
    except AnalysisException as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"end={ends!r} cannot be evaluated on {which} ({', '.join(names)}): {reason}") from error


def tell_ends(pack: Rewrite, number: int, labels: list[int]) -> Rewrite:
    """Rows whose last column is true are not packed; they become a message to all cells."""

    def pack_and_tell(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        ended = False

        def rows() -> Iterator[pa.RecordBatch]:
            nonlocal ended
            for batch in batches:
                marks = np.asarray(batch.column(batch.num_columns - 1).fill_null(False))
                ended = ended or bool(marks.any())
                yield batch.select(range(batch.num_columns - 1)).filter(pa.array(~marks))

        yield from pack(rows())
        if ended:
            yield _to_all(labels, number)

    return pack_and_tell


def tell_news(pack: Rewrite, labels: list[int], frame: DataFrame) -> Rewrite:
    """A message to all cells if there is input. It may have no rows that are joined, if the frame filters them."""
    has_news = _runs_only_with_input(frame)

    def pack_and_tell(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        news = has_news

        def rows() -> Iterator[pa.RecordBatch]:
            nonlocal news
            for batch in batches:
                news = news or batch.num_rows > 0
                yield batch

        yield from pack(rows())
        if news:
            yield _to_all(labels, NEWS)

    return pack_and_tell


def _runs_only_with_input(frame: DataFrame) -> bool:
    """Whether tasks for this frame run only if its sources have rows to read. After a shuffle, they always run."""
    if is_connect(frame.sparkSession):
        return False  # the plan is not visible
    plans = [frame._jdf.queryExecution().analyzed()]
    while plans:
        plan = plans.pop()
        if plan.nodeName() not in NARROW:
            return False
        children = plan.children()
        plans += [children.apply(i) for i in range(children.size())]
    return True


def _to_all(labels: list[int], number: int) -> pa.RecordBatch:
    size = len(labels)
    columns = [pa.array(labels, pa.int32()), pa.array([number] * size, pa.int8())]
    columns += [pa.array([LAST] * size, pa.int64()), pa.nulls(size, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, schema=ARROW_PACKED)


def without_ends(joined: DataFrame, sources: Sequence[str]) -> DataFrame:
    """The result without the end columns of sources. `sources`: their names in the result."""
    return joined.drop(*(name for name, source in zip(joined.columns, sources, strict=False) if source == END))
