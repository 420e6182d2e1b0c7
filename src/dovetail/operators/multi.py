"""The contract between a join algorithm of several inputs and the driver that runs it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from dovetail.condition.graph import Graph
from dovetail.core.metrics import Counters
from dovetail.core.rows import Tuples
from dovetail.operators.protocol import Manifest, Parameters, Usage
from dovetail.storage.blocks import BlockStore
from dovetail.storage.budget import Budget


@dataclass(slots=True)
class MultiWorkspace:
    """What the runtime gives an operator of several inputs to work with."""

    graph: Graph
    budget: Budget
    blocks: BlockStore
    block_rows: int
    counters: Counters
    seed: int = 0
    parameters: dict[str, Any] = field(default_factory=dict)


class MultiOperator(Protocol):
    """The join state of several inputs. Every matching combination of rows is yielded exactly once.

    As for `JoinOperator`, with aliases instead of sides: work is recorded as done before its results are yielded; a
    generator from `react` may be dropped at any yield, those of `arrive` and `clean_up` are run to their end.
    """

    name: ClassVar[str]
    spills: ClassVar[bool]
    parameters: ClassVar[Parameters]

    def __init__(self, workspace: MultiWorkspace) -> None: ...

    @staticmethod
    def refuses(graph: Graph) -> str | None:
        """Why this operator cannot carry the condition, or None."""

    def arrive(self, alias: str, batch: pa.RecordBatch) -> Iterator[Tuples]:
        """Join the batch with what is resident of all other inputs, then keep it."""

    def end(self, alias: str) -> None:
        """The input has no more rows."""

    def react(self) -> Iterator[Tuples]:
        """Sources stall: do left-over work, one unit per yield."""

    def clean_up(self) -> Iterator[Tuples]:
        """All inputs ended: yield every result still missing."""

    def snapshot(self) -> Manifest: ...

    def restore(self, manifest: Manifest) -> None: ...

    @property
    def usage(self) -> Usage: ...
