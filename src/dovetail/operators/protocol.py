"""The contract between a join algorithm and the driver that runs it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import pyarrow as pa

from dovetail.arguments import in_words, nearest
from dovetail.condition.graph import Graph
from dovetail.condition.predicates import Condition, Predicate
from dovetail.condition.select import Aggregate
from dovetail.core.join_types import JoinType
from dovetail.core.metrics import Counters
from dovetail.core.rows import Matches
from dovetail.errors import ArgumentError, InputError, PlanError
from dovetail.estimation.estimate import Estimator
from dovetail.matching.window_positions import Placement, WindowPositions
from dovetail.storage.blocks import BlockStore
from dovetail.storage.budget import Budget, Shares


@dataclass(frozen=True, slots=True)
class Usage:
    """The rows and bytes that an operator holds."""

    resident_rows: int = 0
    resident_bytes: int = 0
    spilled_rows: int = 0
    spilled_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything needed to continue elsewhere. Small and JSON-ready; bulk state is in immutable segment files."""

    version: int
    state: dict[str, Any]
    segments: tuple[str, ...]  # names, relative to the block store's directory


class Approach(NamedTuple):
    """How an operator runs a condition, for use in plans."""

    text: str
    driving: tuple[Predicate, ...]  # find candidates; all others are checked. None: every pair is a candidate


Parameters = Mapping[str, Any]
"""The parameters of an operator: the name and type of each, as for `isinstance`."""

INNER = (JoinType.INNER,)
EVERY = tuple(how for how in JoinType if how is not JoinType.RIGHT_ANTI)  # that users can request
TWO = range(2, 3)
TWO_AND_MORE = range(2, 1 << 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSpec:
    """What an operator supports: everything that planners and runtimes need to know before it runs."""

    name: str
    inputs: range = TWO
    """The numbers of inputs it can join."""
    join_types: tuple[JoinType, ...] = INNER
    parameters: Parameters = field(default_factory=dict)
    spills: bool = True
    """Whether it spills to keep within its budget; an operator that does not raises BudgetError instead."""
    emits_at_arrival: bool = False
    """Whether every result is emitted when its last row arrives, so that there is never pending work."""
    takes_turns: bool = False
    """Whether tables are joined faster when their batches are interleaved than one table after the other."""
    reports_blocks: bool = False
    """Whether it reports blocks to the workspace's estimator, and takes the parameter `measures` for it."""
    adapts: bool = False
    """Whether it changes from one operator to another while it runs."""
    resizable: bool = False
    """Whether its budget can change while it runs."""
    windows: bool = False
    """Whether it supports windows: it takes the parameter `window`, and is a `WindowedOperator`."""


class Running(NamedTuple):
    """The operator that is joining now, and why."""

    operator: str
    reason: str


class Planned(Protocol):
    """The part of a plan that an operator sees."""

    @property
    def graph(self) -> Graph:
        """The inputs and the condition."""

    @property
    def how(self) -> JoinType:
        """The join type."""

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The operator's parameters, as given."""


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
    how: JoinType = JoinType.INNER

    @classmethod
    def of(
        cls,
        plan: Planned,
        budget: Budget,
        blocks: BlockStore,
        block_rows: int,
        counters: Counters,
        seed: int = 0,
        parameters: Mapping[str, Any] | None = None,
    ) -> Self:
        """The workspace for the operator of a plan. `parameters`: those that only the runtime knows."""
        known = {**plan.parameters, **(parameters or {})}
        return cls(plan.graph, budget, blocks, block_rows, counters, seed, known, how=plan.how)

    @property
    def condition(self) -> Condition:
        """The condition of a join of two inputs."""
        return self.graph.condition

    @property
    def shares(self) -> Shares:
        """How an operator that spills divides the budget; a budget that is too small is refused here."""
        return Shares(self.budget, self.block_rows, len(self.graph.aliases))


def check_parameters(spec: OperatorSpec, given: Mapping[str, Any]) -> None:
    """Refuse unknown parameters, and values of the wrong type."""
    known = spec.parameters
    for name in given:
        if name not in known:
            meant = nearest(name, known)
            hint = f"Did you mean {meant!r}? " if meant else ""
            there = f"There are {', '.join(known)}." if known else "There are none."
            raise ArgumentError(f"{name}: not a parameter of algorithm={spec.name!r}. {hint}{there}")
    for name, value in given.items():
        wanted = known[name]
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        good = is_whole if wanted is int else isinstance(value, wanted) or (is_whole and isinstance(1.0, wanted))
        if not good:
            raise InputError(f"{name} must be {in_words(wanted)}; got {value!r}.")


class Resumable(Protocol):
    """State that can be continued elsewhere from a snapshot."""

    def snapshot(self) -> Manifest:
        """Freeze bulk state into segments and describe the whole state."""

    def restore(self, manifest: Manifest) -> None:
        """Continue from a snapshot. Called at most once, before anything else."""

    @property
    def usage(self) -> Usage:
        """What it holds at the moment."""


class JoinOperator(Resumable, Protocol):
    """The join state of one cell. Every matching combination of rows is yielded exactly once over the whole run.

    Inputs are identified by position; an operator of two gets them as `Side`. Work is recorded as done before its
    results are yielded; a yield after each unit of work returns control to the driver. A generator returned by `arrive`
    or `clean_up` is always run to its end; one from `react` may be dropped at any yield. Yielded matches may be empty;
    matches in which an input has no row are rows that the join type emits alone. Methods with a body here are optional.
    """

    spec: ClassVar[OperatorSpec]
    estimator: Estimator | None = None
    """The operator's own estimator, if it must not be mixed with the workspace's."""

    def __new__(cls, workspace: Workspace) -> Self:
        """Refuse unknown parameters, however the operator is created."""
        check_parameters(cls.spec, workspace.parameters)
        return super().__new__(cls)

    def __init__(self, workspace: Workspace) -> None: ...

    @staticmethod
    def refuses(graph: Graph) -> str | None:
        """Why this operator cannot run the condition, or None."""

    @staticmethod
    def approach(graph: Graph) -> Approach:
        """How it runs a condition that it supports."""

    def arrive(self, number: Any, batch: pa.RecordBatch, /) -> Iterator[Matches]:
        """Probe the residents of the other inputs with the batch, then keep it."""

    def end(self, number: Any, /) -> None:
        """End of stream of an input: rows that only it could match need not be kept."""
        return

    def react(self) -> Iterator[Matches]:
        """Called while sources stall: do pending work, one unit per yield."""
        return iter(())

    def clean_up(self) -> Iterator[Matches]:
        """All inputs have ended: yield every missing match."""

    def expire(self, watermark: int) -> Iterator[Matches]:
        """For windows: evict the rows that can no longer match."""
        return iter(())

    def resize(self, limit: int | None, /) -> None:
        """Change the budget; None is no limit."""
        raise PlanError(f"the memory of {self.spec.name} is fixed.")

    @property
    def running(self) -> Running:
        """The operator that is joining now; another one if it adapts and has switched."""
        return Running(self.spec.name, "")

    @property
    def joins_at_arrival(self) -> bool:
        """Whether each row is joined with those in memory on arrival. After an operator switch, rows may wait."""
        return True


class WindowCosts(Protocol):
    """The time that an operator has spent on its window."""

    probe_seconds: float
    merge_seconds: float


class WindowedOperator(JoinOperator, Protocol):
    """An operator that supports windows, over all arrivals or over some; then it is given the positions of its rows."""

    def arrive(self, number: Any, batch: pa.RecordBatch, placement: Placement | None = None, /) -> Iterator[Matches]:
        """Like `JoinOperator.arrive`, with the positions of the batch's rows among all arrivals."""

    def expire(self, watermark: int, arrived: tuple[int, int] | None = None) -> Iterator[Matches]:
        """Like `JoinOperator.expire`, with the number of rows of each side that have arrived anywhere."""

    def aggregate(
        self, aggregates: Sequence[Aggregate], schema: pa.Schema, batch: pa.RecordBatch, places: WindowPositions
    ) -> pa.RecordBatch:
        """Left rows with aggregates over their partners among earlier right rows; the left rows are not kept."""

    @property
    def window_rows(self) -> int:
        """The number of rows of both sides that may still match."""

    @property
    def horizon(self) -> int:
        """Future rows are not before this, or they are late."""

    @property
    def costs(self) -> WindowCosts:
        """The time spent on probing and merging."""
