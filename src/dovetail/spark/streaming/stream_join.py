"""The description of a streaming join that is sent to the workers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from typing import Literal as OneOf
from urllib.parse import quote

import pyarrow as pa

from dovetail.core.join_types import JoinType
from dovetail.core.metrics import Counters
from dovetail.core.rows import Side
from dovetail.operators.protocol import Workspace
from dovetail.planning.plan import JoinPlan
from dovetail.routing.routers import HashRouter, Hypercube, Router
from dovetail.spark.exchange.labels import spread_labels
from dovetail.spark.exchange.packing import PACK_BYTES, Rewrite, multi_packer, packer
from dovetail.spark.session.options import LATENCY_S
from dovetail.storage.blocks import BlockStore
from dovetail.storage.budget import Budget
from dovetail.storage.open_store import Place, open_store
from dovetail.storage.store import Store

FORMAT = 4  # of the segments, including hashes; increase it when a release changes the format
BATCH_ROWS = 1 << 16
SMALL_BYTES = 1 << 23
ROW_SHARE = 3 / 4
"""The share of a cell's memory for rows. The rest is for copies of rows that arrive, are evicted or are kept."""
PACKS = 32  # minimum number of packs that fit in a budget
SMALLEST_PACK = 1 << 20


Clock = OneOf["ProcessingTime", "EventTime", "None"]
"""Spark's names for the time modes of a stateful operator."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Where and how a streaming join runs, independent of its condition."""

    partitions: int  # of Spark's state store
    state_dir: Place
    metrics: str  # the name of our figures in the query's progress, and of the join in the state directory
    has_ends: bool = False  # the last column of each input marks end-of-stream rows
    ends_when_idle: bool = False  # the first micro-batch without input ends all inputs
    latency_s: float = LATENCY_S  # approximate maximum time until a row is joined with those in memory
    cores: int = 1 << 20  # number of parallel tasks; by default no limit
    limit: int | None = None  # results of all cells together, after which they stop

    def place(self, query: str) -> Store:
        """The place of a query's data for the join. The query's id does not change when it is restarted."""
        return open_store(self.state_dir) / query / quote(self.metrics, safe="")


@dataclass(frozen=True)  # no slots: derived values are cached, since cells ask for them all the time
class CellJoin(ABC):
    """A streaming join whose rows are sent to cells, windowed or not, with everything that workers need."""

    plan: JoinPlan
    drop: tuple[int, ...]  # key columns at the end of each input that are not part of the result
    schema: pa.Schema  # of the result
    setting: Setting

    @property
    @abstractmethod
    def labels(self) -> list[int]:
        """One per cell, such that Spark distributes them evenly."""

    @property
    @abstractmethod
    def layout(self) -> dict[str, Any]:
        """Everything that must stay the same for the state to be valid. Ready for JSON."""

    @property
    @abstractmethod
    def has_timers(self) -> bool:
        """Whether there may be work while nothing arrives."""

    @abstractmethod
    def packer(self, number: int) -> Rewrite:
        """A function for mapInArrow that sends packed rows of an input to the cells where they can have partners."""

    @cached_property
    def clock(self) -> Clock:
        """The time mode of its timers."""
        return "ProcessingTime" if self.has_timers else "None"

    @cached_property
    def keeps_to_memory(self) -> bool:
        """Whether rows beyond the budget are spilled."""
        return self.plan.memory_bytes is not None and self.plan.spec.spills

    @property
    def returns_memory(self) -> bool:
        """Whether memory freed by a cell is returned to the system before the next one runs."""
        return False

    @property
    def keeps_reports(self) -> bool:
        """Whether cells report to each other how many results they have emitted."""
        return self.setting.limit is not None

    @property
    def cells_share_rows(self) -> bool:
        return True

    @cached_property
    def pack_bytes(self) -> int:
        """Maximum bytes of rows packed together. Several copies exist for a moment, so small budgets need small
        packs.
        """
        memory_bytes = self.plan.memory_bytes
        if memory_bytes is None or not self.keeps_to_memory:
            return PACK_BYTES
        return min(PACK_BYTES, max(SMALLEST_PACK, memory_bytes // PACKS))

    def check(self) -> None:
        """Raise errors about parameters of the operator before the query starts."""
        self.plan.make_operator(self.workspace(BlockStore(), Counters()))

    def workspace(self, blocks: BlockStore, counters: Counters) -> Workspace:
        """The workspace of the operator of a cell."""
        budget = Budget(self._row_bytes, "bytes", counters)
        return Workspace.of(self.plan, budget, blocks, BATCH_ROWS, counters, parameters=self._parameters)

    @property
    def _row_bytes(self) -> int | None:
        """The memory for rows."""
        return self.plan.memory_bytes

    @property
    def _parameters(self) -> dict[str, Any]:
        """The operator's parameters that are not in the plan."""
        return {}


@dataclass(frozen=True)
class StreamJoin(CellJoin):
    """A join of two or more streams, without a window."""

    router: Router | Hypercube

    @property
    def inputs(self) -> int:
        """The number of inputs. They are identified by number."""
        return len(self.plan.graph.aliases)

    @property
    def _row_bytes(self) -> int | None:
        """The memory for rows. A small budget is used entirely: operators need some blocks, and the worker is far
        larger.
        """
        memory_bytes = self.plan.memory_bytes
        return None if memory_bytes is None else max(int(ROW_SHARE * memory_bytes), min(memory_bytes, SMALL_BYTES))

    @property
    def _join_type(self) -> dict[str, str]:
        return {} if self.plan.how is JoinType.INNER else {"how": str(self.plan.how)}

    @property
    def returns_memory(self) -> bool:
        return self.keeps_to_memory

    @property
    def keeps_reports(self) -> bool:
        setting = self.setting
        return setting.has_ends or setting.ends_when_idle or setting.limit is not None

    @property
    def cells_share_rows(self) -> bool:
        return not isinstance(self.router, HashRouter)

    @cached_property
    def labels(self) -> list[int]:
        return spread_labels(self.router.cells, self.setting.partitions)

    @cached_property
    def cells_per_core(self) -> int:
        """The number of cells that run one after the other."""
        return -(-self.router.cells // min(self.setting.partitions, self.setting.cores))

    @property
    def has_timers(self) -> bool:
        return not self.plan.spec.emits_at_arrival or self.setting.has_ends or self.setting.ends_when_idle

    def packer(self, number: int) -> Rewrite:
        if isinstance(self.router, Hypercube):
            return multi_packer(self.router, number, self.labels, self.pack_bytes)
        schema = self.plan.condition.schema(Side(number))
        keep_all = Side(number) in self.plan.how.preserved
        return packer(Side(number), self.router, schema, self.labels, keep_all=keep_all, most_bytes=self.pack_bytes)

    @cached_property
    def layout(self) -> dict[str, Any]:
        """The layout of the state, ready for JSON. The number of partitions determines the labels of cells."""
        fixed = {"format": FORMAT, "algorithm": self.plan.operator.name, "cells": self.router.cells}
        if self.plan.parameters:
            fixed["parameters"] = dict(self.plan.parameters)
        if self.setting.limit is not None:
            fixed["limit"] = self.setting.limit  # cells that reached it keep no state for a larger one
        return {**fixed, **self._join_type, "partitions": self.setting.partitions, **self.state_signature}

    @property
    def state_signature(self) -> dict[str, Any]:
        """What must stay the same for the state to be valid, besides the setting."""
        columns = {
            alias: [[field.name, str(field.type)] for field in schema]
            for alias, schema in self.plan.graph.schemas.items()
        }
        if self.inputs > len(Side):
            return {"condition": self.plan.graph.text, "columns": [[alias, found] for alias, found in columns.items()]}
        keys = [str(equality.left.type) for equality in self.plan.condition.equalities]  # with the session's time zone
        return {"condition": self.plan.graph.text, "keys": keys, "columns": list(columns.values())}
