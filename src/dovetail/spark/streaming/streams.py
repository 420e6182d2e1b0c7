"""Streaming joins: one stateful operator per cell, with state in immutable segments.

    left  --route, pack--+
                         +--> groupBy(cell).transformWithStateInPandas --> unpack --> a streaming DataFrame
    right --route, pack--+        |
                                  +-- state store: the manifest (a few hundred bytes, committed with the micro-batch)
                                  +-- state_dir:   segments, written before the manifest that names them

A micro-batch restores the operator from the manifest, processes arriving rows, writes new state to segments and stores
the next manifest (cell_state.py). One processor runs all cells (cell_processor.py). The work of a cell is in
stream_cell.py, and for windows in window_cell.py.

`end` recognises each input's end-of-stream marker row. Marker rows are not joined; they notify all cells that their
input has ended (end_of_stream.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from dovetail.core.figures import FIGURES, FORMER
from dovetail.errors import PlanError
from dovetail.spark.exchange.packing import PACKED, Rewrite, from_bytes
from dovetail.spark.session.workers import freeze_modules
from dovetail.spark.streaming.end_of_stream import tell_ends, tell_news
from dovetail.spark.streaming.processor import Processor
from dovetail.spark.streaming.starting import marked
from dovetail.spark.streaming.state_dir import cap_arrow_batch_bytes
from dovetail.spark.streaming.stream_join import CellJoin
from dovetail.spark.streaming.window_join import WindowJoin
from dovetail.storage.allocator import stay_small, trim_heap


def join_streams(frames: Sequence[DataFrame], join: CellJoin, schema: StructType) -> DataFrame:
    """The join as a streaming DataFrame, for any sink. Inputs that signal their end have an additional column."""
    join.check()
    if join.keeps_to_memory:
        cap_arrow_batch_bytes(frames[0].sparkSession, join.pack_bytes)
    packed = []
    for number, frame in enumerate(frames):
        pack = join.packer(number)
        if join.setting.has_ends:
            pack = tell_ends(pack, number, join.labels)
        if join.setting.ends_when_idle:
            pack = tell_news(pack, join.labels, frame)
        packed.append(frame.mapInArrow(_small(pack) if join.keeps_to_memory else pack, PACKED))
    joined = (
        reduce(DataFrame.unionAll, packed)
        .groupBy("cell")
        .transformWithStateInPandas(
            statefulProcessor=Processor(join),
            outputStructType="payload binary, " + ", ".join(f"{name} bigint" for name in FIGURES),
            outputMode="Append",
            timeMode=join.clock,
        )
    )
    name = join.setting.metrics
    try:
        watched = joined.observe(name, *_over_cells(join))
    except AnalysisException as error:  # the name is also that of its state, so it must be unique
        raise PlanError(
            f"a query has two joins called {name!r}: give one of them another name, as in metrics='second'."
        ) from error
    return watched.mapInArrow(marked(_unpacker(small=join.keeps_to_memory), join), schema)


def _over_cells(join: CellJoin) -> Iterator[Column]:
    """The figures of all cells together."""
    for figure in FIGURES.values():
        yield getattr(F, figure.over_cells)(figure.name).alias(figure.name)
    for name, parts in FORMER.items() if isinstance(join, WindowJoin) else ():
        yield F.sum(reduce(Column.__add__, map(F.col, parts))).alias(name)


def _small(rewrite: Rewrite) -> Rewrite:
    """The same function for mapInArrow, in a worker whose memory stays small."""

    def rewritten(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        stay_small()
        yield from rewrite(batches)
        trim_heap()

    return rewritten


def _unpacker(*, small: bool) -> Rewrite:
    """A function for mapInArrow with a distinct name."""
    return _small(unpack) if small else lambda batches: unpack(batches)


def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Unpack results into rows."""
    for batch in batches:
        yield from _unpack_rows(batch)
        del batch  # freed before the next one is read
    freeze_modules()


def _unpack_rows(packed: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for payload in packed.column("payload"):
        if payload.is_valid:
            yield from_bytes(payload.as_buffer())
