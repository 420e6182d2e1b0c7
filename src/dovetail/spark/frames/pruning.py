"""`columns=` for DataFrames: removes unneeded columns from the inputs.

    kept     in the result
    read     only by the condition: packed and sent to the cells, and dropped there when pairs are gathered

If rows are filtered or watched after the join, columns of the condition are joined like others, and Spark drops them at
the end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from dovetail.condition import Column, columns_of, quote_name
from dovetail.core.rows import Side
from dovetail.execution.chosen_columns import ChosenColumns
from dovetail.spark.frames.binding import bind_conjuncts
from dovetail.spark.frames.columnless import MARKS
from dovetail.spark.frames.planned import FrameJoin, Inputs, Planned
from dovetail.spark.frames.renaming import by_position, position_name, selected
from dovetail.spark.frames.schemas import DELAY_MS
from dovetail.spark.session.settings import ignores_case
from dovetail.window import Window

Needed = tuple[Collection[str], Collection[str]]


@dataclass(frozen=True, slots=True)
class Pruning:
    """A join of fewer columns, and the columns that its result selects. None: all."""

    asked: FrameJoin
    chosen: ChosenColumns | None = None

    @property
    def hiding(self) -> FrameJoin:
        """The join whose results lack the columns that only the condition reads."""
        asked, chosen = self.asked, self.chosen
        if chosen is None or asked.bound.after:
            return asked
        inputs = (_some(asked.inputs[0], chosen.kept[0]), _some(asked.inputs[1], chosen.kept[1]))
        (left, right), drop = asked.bound.extra, chosen.drop
        bound = replace(asked.bound, extra=(left + drop[0], right + drop[1]))
        return replace(asked, inputs=inputs, bound=bound, output=chosen.schema(dropped=True))

    def select(self, planned: Planned) -> Planned:
        """The planned join with the requested columns, in their order."""
        chosen = self.chosen
        if chosen is None:
            return planned
        return Planned(replace(planned.plan, columns=chosen.summary), lambda: _in_order(planned.frame(), chosen.names))


def prune(asked: FrameJoin, window: Window | None = None, also: Collection[Column] = ()) -> Pruning:
    """The join without the columns that are not needed by the result, the condition, a stream, or `also`."""
    request, (left, right) = asked.request, asked.inputs
    if request.columns is None:
        return Pruning(asked)
    wanted: Iterable[str] = request.columns
    if not wanted:  # rows are counted by a column that no condition names
        wanted = (MARKS[Side.LEFT],)
        if MARKS[Side.LEFT] not in left.columns:
            width, mark = len(left.columns), pa.field(MARKS[Side.LEFT], pa.bool_())
            left = left.select("*", F.lit(True).alias(mark.name))
            asked = replace(_over(asked, (left, right)), output=asked.output.insert(width, mark))
    read = {column for conjunct in asked.bound.written for column in columns_of(conjunct)} | set(also)
    needed = [{column.name for column in read if column.side is side} | _times(asked, side, window) for side in Side]
    streaming = left.isStreaming or right.isStreaming
    if streaming and (request.end is not None or left is right):  # `end` may read any column; a self-join reads once
        needed = [set(left.columns), set(right.columns)]
    chosen = ChosenColumns.choose(
        wanted,
        asked.output,
        (asked.bound.visible(Side.LEFT), asked.bound.visible(Side.RIGHT)),
        (needed[0], needed[1]),
        fold_case=ignores_case(left.sparkSession),
    )
    if streaming and left is right:
        return Pruning(asked, chosen)
    inputs = (_some(left, chosen.all[0]), _some(right, chosen.all[1]))
    return Pruning(replace(_over(asked, inputs), output=chosen.schema(dropped=False)), chosen)


def _over(asked: FrameJoin, inputs: Inputs) -> FrameJoin:
    """The same join on inputs with other columns."""
    if all(new is old for new, old in zip(inputs, asked.inputs, strict=True)):
        return asked
    return replace(asked, inputs=inputs, bound=bind_conjuncts(asked.bound.written, *inputs))


def _some(frame: DataFrame, names: Iterable[str]) -> DataFrame:
    """Some columns by name, including names that Spark cannot address."""
    places, names = {name: place for place, name in enumerate(frame.columns)}, list(names)
    if names == frame.columns:
        return frame
    return selected(by_position(frame), [f"{position_name(places[name])} AS {quote_name(name)}" for name in names])


def _in_order(frame: DataFrame, names: Sequence[str]) -> DataFrame:
    return frame if list(names) == frame.columns else selected(frame, [quote_name(name) for name in names])


def _times(asked: FrameJoin, side: Side, window: Window | None) -> set[str]:
    """Columns of event time of a stream."""
    frame = asked.inputs[side]
    if not frame.isStreaming:
        return set()
    marked = {field.name for field in frame.schema.fields if DELAY_MS in field.metadata}
    return marked if window is None or window.on is None else marked | {window.on[side]}
