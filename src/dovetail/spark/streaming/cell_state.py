"""The state of a cell between micro-batches: a manifest in Spark's state store, segments in a directory or store.

    manifest of the last commit --> restore --> the micro-batch --> segments --> the next manifest

The manifest is committed with the micro-batch. Until then, nothing that the last manifest names is removed, so Spark
can repeat a failed micro-batch from there.

Segments can be read only by the join that wrote them. Its definition, the layout, is stored beside them. The manifest
contains the layout's digest, because the directory may get lost, or belong to another checkpoint.
"""

from __future__ import annotations

import json
from typing import Any

from pyspark import TaskContext

from dovetail.errors import StateError
from dovetail.operators.protocol import Manifest, Resumable
from dovetail.spark.streaming.state_dir import check_layout, layout_digest
from dovetail.spark.streaming.stream_join import CellJoin
from dovetail.storage.blocks import RECOVERY
from dovetail.storage.segments import SegmentStore
from dovetail.storage.store import Store
from dovetail.storage.stored_state import CELL, parse_manifest, write_copy

_written: dict[tuple[str, int], str] = {}
"""The latest manifest of each cell written by this process, by the place of its join."""


class CellState:
    """Created anew for each micro-batch. `value` is Spark's state: a row with one column."""

    def __init__(
        self, value: Any, join: Store, layout: dict[str, Any], cell: int, batch: int, *, stay_mapped: bool = True
    ) -> None:
        self._value = value
        self._join, self._cell, self._batch = join, cell, batch
        document = value.get()
        self._text: str | None = None if document is None else document[0]
        self._stored: dict[str, Any] | None = None if self._text is None else self._parse(self._text)
        check_layout(join, layout, is_new=self.is_new)
        self._layout = layout_digest(layout)
        if self._stored is not None and self._stored.get("layout", self._layout) != self._layout:  # 0.2 wrote none
            raise StateError(
                f"the manifest of cell {cell} in the checkpoint belongs to another join than the state in {join}. "
                f"Start the query as before, or with a new checkpoint. {RECOVERY}"
            )
        version = 1 + (self._stored["version"] if self._stored is not None else 0)
        self.segments = SegmentStore(join / CELL.format(cell), version, stay_mapped=stay_mapped)

    def _parse(self, text: str) -> dict[str, Any]:
        """Parse a manifest. It is not checked if this process has written it."""
        known: dict[str, Any] = json.loads(text) if _written.get((self._join.key, self._cell)) == text else {}
        return known or parse_manifest(text)

    @property
    def is_new(self) -> bool:
        return self._stored is None

    @property
    def emitted(self) -> int:
        """The number of results of all earlier micro-batches."""
        return 0 if self._stored is None else int(self._stored.get("emitted", 0))  # 0.1 did not count them

    @property
    def notes(self) -> Any:
        """The state besides the operator. None if there is none yet."""
        return None if self._stored is None else self._stored["notes"]

    def restore(self, operator: Resumable) -> None:
        stored = self._stored
        if stored is not None:
            operator.restore(Manifest(stored["version"], stored["state"], tuple(stored["segments"])))

    def commit(self, manifest: Manifest, notes: Any, emitted: int) -> None:
        """Store a snapshot of the operator, and remove segments that no manifest can need."""
        stored = self._stored
        if stored is not None:
            self.segments.sweep(stored["version"], [*stored["segments"], *stored["previous"]])
        document = {
            "version": manifest.version,
            "batch": self._batch,
            "state": manifest.state,
            "segments": manifest.segments,
            "previous": stored["segments"] if stored is not None else [],
            "notes": notes,
            "emitted": emitted,
        }
        self.segments.flush()
        text = self._update(document)
        write_copy(self._join, self._cell, text, self._text)

    def note(self, notes: Any) -> None:
        """Store other notes, with the operator unchanged."""
        self._update({**(self._stored or {}), "notes": notes})

    def close(self, notes: Any, emitted: int) -> None:
        """Store no operator: there is nothing more to join. Segments are kept, because this attempt may fail."""
        last = self._stored or {"version": 0, "state": None, "segments": [], "previous": []}
        self._update({**last, "notes": notes, "emitted": emitted})

    def _update(self, document: dict[str, Any]) -> str:
        """Set the state to be committed with the micro-batch. Returns it as text."""
        text = json.dumps({**document, "layout": self._layout})
        self._value.update((text,))
        _written[self._join.key, self._cell] = text
        return text


def join_directory(join: CellJoin) -> Store:
    """The directory of this query for a join. The query's id does not change when it is restarted."""
    return join.setting.place(_property("sql.streaming.queryId"))


def batch_id() -> int:
    """The number of the micro-batch."""
    return int(_property("streaming.sql.batchId") or 0)


def _property(name: str) -> str:
    """A property of the query that Spark passes to its tasks."""
    context = TaskContext.get()
    assert context is not None, "cells are joined inside Spark tasks"
    return str(context.getLocalProperty(name) or "")
