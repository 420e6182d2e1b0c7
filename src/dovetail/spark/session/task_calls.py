"""Calls functions in tasks, for what only the workers can see or do."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import TypeVar

import pyarrow as pa
from pyspark import TaskContext, cloudpickle
from pyspark.sql import DataFrame, SparkSession

from dovetail.errors import DovetailError
from dovetail.spark.session.workers import freeze_modules

CORES = 1 << 12  # more than any machine has: by default Spark divides a range into as many parts as it has cores

T = TypeVar("T")


def call_in_task(spark: SparkSession, function: Callable[[], T]) -> T:
    """Call a function on a worker and return its result. It may be called again if its task fails."""
    answers: list[T] = _call(spark.range(0, 1, 1, 1), lambda number: function())
    return answers[0]


def call_in_each_task(spark: SparkSession, function: Callable[[int], T]) -> list[T]:
    """Call a function in one task per core, which Spark distributes over all idle workers. Tasks are numbered."""
    return _call(spark.range(0, CORES), function)


def _call(numbers: DataFrame, function: Callable[[int], T]) -> list[T]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        context = TaskContext.get()
        answer: T | DovetailError
        try:
            answer = function(0 if context is None else context.partitionId())
        except DovetailError as error:  # raised as it is, not as the failure of a task
            answer = error
        pickled: bytes = cloudpickle.dumps(answer)  # type: ignore[no-untyped-call]
        yield pa.RecordBatch.from_pydict({"answer": [pickled]})
        freeze_modules()

    answers = [pickle.loads(row.answer) for row in numbers.mapInArrow(run, "answer binary").collect()]
    for answer in answers:
        if isinstance(answer, DovetailError):
            raise answer
    return answers
