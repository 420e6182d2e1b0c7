"""A cell of a streaming join without a window: one operator, one micro-batch at a time.

    rows arrived        arrive, then end the inputs with a marker row; react in slices
    a timer expired     no input for this cell: react in slices until there is no pending work; then report every second
                        that the cell waits, without loading its state
    all inputs ended    react in the same way, then clean up; the cell is finished
    limit reached       arriving rows are dropped; the cell is finished

Timers are used by operators with deferred work, and by streams that end, to distinguish the end from a stall. They
expire in every micro-batch, with or without input for other cells. pace.py decides how much a cell reacts.

All attempts at a micro-batch emit the same rows: rows arrive in the same order, and background work is counted, not
timed. When an executor is lost, a task may complete twice, and Spark may keep the rows of one attempt and the state of
the other.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator
from dataclasses import asdict, fields
from typing import Any

import pandas as pd
import pyarrow as pa

from dovetail.core.join_types import JoinType
from dovetail.core.metrics import HEARTBEAT_S, Estimate
from dovetail.core.rows import Arrival, Side, Stall
from dovetail.estimation.estimate import CONFIDENCE
from dovetail.execution.driver import Found
from dovetail.operators.protocol import Usage
from dovetail.spark.exchange.packing import from_bytes
from dovetail.spark.streaming.cell import Cell
from dovetail.spark.streaming.end_of_stream import NEWS
from dovetail.spark.streaming.pace import Call, Pace
from dovetail.spark.streaming.pack_order import packs_in_order
from dovetail.spark.streaming.stream_join import StreamJoin

HEARTBEAT_MS = int(1000 * HEARTBEAT_S)


class StreamCell(Cell[StreamJoin]):
    """Joins arriving rows, and works in the background while none arrive."""

    def __init__(self, join: StreamJoin, notes: dict[str, Any] | None) -> None:
        super().__init__(join)
        none = {"ended": [False] * join.inputs, "arrived": [0] * join.inputs}
        noted: dict[str, Any] = none if notes is None else notes
        self.ended = tuple(noted["ended"])
        self.is_over = noted.get("finished", False)
        self.timer = noted.get("timer")
        self.usage = Usage(**{field.name: noted.get(field.name, 0) for field in fields(Usage)})
        self.state_bytes = noted.get("state_bytes", 0)
        self._more: bool = noted.get("more", True)  # whether there is work left
        self._measured = Pace(**noted.get("pace", {}))  # 0.1.0 wrote none
        self._pace = Pace(**noted.get("earlier_pace", noted.get("pace", {})))
        self._arrived: list[int] | None = noted.get("arrived")  # rows by input; 0.1 did not count them

    def to_json(self) -> dict[str, Any]:
        noted = {"ended": list(self.ended), "more": self._more and not self.is_over, "finished": self.is_over}
        noted |= {"timer": self.timer, "arrived": self._arrived}
        noted |= {"pace": asdict(self._measured), "earlier_pace": asdict(self._pace)}
        return noted | asdict(self.usage) | {"state_bytes": self.state_bytes}

    @property
    def is_waiting(self) -> bool:
        return not self._more and not self._join.setting.ends_when_idle

    def run(self, rows: Iterator[pd.DataFrame] | None, now: int) -> Iterator[pa.RecordBatch]:
        began = time.time()
        arrived = 0
        if rows is not None:
            arrived = yield from self._arrive(rows)
            self._more = True
        elif self._join.setting.ends_when_idle:
            self._end(range(self._join.inputs))
        reacts = time.time()
        units = yield from self._react(arrived)
        call = Call(began, arrived, reacts - began, units, time.time() - reacts, self._more)
        # Attempts measure different times, so what this one has measured counts from the next micro-batch but one.
        self._pace, self._measured = self._measured, self._measured.after(call, self._join.cells_per_core)

    def next_timer(self, now: int) -> int | None:
        return now + (1 if self._more else HEARTBEAT_MS)

    def estimate(self, emitted: int) -> Estimate | None:
        """The estimate, once the inputs have ended: their sizes are unknown before."""
        if self.is_over:
            return Estimate(emitted, emitted, emitted, CONFIDENCE)
        arrived = self._arrived
        if self._join.plan.how is not JoinType.INNER or arrived is None or len(arrived) != len(Side):
            return None
        own = self._operator.estimator
        estimator = self._workspace.estimator if own is None else own
        return estimator.estimate(arrived[0], arrived[1]) if all(self.ended) else None

    def figures(self) -> dict[str, int]:
        return super().figures() | {"reactive": self.reactive, "finished": int(self.is_over)}

    def _arrive(self, rows: Iterator[pd.DataFrame]) -> Generator[pa.RecordBatch, None, int]:
        """Join arriving rows, then end inputs. Returns the number of rows."""
        ends, arrived = set(), 0
        for _, number, payload in packs_in_order(rows, self._join.pack_bytes):
            if payload is not None:
                batch = from_bytes(payload)
                arrived += batch.num_rows
                if self._arrived is not None:
                    self._arrived[number] += batch.num_rows
                yield from self._rows(self._driver.handle(Arrival(number, batch)))
            elif number != NEWS:
                ends.add(number)
        self._end(ends)
        return arrived

    def _react(self, arrived: int) -> Generator[pa.RecordBatch, None, int]:
        """Do a slice of pending work. If none is left and all inputs have ended, clean up. Returns the units done."""
        join, ended = self._join, all(self.ended)
        most = self._pace.units_in_slice(join.setting.latency_s, join.cells_per_core, arrived)
        if ended:
            most = self._pace.units_at_rest()
        units = 0

        def counted() -> Iterator[Found]:
            nonlocal units
            for found in self._driver.handle(Stall(most)):
                units += 1
                yield found
                del found

        yield from self._rows(counted())
        if units < most:
            self._more = False
            if ended and not self.is_over:
                yield from self._rows(self._driver.clean_up())
                self.is_over = True
        return units

    def _end(self, numbers: Iterable[int]) -> None:
        """End these inputs. Background work finds the remaining results."""
        for number in sorted(numbers):
            if not self.ended[number]:
                self._driver.end(number)
                self.ended = (*self.ended[:number], True, *self.ended[number + 1 :])
