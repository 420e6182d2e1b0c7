"""Joins in cells, built from Spark's own operators.

    points   cell = floor(place / width)                 --+
                                                           +-- equal cells, and the whole condition --> rows
    others   explode(sequence(first cell, last cell))    --+

Spark evaluates the condition, and computes every value of the result. Cells only find candidates: matching rows share
exactly one cell.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from dovetail.condition import Condition, Expression, columns_of, quote_name, spark_sql
from dovetail.condition.expression import type_of
from dovetail.core.join_types import JoinType
from dovetail.core.rows import Side
from dovetail.errors import PlanError
from dovetail.matching import build_matcher
from dovetail.planning.plan import Choice, JoinPlan
from dovetail.planning.planner import NATIVE
from dovetail.planning.statistics import Sample, Samples, read_columns
from dovetail.spark.frames.binding import never_fails, value_bytes
from dovetail.spark.frames.planned import FrameJoin
from dovetail.spark.frames.renaming import by_position, joined_names, position_name, selected
from dovetail.spark.native.axes import SLACK, Axis, axes_of, place_sql, steps_in_place
from dovetail.spark.native.cells import (
    CANDIDATE,
    COPY,
    MOST_COPIES,
    MOST_LEVELS,
    PROBE,
    STEP,
    Cells,
    Lengths,
    Sampled,
    choose_cells,
    number_sql,
)

START = 0.3  # seconds, for planning and compiling
ROW_OUT, VALUE_OUT = 0.1e-6, 0.045e-6
WIDE = 2  # cell width in two dimensions, as a multiple of a row's reach
BROADCAST_BYTES = 1 << 26
BROADCAST_OFF = "-1"
ONE_KEY = 1 << 31  # maximum cells of a second dimension
MICROS_OF_A_DAY = 86_400_000_000
UNITS = (
    ("day", MICROS_OF_A_DAY),
    ("hour", 3_600_000_000),
    ("minute", 60_000_000),
    ("second", 1_000_000),
    ("microsecond", 1),
)
CANDIDATES_IN_TWO = 4.5  # per pair, from the areas of a cell and of the match


@dataclass(frozen=True, slots=True)
class NativeJoin:
    """A join by Spark's own operators, and its cost."""

    asked: FrameJoin
    how: JoinType
    axes: tuple[Axis, ...]
    cells: tuple[Cells, ...]  # for each axis
    copies: float
    candidates: float
    seconds: float  # of CPU

    @property
    def point(self) -> Side:
        return self.axes[0].point

    def describe(self, plan: JoinPlan) -> JoinPlan:
        """The plan, marked to be run by this join."""
        why = f"Spark's own join, in cells along {' and '.join(_text(axis) for axis in self.axes)}"
        widths = " x ".join(_width(axis, cells) for axis, cells in zip(self.axes, self.cells, strict=True))
        levels = len(self.cells[0].levels)
        on_levels = f" and {MOST_COPIES} times as wide" if levels > 1 else ""
        copied = self.point.other.alias if self.axes[0].end is None else "l and r"
        size = f"{widths} wide{on_levels}; {self.copies:,.0f} copies of {copied}"
        router = Choice("ranges", f"{size}, {self.candidates:,.0f} candidates, by a sample")
        number = math.prod(cells.number for cells in self.cells)
        operator = Choice(NATIVE, why)
        return replace(plan, operator=operator, at_rest=False, router=router, cells=number, tasks=number, read="")

    def frame(self) -> DataFrame:
        asked = self.asked
        width = len(asked.inputs[0].columns)
        names = joined_names(*(frame.columns for frame in asked.inputs))
        sides = [by_position(asked.inputs[0]), by_position(asked.inputs[1], width)]
        point, other = self.point, self.point.other
        conjuncts = [F.expr(spark_sql(conjunct, names)) for conjunct in asked.bound.written]
        on = [F.expr("cell = cells"), *conjuncts]
        if self.axes[0].end is not None:
            on.append(F.expr("cell = greatest(begin, begins)"))  # a pair counts in the cell where its overlap begins
        sides[point] = sides[point].select("*", *map(F.expr, self._cell_of_point(names)))
        sides[other] = self._with_cells(sides[other], names).hint(self._hint(sides[other]))
        joined = sides[Side.LEFT].join(sides[Side.RIGHT], on, self.how)
        return selected(
            joined, [f"{position_name(i)} AS {quote_name(name)}" for i, name in enumerate(asked.output.names)]
        )

    def _with_cells(self, frame: DataFrame, names: Any) -> DataFrame:
        """Add cells to the side whose rows are copied."""
        axis = self.axes[0]
        if axis.end is not None:
            begin, sequence = self._span(axis.low, axis.high, names)
            return frame.select("*", F.expr(f"{begin} AS begins"), F.expr(f"explode({sequence}) AS cells"))
        first, *more = self._cells_of_other(names)
        frame = frame.select("*", F.expr(f"explode({first}) AS cells"))
        for second in more:
            frame = frame.select("*", F.expr(f"explode({second}) AS cells1"))
            frame = frame.withColumn("cells", F.expr(f"cells * {ONE_KEY}L + cells1")).drop("cells1")
        return frame

    def _span(self, low: Expression, high: Expression, names: Any) -> tuple[str, str]:
        """The first cell of an interval, and all its cells. If it ends before it begins, partners contain both ends."""
        cells, ends = self.cells[0], [_place(low, names), _place(high, names)]
        first, last = (cells.sql(f"{function}({', '.join(ends)})") for function in ("least", "greatest"))
        known = " AND ".join(f"{place} IS NOT NULL" for place in ends)
        return first, f"IF({known}, sequence({first}, {last}), array())"

    def _cell_of_point(self, names: Any) -> list[str]:
        """The cell of a row, with a copy for each level if there are several."""
        axis = self.axes[0]
        if axis.end is not None:
            begin, sequence = self._span(axis.at, axis.end, names)
            return [f"{begin} AS begin", f"explode({sequence}) AS cell"]
        places = [_place(axis.at, names) for axis in self.axes]
        known = " AND ".join(f"{place} IS NOT NULL" for place in places)
        parts = [cells.sql(place) for cells, place in zip(self.cells, places, strict=True)]
        levels = self.cells[0].levels
        if len(parts) > 1:
            return [f"IF({known}, {parts[0]} * {ONE_KEY}L + {parts[1]}, NULL) AS cell"]
        if len(levels) == 1:
            return [f"IF({known}, {_on_level(parts[0], levels[0])}, NULL) AS cell"]
        keys = ", ".join(_key(_on_level(parts[0], level), number) for number, level in enumerate(levels))
        return [f"explode(IF({known}, array({keys}), array())) AS cell"]

    def _cells_of_other(self, names: Any) -> list[str]:
        """The cells of a row as an array, for each dimension. Empty if a row reaches nothing."""
        found = []
        for axis, cells in zip(self.axes, self.cells, strict=True):
            low, high = (_place(key, names) for key in (axis.low, axis.high))
            finite = ""
            if axis.length is not None:
                finite = f"abs({low}) < double('Infinity') AND "  # other values are near no value
                low = f"({low} + {number_sql(axis.below)} - {SLACK}D * (abs({low}) + {abs(axis.below)!r}D))"
                high = f"({high} + {number_sql(axis.above)} + {SLACK}D * (abs({high}) + {abs(axis.above)!r}D))"
            first, last = cells.sql(low), cells.sql(high)
            known = f"{finite}{low} IS NOT NULL AND {high} IS NOT NULL AND {first} <= {last}"
            *lower, top = [_sequence(first, last, level, key, cells) for key, level in enumerate(cells.levels)]
            few = [
                f"WHEN {_on_level(last, level)} - {_on_level(first, level)} < {MOST_COPIES} THEN {sequence}"
                for level, sequence in zip(cells.levels, lower, strict=False)
            ]
            chosen = f"CASE {' '.join(few)} ELSE {top} END" if few else top
            found.append(f"IF({known}, {chosen}, array())")
        return found

    def _hint(self, copied: DataFrame) -> str:
        """Spark's own size estimate does not include copies."""
        threshold = copied.sparkSession.conf.get("spark.sql.autoBroadcastJoinThreshold", None)
        width = sum(map(value_bytes, self.asked.bound.visible(self.point.other).types)) + 8
        small = self.copies * width <= BROADCAST_BYTES and threshold != BROADCAST_OFF
        return "broadcast" if small else "merge"


def native_axes(asked: FrameJoin, how: JoinType, larger: Side = Side.LEFT) -> tuple[Axis, ...] | str:
    """The dimensions of a join's cells, or why it has none."""
    bound = asked.bound
    axes = axes_of(bound.condition.strategy, how, larger)
    if not axes:
        return (
            f"how={str(how)!r} on {bound.condition.text} has no dimension in which rows of one side are points, and "
            "those of the other reach from one value to another"
        )
    places = [place for axis in axes for place in axis.places]
    read = {(column.side, column.name) for place in places for column in columns_of(place)}
    if not read <= {(side, name) for side in Side for name in bound.visible(side).names}:
        return "Spark computes a key before the join"
    if not all(map(never_fails, places)):
        return "computing a key may fail, and Spark may compute it for rows that the condition leaves out"
    return axes


def check_native(asked: FrameJoin, how: JoinType) -> None:
    """Refuse algorithm="native" if it is not supported for the join, before anything is read."""
    if asked.request.algorithm == NATIVE and isinstance(found := native_axes(asked, how), str):
        raise refusal(found)


def native_join(asked: FrameJoin, plan: JoinPlan, samples: Samples | None, listed: bool = True) -> NativeJoin | str:
    """The join by Spark's own operators, or why it is not possible. `listed`: results are not only counted."""
    if samples is None or plan.rows is None:
        return "cells need a sample of both sides"
    larger = Side.LEFT if plan.rows[0] >= plan.rows[1] else Side.RIGHT
    axes = native_axes(asked, plan.how, larger)
    if isinstance(axes, str):
        return axes
    cells, copies, candidates = _cells_in(axes, asked.bound.condition, samples, plan)
    probes = PROBE * plan.rows[axes[0].point] * len(cells[0].levels)
    out = (ROW_OUT + VALUE_OUT * len(asked.output) * listed) * (plan.pairs or 0.0)
    seconds = START + probes + COPY * copies + CANDIDATE * candidates + out
    return NativeJoin(asked, plan.how, axes, cells, copies, candidates, seconds)


def _cells_in(
    axes: tuple[Axis, ...], condition: Condition, samples: Samples, plan: JoinPlan
) -> tuple[tuple[Cells, ...], float, float]:
    """The cells along each axis, and the total numbers of copies and candidates."""
    point = axes[0].point
    sampled = []
    for axis in axes:
        lows, highs = axis.place_reaches(samples[point.other].batch)
        weights = (samples[point].weight, samples[point.other].weight)
        places = axis.place_points(samples[point].batch)
        longest = axis.length if axis.length is not None else _longest(samples[point.other], axis.low)
        ends = axis.place_ends(samples[point].batch)
        by_length = (_by_length(samples[point], axis.at), _by_length(samples[point.other], axis.low))
        sampled.append(Sampled(places, lows, highs, weights, _share(condition, samples), longest, ends, by_length))
    if len(axes) == 1:
        # With two levels, a point without partners would be emitted twice.
        cells = choose_cells(sampled[0], most_levels=1 if plan.how.tracked else MOST_LEVELS)
        return (cells,), cells.copies, cells.candidates
    found = tuple(_around(one, axis) for one, axis in zip(sampled, axes, strict=True))
    others = float(plan.rows[point.other]) if plan.rows else 0.0
    return found, others * (1 + 1 / WIDE) ** 2, CANDIDATES_IN_TWO * (plan.pairs or 0.0)


def _around(sampled: Sampled, axis: Axis) -> Cells:
    """Cells a few times as wide as the reach of a row, on one level."""
    finite = sampled.points[abs(sampled.points) < math.inf]
    first, last = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 0.0)
    width = max(WIDE / 2 * (axis.length or 0.0), (last - first) / (ONE_KEY - 2), 1e-300)
    return Cells(first, width, int(min(ONE_KEY - 1, (last - first) / width + 1)), (0,), 0.0, 0.0)


def _longest(sample: Sample, key: Expression) -> float | None:
    reach = sample.reach
    return max(reach.longest) / steps_in_place(type_of(key)) if reach is not None and reach.longest else None


def _by_length(sample: Sample, key: Expression) -> Lengths | None:
    reach = sample.reach
    return Lengths(reach.by_length[0], steps_in_place(type_of(key))) if reach is not None and reach.by_length else None


def _share(condition: Condition, samples: Samples) -> float:
    """The share of all pairs that have equal keys."""
    if not condition.equalities:
        return 1.0
    equal = Condition(condition.equalities, ((), ()), (), condition.schemas)
    batches = [sample.batch for sample in samples]
    found = build_matcher(equal, *batches).count()
    compared: int = batches[0].num_rows * batches[1].num_rows
    return max(found, 1.0) / max(1, compared)


def _text(axis: Axis) -> str:
    return f"{axis.point.alias}.{spark_sql(axis.at, lambda column: column.name)}"


def _width(axis: Axis, cells: Cells) -> str:
    """The width of a cell, in the units of its values."""
    type_ = type_of(axis.at)
    micros = cells.width * (MICROS_OF_A_DAY if pa.types.is_date(type_) else 1)
    if not (pa.types.is_date(type_) or pa.types.is_timestamp(type_)):
        return f"{cells.width:.3g}"
    unit = next((unit for unit in UNITS if micros >= unit[1]), UNITS[-1])
    return f"{micros / unit[1]:.3g} {unit[0]}s"


def _place(key: Any, names: Any) -> str:
    found = place_sql(spark_sql(key, names), type_of(key))
    if found is None:
        raise PlanError(f"a key of type {type_of(key)} has no place on a line.")
    return found


def _on_level(cell: str, level: int) -> str:
    return cell if level == 0 else f"shiftright({cell}, {STEP * level})"


def _key(cell: str, number: int) -> str:
    """Makes cells of different levels distinct."""
    return f"({cell} * 8L + {number}L)"


def _sequence(first: str, last: str, level: int, number: int, cells: Cells) -> str:
    whole = f"sequence({_on_level(first, level)}, {_on_level(last, level)})"
    return whole if len(cells.levels) == 1 else f"transform({whole}, cell -> {_key('cell', number)})"


WORKERS = 0.6  # seconds: two stages of Python workers
FILE_VALUE, JVM_VALUE = 0.03e-6, 0.3e-6  # read by a task, or passed by Spark
PAIR, VALUE_BACK = 0.1e-6, 0.075e-6


def seconds_in_workers(
    asked: FrameJoin, plan: JoinPlan, read_by_tasks: tuple[bool, bool], listed: bool = True
) -> float:
    """The cost of the join in Python workers. Results that are only counted are not listed."""
    assert plan.rows is not None
    seconds = WORKERS
    for side, rows, by_tasks in zip(Side, plan.rows, read_by_tasks, strict=True):
        columns = len(asked.bound.visible(side)) if listed else len(read_columns(plan.condition, side))
        seconds += rows * columns * (FILE_VALUE if by_tasks else JVM_VALUE)
    return seconds + (PAIR + VALUE_BACK * len(asked.output)) * (plan.pairs or 0.0) if listed else seconds


def refusal(reason: str) -> PlanError:
    return PlanError(f"algorithm={NATIVE!r} cannot run this join: {reason}. Use algorithm='auto'.")
