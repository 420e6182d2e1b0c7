"""Parts that tasks compute by their numbers, and functions that are called in tasks."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import TypeVar

import pyarrow as pa
from pyspark import TaskContext, cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from dovetail.errors import DovetailError
from dovetail.spark.exchange.packing import Rewrite
from dovetail.spark.frames.schemas import map_in_arrow
from dovetail.spark.session.workers import settle

Part = Callable[[int], Iterator[pa.RecordBatch]]
"""From the number of a partition to its batches."""

CORES = 1 << 12  # more than there are: by itself Spark cuts a range into as many parts as it has cores

T = TypeVar("T")


def in_tasks(spark: SparkSession, tasks: int, part: Part, schema: StructType | str) -> DataFrame:
    """A task for each part, without a shuffle."""
    numbers = spark.range(0, tasks, 1, tasks)
    return map_in_arrow(numbers, _parts(part), schema)


def _parts(part: Part) -> Rewrite:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from part(number)
        settle()

    return run


def call_in_task(spark: SparkSession, function: Callable[[], T]) -> T:
    """What a function gives on a worker. It may be called again if its task fails."""
    answers: list[T] = _call(spark.range(0, 1, 1, 1), lambda number: function())
    return answers[0]


def call_in_each_task(spark: SparkSession, function: Callable[[int], T]) -> list[T]:
    """The same with a task for each core, which Spark gives to all workers that are idle. Tasks have numbers."""
    return _call(spark.range(0, CORES), function)


def _call(numbers: DataFrame, function: Callable[[int], T]) -> list[T]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        context = TaskContext.get()
        answer: T | DovetailError
        try:
            answer = function(0 if context is None else context.partitionId())
        except DovetailError as error:  # to be raised as it is, not as the failure of a task
            answer = error
        pickled: bytes = cloudpickle.dumps(answer)  # type: ignore[no-untyped-call]
        yield pa.RecordBatch.from_pydict({"answer": [pickled]})
        settle()

    answers = [pickle.loads(row.answer) for row in numbers.mapInArrow(run, "answer binary").collect()]
    for answer in answers:
        if isinstance(answer, DovetailError):
            raise answer
    return answers
