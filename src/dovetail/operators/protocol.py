"""The contract between a join algorithm and the driver that runs it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol

import pyarrow as pa

from dovetail.condition.graph import Graph
from dovetail.condition.predicates import Condition, Predicate
from dovetail.core.metrics import Counters
from dovetail.core.rows import Matches
from dovetail.estimation.estimate import Estimator
from dovetail.storage.blocks import BlockStore
from dovetail.storage.budget import Budget, Shares


@dataclass(frozen=True, slots=True)
class Usage:
    """What an operator holds right now."""

    resident_rows: int = 0
    resident_bytes: int = 0
    spilled_rows: int = 0
    spilled_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Manifest:
    """All an operator needs to continue elsewhere. Small and JSON-ready; bulk state is immutable segment files."""

    version: int
    state: dict[str, Any]
    segments: tuple[str, ...]  # names, relative to the block store's directory


class Approach(NamedTuple):
    """How an operator runs a condition, for plans."""

    text: str
    driving: tuple[Predicate, ...]  # find candidates; all others are checked. None: every pair is a candidate


Parameters = Mapping[str, Any]
"""The parameters of an operator: the name and the type of each, as `isinstance` takes it."""

INNER = ("inner",)
TWO = range(2, 3)
TWO_AND_MORE = range(2, 1 << 10)


@dataclass(slots=True)
class Workspace:
    """The resources that the runtime provides to an operator."""

    graph: Graph
    budget: Budget
    blocks: BlockStore
    block_rows: int
    counters: Counters
    seed: int = 0
    parameters: dict[str, Any] = field(default_factory=dict)
    estimator: Estimator = field(default_factory=Estimator)  # receives blocks of rows that have been joined completely

    @property
    def condition(self) -> Condition:
        """The condition of a join of two inputs."""
        return self.graph.condition

    @property
    def shares(self) -> Shares:
        """How the budget is divided by an operator that spills; too small a budget is refused here."""
        return Shares(self.budget, self.block_rows, len(self.graph.aliases))


class JoinOperator(Protocol):
    """The join state of one cell. Every matching combination of rows is yielded exactly once over the whole run.

    Inputs are identified by position; an operator of two gets them as `Side`. Work is recorded as done before its
    results are yielded; a yield after each unit of work returns control to the driver. A generator returned by `arrive`
    or `clean_up` is always run to its end; one from `react` may be dropped at any yield. Yielded matches may be empty;
    matches in which an input has no row are rows that the join type emits by themselves.
    """

    name: ClassVar[str]
    inputs: ClassVar[range]
    """How many inputs it can join."""
    spills: ClassVar[bool]
    """Whether it spills to keep within its budget; an operator that does not raises BudgetError instead."""
    emits_at_arrival: ClassVar[bool]
    """Whether every result is emitted when its last row arrives, so that there is never pending work."""
    takes_turns: ClassVar[bool]
    """Whether tables are joined faster when their batches are interleaved than one table after the other."""
    join_types: ClassVar[tuple[str, ...]]
    """Supported join types, passed as the parameter `how`."""
    parameters: ClassVar[Parameters]
    """Further parameters."""

    def __init__(self, workspace: Workspace) -> None: ...

    @staticmethod
    def refuses(graph: Graph) -> str | None:
        """Why this operator cannot run the condition, or None."""

    @staticmethod
    def approach(graph: Graph) -> Approach:
        """How it runs a condition that it does not refuse."""

    def arrive(self, number: Any, batch: pa.RecordBatch, /) -> Iterator[Matches]:
        """Probe the residents of the other inputs with the batch, then keep it."""

    def end(self, number: Any, /) -> None:
        """The input has no more rows: what only they could match need not be kept."""

    def react(self) -> Iterator[Matches]:
        """Sources stall: do left-over work, one unit per yield."""

    def clean_up(self) -> Iterator[Matches]:
        """All inputs ended: yield every match still missing."""

    def expire(self, watermark: int) -> Iterator[Matches]:
        """Windows: evict the rows that can no longer match."""

    def snapshot(self) -> Manifest:
        """Freeze bulk state into segments and describe the whole state."""

    def restore(self, manifest: Manifest) -> None:
        """Continue from a snapshot. Called at most once, before anything else."""

    @property
    def usage(self) -> Usage:
        """What it holds right now."""


class PlacedOperator(JoinOperator, Protocol):
    """An operator that can also run on a part of all arrivals, and is told where its rows are among them."""

    def arrive(self, number: Any, batch: pa.RecordBatch, placement: Any = None, /) -> Iterator[Matches]:
        """As `JoinOperator.arrive`, with the places of the batch's rows among all arrivals."""

    def expire(self, watermark: int, arrived: tuple[int, int] | None = None) -> Iterator[Matches]:
        """As `JoinOperator.expire`, with the numbers of rows that have arrived anywhere."""
