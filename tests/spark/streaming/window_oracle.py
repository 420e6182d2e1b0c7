"""The definition of a windowed join of streams, row by row.

Sources (partitions of the left stream, then of the right one) take turns, one row each. A pair is a result when its
later row arrives, if both rows are in the window then. Rows without a partner are emitted when their window has closed.
In time windows, late rows are ignored, and a row without a time does not wait. A row is late if it is behind the
horizon of the micro-batches before its own. If both inputs have watermarks, the horizon is Spark's: the watermark of a
micro-batch comes from the rows before it, and rows are late if behind the watermark of the previous micro-batch. If the
condition bounds event time, it defines the window: rows are kept as long as its limits require, and only inputs with a
watermark have late rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.window import Window

Source = tuple[int, Sequence[int]]  # a side, and the numbers of its rows
Times = tuple[Sequence[int | None], Sequence[int | None]]  # event time in microseconds of each row, by side
Holds = Callable[[Any, Any], Any]  # whether rows match: a row number of one side, an array of them of the other
Results = Counter[tuple[int | None, int | None]]  # left row, right row; None for no row
PRESERVED = {
    "left": (0,),
    "right": (1,),
    "full": (0, 1),
    "left_anti": (0,),
}  # sides whose rows are emitted without a partner


@dataclass
class WindowOracle:
    window: Window
    how: str
    holds: Holds
    times: Times | None = None
    late_rows: int = 0
    seen: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))  # rows of each side, except late ones
    gone: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))  # rows expired by limits of event time
    timeless: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))
    places: dict[tuple[int, int], int] = field(default_factory=dict)  # position in the order of arrival
    arrived: int = 0
    newest: list[int | None] = field(default_factory=lambda: [None, None])  # newest event time of each side
    horizon: int | None = None
    watermark_ms: int = 0  # of the last micro-batch, if both inputs have one
    partnered: tuple[set[int], set[int]] = field(default_factory=lambda: (set(), set()))
    closed: tuple[set[int], set[int]] = field(default_factory=lambda: (set(), set()))

    def micro_batch(self, sources: Sequence[Source]) -> Results:
        found: Results = Counter()
        before = set(self.partnered[0])
        for side, row in turns(sources):
            found.update(self._arrive(side, row))
        self._advance(sources)
        if self.window.limits is not None:
            self._leave()
        if self.how == "left_semi":
            return Counter((row, None) for row in self.partnered[0] - before)
        results = Counter() if self.how == "left_anti" else found
        for side in PRESERVED.get(self.how, ()):
            known = [*self.seen[side], *self.gone[side], *self.timeless[side]]
            over = {row for row in known if row not in self.closed[side] and self._is_over(side, row)}
            self.closed[side].update(over)
            alone = over - self.partnered[side]
            results.update((row, None) if side == 0 else (None, row) for row in alone)
        return results

    def _arrive(self, side: int, row: int) -> list[tuple[int, int]]:
        self.places[side, row] = self.arrived
        self.arrived += 1
        if self.times is not None:
            time = self.times[side][row]
            if time is None:
                self.timeless[side].append(row)
                return []
            if self.horizon is not None and time < self.horizon and self._can_be_late(side):
                self.late_rows += 1
                return []
        self.seen[side].append(row)
        others = self._in_window(side, row)
        matching = others[self.holds(row, others) if side == 0 else self.holds(others, row)]
        pairs = [(row, int(o)) if side == 0 else (int(o), row) for o in matching]
        for own, partners in enumerate(self.partnered):
            partners.update(pair[own] for pair in pairs)
        return pairs

    def _in_window(self, side: int, row: int) -> NDArray[np.int64]:
        """The rows of the other side that are in the window when this row arrives."""
        other = 1 - side
        if self.window.limits is not None:
            rows = self.seen[other]
        elif self.times is not None:
            now, times = self.times[side][row], self.times[other]
            rows = [o for o in self.seen[other] if abs(times[o] - now) < self.window.size]  # type: ignore[operator]
        elif self.window.scope == "combined":
            first = self.arrived - self.window.size
            rows = [o for o in self.seen[other][-self.window.size :] if self.places[other, o] >= first]
        else:
            rows = self.seen[other][-self.window.size :]
        return np.array(rows, np.int64)

    def _leave(self) -> None:
        """Drop rows by the watermark of their micro-batch. An input without its own watermark has no late rows, but its
        rows only find partners that are still kept."""
        for side, rows in enumerate(self.seen):
            self.gone[side].extend(row for row in rows if self._is_over(side, row))
            rows[:] = [row for row in rows if not self._is_over(side, row)]

    def _can_be_late(self, side: int) -> bool:
        return self.window.limits is None or self.window.limits.late[side] is not None

    def _advance(self, sources: Sequence[Source]) -> None:
        if self.times is None:
            return
        if self.window.by_watermark:
            ends = [
                0 if newest is None else newest // 1000 - delay // 1000
                for newest, delay in zip(self.newest, self.window.watermarks, strict=True)
                if delay is not None
            ]
            self.watermark_ms = max(self.watermark_ms, min(ends))
            self.horizon = 1000 * self.watermark_ms + 1 if self.watermark_ms else None
        for side, rows in sources:
            known = [time for row in rows if (time := self.times[side][row]) is not None]
            self.newest[side] = max([*known, *self._newest([side])], default=None)
        if not self.window.by_watermark:
            self.horizon = self._horizon()

    def _horizon(self) -> int | None:
        """The minimum over both sides; a side with a watermark uses its own rows, otherwise the rows of both."""
        ends = []
        for side, watermark in enumerate(self.window.watermarks):
            newest = self._newest([0, 1] if watermark is None else [side])
            if not newest:
                return None
            ends.append(max(newest) - (self.window.delay if watermark is None else watermark))
        return min(ends)

    def _newest(self, sides: list[int]) -> list[int]:
        return [time for side in sides if (time := self.newest[side]) is not None]

    def _is_over(self, side: int, row: int) -> bool:
        """Whether no future row can be in a window with this row."""
        if self.times is not None:
            time = self.times[side][row]
            if self.window.limits is not None:
                left_at = self.window.limits.expiry[side]
                return time is None or (self.horizon is not None and time < self.horizon + left_at)
            return time is None or (self.horizon is not None and self.horizon - time >= self.window.size)
        if self.window.scope == "combined":
            return self.places[side, row] <= self.arrived - self.window.size
        return row not in self.seen[side][-self.window.size :]


def turns(sources: Sequence[Source]) -> Iterator[tuple[int, int]]:
    """(side, row) in the order of arrival."""
    for round_ in zip_longest(*(rows for _, rows in sources)):
        for (side, _), row in zip(sources, round_, strict=True):
            if row is not None:
                yield side, row
