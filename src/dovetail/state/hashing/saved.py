"""Residents of a hash join in a snapshot, without writing again what an earlier snapshot has written.

    settled   changes when rows leave: written anew then
    young     grows at its end: what has come since the last snapshot is one more block

Rows leave in flushes of a fifth of the memory or so. Between two of them a snapshot costs what has arrived since the
last one, not what is held.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from dovetail.state.blocks import Block, BlockStore
from dovetail.state.hashing.partitions import HashPartitions, Stayed
from dovetail.state.hashing.runs import stayed_batch, stayed_rows, stayed_schema


class SavedPartitions:
    """What is on disk of the residents of one side."""

    def __init__(self, store: BlockStore, schema: pa.Schema, stem: str) -> None:
        self._store = store
        self._schema = schema
        self._stem = f"{stem}-kept"
        self._settling = -1  # which settling of the side the blocks belong to
        self._settled: Block | None = None
        self._young: list[Block] = []

    @property
    def names(self) -> set[str]:
        return {block.name for block in (self._settled, *self._young) if block is not None}

    def save(self, side: HashPartitions) -> dict[str, Any]:
        """Write what is new; says where everything is, ready for JSON."""
        if side.settling != self._settling:
            self._settling = side.settling
            self._settled, self._young = self._written(side.settled), []
        new = side.young.slice(sum(block.rows for block in self._young), side.young_rows)
        block = self._written(new)
        if block is not None:
            self._young.append(block)
        settled = None if self._settled is None else self._settled.to_json()
        return {"settled": settled, "young": [block.to_json() for block in self._young]}

    def load(self, side: HashPartitions, fields: Mapping[str, Any]) -> None:
        """Put the rows where they were."""
        self._settled = None if fields["settled"] is None else Block.from_json(fields["settled"])
        self._young = [Block.from_json(young) for young in fields["young"]]
        settled = [] if self._settled is None else [self._read(self._settled)]
        side.restore(settled, map(self._read, self._young))  # one after the other: each is copied
        self._settling = side.settling

    def _written(self, rows: Stayed) -> Block | None:
        if not len(rows.hashes):
            return None
        return self._store.write(stayed_batch(rows, stayed_schema(self._schema)), self._stem)

    def _read(self, block: Block) -> Stayed:
        return stayed_rows(self._store.read(block, verify=True), self._schema)
