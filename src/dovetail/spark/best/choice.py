"""Chooses how the best partners of each left row are found."""

from __future__ import annotations

from dovetail.condition.best import Best
from dovetail.planning.best import plan_best
from dovetail.spark.best.asof import plan_asof, read_times
from dovetail.spark.best.by_spark import only_spark_knows, plan_best_by_spark
from dovetail.spark.best.cells import plan_best_cells
from dovetail.spark.frames.planned import Planned
from dovetail.spark.frames.pruning import Pruning
from dovetail.storage.budget import bytes_of


def plan_best_frames(pruning: Pruning, best: Best) -> Planned:
    """The planned join. Sampling, if it is needed, runs a job."""
    asked = pruning.asked
    condition, request = asked.bound.condition, asked.request
    plan = plan_best(condition, request.how, best, bytes_of(request.memory))
    why = only_spark_knows(asked, best)
    if why:
        return plan_best_by_spark(asked, plan, best, why)
    times = read_times(condition, best)
    if times is not None:
        return plan_asof(pruning.hiding, plan, best, times)
    return plan_best_cells(pruning.hiding, plan, best)
