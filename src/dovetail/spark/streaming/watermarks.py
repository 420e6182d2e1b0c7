"""The watermarks of streams: the delay given to `withWatermark`.

`withWatermark` notes the delay at the event-time column. Projections, filters and renaming keep the note, expressions
over the column lose it, and Connect sessions show it, too.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from dovetail.core.rows import Side
from dovetail.window import Watermarks, Window

DELAY_MS = "spark.watermarkDelayMs"  # where Spark notes it in the metadata of a column


def with_delays(window: Window, inputs: tuple[DataFrame, DataFrame]) -> Window:
    """The window with the delays of its inputs' watermarks."""
    return window if window.on is None else window.with_watermarks(_delays(window.on, inputs))


def other_watermarks(window: Window, inputs: tuple[DataFrame, DataFrame]) -> tuple[str, ...]:
    """Advice on watermarks that say nothing of the window's event time, being of another column."""
    if window.on is None or window.delay_given:
        return ()
    return tuple(
        f"the watermark of {side.alias}.{field.name} is not used: the window is of {side.alias}.{window.on[side]}"
        for side in Side
        for field in inputs[side].schema.fields
        if DELAY_MS in field.metadata and field.name != window.on[side]
    )


def _delays(on: tuple[str, str], inputs: tuple[DataFrame, DataFrame]) -> Watermarks:
    left, right = (_delay(frame, name) for frame, name in zip(inputs, on, strict=True))
    return left, right


def _delay(frame: DataFrame, name: str) -> int | None:
    """Microseconds; None without a watermark, or without such a column, which planning refuses."""
    noted = [f.metadata[DELAY_MS] for f in frame.schema.fields if f.name == name and DELAY_MS in f.metadata]
    return 1000 * int(noted[0]) if noted else None
