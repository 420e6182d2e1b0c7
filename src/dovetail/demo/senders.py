"""The script of a run: two servers that each send a table, in bursts with stalls in between."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dovetail.sources.flight_server import TableServer
from dovetail.sources.paced import Paced, Seconds

Burst = tuple[float, float]
"""Seconds of sending, and of the stall that follows."""

ORDERS: tuple[Burst, ...] = ((3.0, 5.5), (3.0, 4.5), (2.0, 0.0))
PAYMENTS: tuple[Burst, ...] = ((2.5, 6.5), (3.5, 3.5), (2.0, 0.0))
ROWS = 8_000
DAY_S = 86_400
FIRST = 1_000
GRAIN_S = 0.02
"""Rows arrive in small batches, at this interval."""


@dataclass(frozen=True, slots=True)
class Sender:
    """A table, and the server that sends it."""

    name: str
    rows: Paced
    bursts: tuple[Burst, ...]
    server: TableServer

    @property
    def location(self) -> str:
        return f"grpc://127.0.0.1:{self.server.port}"

    @property
    def sent(self) -> int:
        return self.rows.due()

    @property
    def silent(self) -> bool:
        return not self.rows.ended() and is_silent(self.bursts, self.rows.elapsed())


@dataclass(frozen=True, slots=True)
class Script:
    """What the two servers send, when, and how it is joined."""

    tables: Mapping[str, pa.Table]
    bursts: tuple[tuple[Burst, ...], tuple[Burst, ...]]
    first: int  # rows available at once: Spark's workers start and load with them, before the clock starts
    on: str
    memory: str  # per cell


def write_script() -> Script:
    """The script with orders and payments."""
    rng = np.random.default_rng(7)
    ids = np.arange(ROWS)
    ordered_at, paid_at = (rng.integers(0, DAY_S, ROWS) for _ in range(2))
    amount, paid = (rng.gamma(2.0, 40.0, ROWS).round(2) for _ in range(2))
    orders = pa.table({"order_id": ids, "ordered_at": ordered_at, "amount": amount})
    payments = pa.table({"payment_id": ids, "paid_at": paid_at, "paid": paid})
    on = "r.paid_at BETWEEN l.ordered_at AND l.ordered_at + 600 AND r.paid >= l.amount"
    return Script({"orders": orders, "payments": payments}, (ORDERS, PAYMENTS), FIRST, on, "66KB")


@contextmanager
def senders(script: Script) -> Iterator[tuple[Sender, Sender]]:
    """Two servers that run until the end of the block. `begin` starts their clocks."""
    made = []
    for (name, table), bursts in zip(script.tables.items(), script.bursts, strict=True):
        rows = Paced(table, in_bursts(table.num_rows, bursts, script.first), name)
        made.append(Sender(name, rows, bursts, TableServer({name: rows})))
    try:
        yield made[0], made[1]
    finally:
        for sender in made:
            sender.server.shutdown()


def in_bursts(rows: int, bursts: tuple[Burst, ...], first: int = FIRST) -> Seconds:
    """When each row arrives: the first ones before the clock starts, the others evenly during the bursts."""
    sending = sum(talk for talk, _ in bursts)
    talked = np.linspace(0.0, sending, rows - first)
    starts = np.cumsum([0.0, *(talk for talk, _ in bursts)])[:-1]
    silences = np.cumsum([0.0, *(silence for _, silence in bursts)])[:-1]
    burst = np.searchsorted(starts, talked, side="right") - 1
    seconds = np.ceil((talked + silences[burst]) / GRAIN_S) * GRAIN_S
    return np.concatenate([np.zeros(first), np.maximum(seconds, GRAIN_S)])


def is_silent(bursts: tuple[Burst, ...], second: float) -> bool:
    for talk, silence in bursts:
        if second < talk + silence:
            return second >= talk
        second -= talk + silence
    return False


def silences(one: tuple[Burst, ...], other: tuple[Burst, ...]) -> list[tuple[float, float]]:
    """The intervals in which no server sends."""
    edges = np.arange(0.0, sum(map(sum, one)) + sum(map(sum, other)), GRAIN_S)
    both = [is_silent(one, edge) and is_silent(other, edge) for edge in edges]
    turns = np.flatnonzero(np.diff([False, *both, False]))
    return [(float(edges[start]), float(edges[end - 1])) for start, end in zip(turns[::2], turns[1::2], strict=True)]
