"""The memory budget of one operator: residents + indexes + input buffer + loaded blocks.

It counts bytes of Arrow buffers and index arrays, or rows, for experiments defined in rows. Holders register their
memory under a name. Exceeding the limit raises immediately; nothing is dropped.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import isfinite
from typing import Any, Literal

from dovetail.core.metrics import Counters
from dovetail.errors import BudgetError, InputError

UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}

BUFFER = "input buffer"
"""The holder of an arriving batch. The operator releases it when it stores the rows."""

Unit = Literal["bytes", "rows"]
LOOKS = 32  # calls of `look` while as many bytes are allocated or freed as the limit


def parse_bytes(memory: str | int | float) -> int:
    """Parse a budget: 268435456, 256e6, "256MB", "1.5 GiB"."""
    given: Any = memory
    is_part = isinstance(given, float) and not (isfinite(given) and given.is_integer())
    if isinstance(given, bool) or not isinstance(given, str | int | float) or is_part:
        raise InputError(f"memory must be a number of bytes or a text such as '256MB'; got {memory!r}.")
    if not isinstance(memory, str):
        amount = int(memory)
    else:
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?\s*", memory.lower())
        if not found or found[2] == "i":
            raise InputError(f"memory must be a number of bytes or a text such as '256MB'; got {memory!r}.")
        amount = int(float(found[1]) * UNITS[found[2]])
    if amount <= 0:
        raise InputError(f"memory must be positive; got {memory!r}.")
    return amount


def bytes_of(memory: str | float | None) -> int | None:
    """The value of `memory=` in bytes. None for no limit."""
    return None if memory is None else parse_bytes(memory)


class Budget:
    """Counts the memory held under each name against one limit. With `limit=None` it only counts."""

    def __init__(
        self,
        limit: int | None,
        unit: Unit = "bytes",
        counters: Counters | None = None,
        look: Callable[[], None] | None = None,
    ) -> None:
        """`look` is called whenever a part of the limit has been allocated or freed since the last call."""
        self.limit = limit
        self._look = look
        self._moved = 0
        self.unit: Unit = unit
        self._counters = counters or Counters()
        self._held: dict[str, tuple[int, int]] = {}
        self._rows = 0
        self._bytes = 0

    def measure(self, rows: int, nbytes: int) -> int:
        """The cost of holding this much, in the budget's unit."""
        return rows if self.unit == "rows" else nbytes

    @property
    def used(self) -> int:
        return self.measure(self._rows, self._bytes)

    def hold(self, name: str, rows: int, nbytes: int) -> None:
        """Set what `name` holds. Replaces what it held before."""
        old_rows, old_bytes = self._held.get(name, (0, 0))
        self._rows += rows - old_rows
        self._bytes += nbytes - old_bytes
        self._held[name] = (rows, nbytes)
        if self._look is not None and self.limit is not None:
            self._moved += abs(nbytes - old_bytes)
            if LOOKS * self._moved > self.limit:
                self.look()
        if self.limit is not None and self.used > self.limit:
            raise BudgetError(self._complaint())
        seen = self._counters
        seen.peak_rows_in_memory = max(seen.peak_rows_in_memory, self._rows)
        seen.peak_bytes_in_memory = max(seen.peak_bytes_in_memory, self._bytes)

    def look(self) -> None:
        """Called when much was freed though as much is held as before, because a copy replaced it."""
        self._moved = 0
        if self._look is not None:
            self._look()

    def release(self, name: str) -> None:
        self.hold(name, 0, 0)

    def _complaint(self) -> str:
        holders = ", ".join(
            f"{name} {self.measure(rows, nbytes):,}" for name, (rows, nbytes) in self._held.items() if rows or nbytes
        )
        return f"the memory budget of {self.limit:,} {self.unit} is exceeded: {self.used:,} are needed ({holders})."


FEWEST_BLOCKS = 4  # with two inputs: input buffer, one outer block, one inner block, one block of residents
SMALLEST_BLOCK = 16 * 1024  # bytes
BLOCKS = 16  # number of blocks that a budget in bytes is divided into
HEADROOM = 0.75  # share of a block that is filled with rows; the rest is for the file format and extra columns


class Shares:
    """How a spilling operator divides its budget, in the budget's unit.

    residents   rows and indexes that arriving rows probe, while blocks are loaded
    alone       the same, while no blocks are loaded
    block       rows written as one block
    outer       blocks loaded at once by block joins, besides one inner block (of each other input)
    The remainder is one block for the input buffer.
    """

    def __init__(self, budget: Budget, block_rows: int, inputs: int = 2) -> None:
        limit = budget.limit
        if limit is None:
            self.block = self.residents = self.alone = 2**62
            self.outer_blocks = self.outer_blocks_at_end = 1
            return
        whole = block_rows if budget.unit == "rows" else max(limit // BLOCKS, SMALLEST_BLOCK)
        blocks = limit // whole
        fewest = FEWEST_BLOCKS + inputs - 2
        if blocks < fewest:
            raise BudgetError(
                f"a memory budget of {limit:,} {budget.unit} holds {blocks} blocks of {whole:,} {budget.unit}, "
                f"and at least {fewest} are needed. Give {fewest * whole:,} {budget.unit} or more"
                + (", or smaller blocks." if budget.unit == "rows" else ".")
            )
        self.block = whole if budget.unit == "rows" else int(whole * HEADROOM)
        self.outer_blocks = max(1, (blocks - inputs) // 3)
        self.outer_blocks_at_end = blocks - inputs
        self.residents = limit - whole * (self.outer_blocks + inputs)
        self.alone = limit - whole
