"""Decides whether to evict rows by value or by age, by trying both on a sample of the keys.

    arriving keys --> sample --> a small memory whose rows are evicted by value (blockwise/regions.py) --> its results
                             \\-> a small memory whose oldest rows are evicted                         --> its results

If both inputs arrive clustered alike, for example orders and their items by date, the partners of old rows have already
passed: old rows should be evicted first, as in Diag-Join. If some values give most of the results, age means nothing.
Both memories see the same keys and hold the same share of them as the real memory, which uses the better policy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.core.rows import Rows, Side
from dovetail.operators.blockwise.regions import Policy, Regions
from dovetail.operators.diner.keys import Keyed
from dovetail.storage.blocks import Block, BlockStore

Words = NDArray[np.int64]

FEWEST_ROWS = 256  # rows of a sampled memory, at least;
RATE = 32  # at first one key in 32 is sampled,
ENOUGH_ROWS = 2048  # and fewer above this number of rows
MOST_RATE = 1024
SURPLUS = 1.02  # factor by which the other policy must be better to be chosen,
MARGIN = 16  # plus this number of results
DECAY = 0.97  # of results, at each flush


class SampledMemory:
    """Keys of both sides that would be in memory, in the order of arrival."""

    def __init__(self, rows: int, block: int, policy: Policy | None) -> None:
        """`policy` evicts by value; None: by age."""
        self.results = 0.0
        self._most = rows
        self._block = block
        self._regions = None if policy is None else (Regions(policy), Regions(policy))
        self._keys: list[NDArray[Any]] = [np.empty(0, np.int64) for _ in Side]
        self._codes: list[NDArray[Any]] = [np.empty(0, np.int64) for _ in Side]
        self._marks: list[NDArray[Any]] = [np.empty(0, np.bool_) for _ in Side]

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for columns in (self._keys, self._codes, self._marks) for column in columns)

    def arrive(self, side: Side, keys: Words, codes: Words) -> None:
        theirs = self._keys[side.other]
        ordered = np.sort(theirs)
        found = np.searchsorted(ordered, keys, side="right") - np.searchsorted(ordered, keys)
        self.results += float(found.sum())
        if self._regions is not None:
            self._regions[side].credit(codes, found)
            self._regions[side.other].credit(codes, found)
            self._marks[side.other] |= np.isin(theirs, keys)
        while any(map(len, self._keys)) and sum(map(len, self._keys)) + len(keys) > self._most:
            self._flush()
        if self._regions is not None:
            self._regions[side].add(codes)
        self._keys[side] = np.concatenate([self._keys[side], keys])
        self._codes[side] = np.concatenate([self._codes[side], codes])
        self._marks[side] = np.concatenate([self._marks[side], found > 0])

    def batch(self) -> pa.RecordBatch:
        """The keys of both sides, left first."""
        sides = np.repeat(np.array([False, True]), [len(keys) for keys in self._keys])
        columns = [sides, *(np.concatenate(column) for column in (self._keys, self._codes, self._marks))]
        return pa.record_batch(columns, ["side", "key", "code", "mark"])

    def to_json(self) -> dict[str, Any]:
        """Everything but the keys."""
        regions = None if self._regions is None else [of_side.to_json() for of_side in self._regions]
        return {"rows": self._most, "block": self._block, "results": self.results, "regions": regions}

    @classmethod
    def read(cls, fields: dict[str, Any], batch: pa.RecordBatch, policy: Policy) -> SampledMemory:
        """Restore a saved memory."""
        by_age = fields["regions"] is None
        memory = cls(fields["rows"], fields["block"], None if by_age else policy)
        memory.results = fields["results"]
        of_side, *columns = (np.array(column) for column in batch.columns)
        for side in Side:
            mine = of_side == side
            memory._keys[side], memory._codes[side], memory._marks[side] = (column[mine] for column in columns)
        if not by_age:
            left, right = (Regions.from_json(policy, regions) for regions in fields["regions"])
            memory._regions = left, right
            for side in Side:
                memory._regions[side].recount(memory._codes[side])
        return memory

    def _flush(self) -> None:
        side = Side.LEFT if len(self._keys[0]) >= len(self._keys[1]) else Side.RIGHT
        leaving = self._choose(side)
        stay = np.ones(len(self._keys[side]), np.bool_)
        stay[leaving] = False
        for columns in (self._keys, self._codes, self._marks):
            columns[side] = columns[side][stay]

    def _choose(self, side: Side) -> Rows:
        if self._regions is None:
            return np.arange(min(self._block, len(self._keys[side])))
        marks = self._marks[side]
        victims = self._regions[side].choose(self._codes[side], marks, np.arange(len(marks)), self._block)
        marks[victims.spared] = False
        return victims.rows


class EvictionTrial:
    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._rate = 0  # 0: memory has not been full yet
        self._memories: tuple[SampledMemory, ...] = ()
        self.by_age = False
        self.names: list[str] = []  # of the blocks in the last snapshot

    @property
    def nbytes(self) -> int:
        return sum(memory.nbytes for memory in self._memories)

    def arrive(self, side: Side, keyed: Keyed) -> None:
        if not self._rate or keyed.hashes is None:
            return
        sampled = np.flatnonzero((keyed.hashes >> 32) & (self._rate - 1) == 0)
        if len(sampled):
            for memory in self._memories:
                memory.arrive(side, keyed.hashes[sampled], keyed.codes[sampled])

    def decide(self, rows: int, block: int) -> bool:
        """Called before a block of the rows in memory is evicted; returns whether to evict the oldest."""
        if not self._rate:
            self._rate = _rate(rows)
            size = max(FEWEST_ROWS, rows // self._rate), max(1, block // self._rate)
            self._memories = (SampledMemory(*size, self._policy), SampledMemory(*size, None))
        by_value, by_age = (memory.results for memory in self._memories)
        if by_age > by_value * SURPLUS + MARGIN:
            self.by_age = True
        elif by_value > by_age * SURPLUS + MARGIN:
            self.by_age = False
        for memory in self._memories:
            memory.results *= DECAY
        return self.by_age

    def restart(self) -> None:
        """Start again after the coding of keys has changed."""
        self._rate, self._memories = 0, ()

    def save(self, store: BlockStore) -> dict[str, Any]:
        """The decision, and the samples: keys in blocks, everything else ready for JSON."""
        blocks = [store.write(memory.batch(), "trial") for memory in self._memories]
        self.names = [block.name for block in blocks]
        memories = [
            {**memory.to_json(), "keys": block.to_json()} for memory, block in zip(self._memories, blocks, strict=True)
        ]
        return {"by_age": self.by_age, "rate": self._rate, "memories": memories}

    def restore(self, fields: dict[str, Any], store: BlockStore) -> None:
        self.by_age = fields["by_age"]
        self._rate = fields.get("rate", 0)  # samples of 0.1.0 start again
        self._memories = tuple(
            SampledMemory.read(memory, store.read(Block.from_json(memory["keys"])), self._policy)
            for memory in fields.get("memories", ())
        )


def _rate(rows: int) -> int:
    rate = 1
    while rate < MOST_RATE and rows // (2 * rate) >= (FEWEST_ROWS if rate < RATE else ENOUGH_ROWS):
        rate *= 2
    return rate
