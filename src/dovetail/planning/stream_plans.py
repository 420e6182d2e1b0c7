"""Plans for streams other than the operators for two inputs: joins within a window, and with a table at rest."""

from __future__ import annotations

import pyarrow as pa

from dovetail.arguments import nearest
from dovetail.condition import Condition
from dovetail.condition.graph import Graph
from dovetail.core.join_types import JoinType
from dovetail.core.rows import Side
from dovetail.errors import InputError, PlanError
from dovetail.planning.kernel_plans import by_kernel, by_spark, checked_beside, describe_strategy, is_plain_equality
from dovetail.planning.operator_choice import operators_within_windows
from dovetail.planning.plan import Choice, JoinPlan
from dovetail.storage.budget import Budget, Shares
from dovetail.window import UNBOUNDED, Window

WITH_TABLE = (JoinType.LEFT, JoinType.RIGHT, JoinType.LEFT_SEMI, JoinType.LEFT_ANTI)  # if the stream is that side


def with_table(condition: Condition, how: JoinType, table: Side, algorithm: str, memory_bytes: int | None) -> JoinPlan:
    """A stream and a table at rest: rows of the stream are joined with the whole table, and not kept."""
    stream = table.other
    if set(how.tracked) - {stream}:
        possible = (JoinType.INNER, *(one for one in WITH_TABLE if one.tracked == (stream,)))
        turned = f" For how={how!r}, make the stream the {table.name.lower()} input." if how.tracked == (table,) else ""
        raise PlanError(
            f"how={how!r} depends on which rows of the {table.name.lower()} input have no partner, and that is a table "
            f"at rest: only at the end of the stream is it known which. With the stream as the {stream.name.lower()} "
            f"input there are {' and '.join(', '.join(possible).rsplit(', ', 1))} joins.{turned}"
        )
    if algorithm != "auto":
        raise PlanError(f"algorithm={algorithm!r} does not join a stream with a table at rest. Use algorithm='auto'.")
    Shares(Budget(memory_bytes), block_rows=1)  # refuses a budget that is too small, before any work
    if memory_bytes is None and is_plain_equality(condition):
        return by_spark(condition, how)
    return by_kernel(condition, how, memory_bytes)


def within_window(
    condition: Condition, how: JoinType, window: Window, algorithm: str, memory_bytes: int | None
) -> JoinPlan:
    """A plan with sorted runs of the rows in the window."""
    windowed = operators_within_windows()
    if algorithm not in ("auto", *windowed):
        raise PlanError(f"algorithm={algorithm!r} does not join within windows; {' and '.join(windowed)} does.")
    _check_closing(how, window)
    for side, name in enumerate(window.on or ()):
        _check_event_time(name, Side(side), condition.schemas[side])
    strategy = condition.strategy
    return JoinPlan(
        Graph.of(condition),
        how,
        Choice(windowed[0], f"sorted runs of both streams, within {window.text}"),
        driven=describe_strategy(strategy),
        checked=checked_beside(condition, (*strategy.equal, *strategy.predicates)),
        memory_bytes=memory_bytes,
        delays=window.delay_lines,
        state=window.state_lines,
    )


def _check_event_time(name: str, side: Side, schema: pa.Schema) -> None:
    """Refuse a time window on columns that are not timestamps."""
    which, said = f"the {side.name.lower()} side", f"the window is of time on {name!r}"
    if name not in schema.names:
        meant = nearest(name, schema.names)
        hint = f"Did you mean {meant!r}?" if meant else f"It has: {', '.join(schema.names)}."
        raise InputError(f"{said}, which is not a column of {which}. {hint}")
    if not pa.types.is_timestamp(type_ := schema.field(name).type):
        raise InputError(f"{said}, which is not a timestamp of {which}: it is {type_}. Cast it before the join.")


def _check_closing(how: JoinType, window: Window) -> None:
    """Refuse outer joins whose rows would wait for a partner forever."""
    for side in how.preserved:
        if window.expiry(side) <= -UNBOUNDED:
            raise PlanError(
                f"how={how!r}: a row of {side.alias} without a partner is never emitted, because nothing says when it "
                f"can no longer find one. Set a watermark on the other input, and bound {side.alias}'s event time by "
                f"it in the condition, as in l.ts BETWEEN r.ts AND r.ts + INTERVAL 1 HOUR."
            )
