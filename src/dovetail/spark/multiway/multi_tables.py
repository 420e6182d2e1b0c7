"""Joins of three or more tables at rest, through one shuffle of packed batches.

every input --route, pack--> one task for some cells each, join, unpack --> DataFrame
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import groupby

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from dovetail.condition.graph import Graph
from dovetail.errors import InputError
from dovetail.execution.multiway import join_several
from dovetail.planning.plan import JoinPlan
from dovetail.request import Request
from dovetail.routing.routers import Hypercube, hypercube
from dovetail.sources.protocol import TableScan
from dovetail.spark.batch.tables import FEWEST_TASKS, ROWS_PER_TASK, in_fixed_order
from dovetail.spark.exchange.arrow_tasks import map_in_arrow
from dovetail.spark.exchange.labels import repartition_by_id
from dovetail.spark.exchange.packing import PACKED, Rewrite, multi_packer, unpack_rows
from dovetail.spark.session.settings import shuffle_partitions
from dovetail.spark.session.workers import freeze_modules


def join_several_tables(
    frames: Mapping[str, DataFrame], plan: JoinPlan, request: Request, output: pa.Schema, schema: StructType
) -> DataFrame:
    """The join as a DataFrame. `frames` are the inputs with their columns named by position."""
    router = counted_hypercube(plan.graph, frames, request)
    return map_in_arrow(_in_cells(frames, router), joined_cells(plan, output), schema)


def counted_hypercube(graph: Graph, frames: Mapping[str, DataFrame], request: Request) -> Hypercube:
    """The router for tables at rest, based on their row counts."""
    rows = {alias: frame.count() if request.sample else 1 for alias, frame in frames.items()}
    if request.cells is not None:
        return hypercube(graph, rows, request.cells)
    most = max(shuffle_partitions(next(iter(frames.values()))), FEWEST_TASKS)
    return hypercube(graph, rows, min(most, max(FEWEST_TASKS, math.ceil(sum(rows.values()) / ROWS_PER_TASK))))


def _in_cells(frames: Mapping[str, DataFrame], router: Hypercube) -> DataFrame:
    """The rows of all inputs, grouped by cell."""
    packed = None
    for number, (alias, frame) in enumerate(frames.items()):
        frame = in_fixed_order(frame) if router.needs_spread(alias) else frame
        rows = frame.mapInArrow(multi_packer(router, number), PACKED)
        packed = rows if packed is None else packed.unionAll(rows)
    if packed is None:
        raise InputError("there is nothing to join.")
    return repartition_by_id(packed, router.cells, F.col("cell")).sortWithinPartitions("cell", "side", "seq")


def joined_cells(plan: JoinPlan, output: pa.Schema) -> Rewrite:
    """A function for mapInArrow that joins one cell after the other."""
    graph = plan.graph

    def join(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _, rows in groupby(unpack_rows(batches), key=lambda packed: packed[0]):
            found: dict[str, list[pa.RecordBatch]] = {alias: [] for alias in graph.aliases}
            for _, number, batch in rows:
                found[graph.aliases[number]].append(batch)
            if all(found.values()):
                tables = {a: TableScan(pa.Table.from_batches(mine, graph.schemas[a])) for a, mine in found.items()}
                yield from join_several(plan, tables, output)
        freeze_modules()

    return join
