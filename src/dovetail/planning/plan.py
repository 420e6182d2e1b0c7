"""A plan: what a join will do, and why. Plans are plain values; creating one reads no data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dovetail.condition import Condition
from dovetail.condition.best import Best
from dovetail.condition.graph import Graph
from dovetail.core.join_types import JoinType
from dovetail.core.rows import Side
from dovetail.operators.protocol import JoinOperator, OperatorSpec, Workspace
from dovetail.operators.registry import operator_class, operator_spec
from dovetail.planning.picture import Box, draw
from dovetail.visible import visible


@dataclass(frozen=True, slots=True)
class Choice:
    """One decision with its reason."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class Diagonal:
    """A window of several tables that slides over the side with the unique keys."""

    one: Side
    tables: int
    table_rows: int
    rows: int  # of that side
    clusteredness: str = ""  # as measured
    mishits: float | None = None  # expected share of the other side

    @property
    def window_share(self) -> float:
        return min(1.0, self.tables * self.table_rows / max(1, self.rows))

    @property
    def lines(self) -> list[tuple[str, str]]:
        """The lines that `explain` prints."""
        size = f"{self.tables} tables of {self.table_rows:,} row{'s' * (self.table_rows != 1)}"
        lines = [("window", f"{size}, {self.window_share:.1%} of {self.one.alias}")]
        if self.clusteredness:
            lines.insert(0, ("clustered", self.clusteredness))
        if self.mishits is not None:
            share = f"about {self.mishits:.1%}" if self.mishits >= 0.0005 else "hardly any"
            lines.append(("mishits", f"{share} of {self.one.other.alias}, joined at the end"))
        return lines


@dataclass(frozen=True, slots=True, repr=False)
class JoinPlan:
    """What a join will do: with which operator, router, predicates and memory."""

    graph: Graph
    how: JoinType
    operator: Choice
    driven: tuple[str, ...] = ()  # the predicates that find candidates
    checked: tuple[str, ...] = ()  # the predicates checked on candidates
    at_rest: bool = False  # whether the operator is a kernel over complete sides
    read: str = ""  # how Spark's tasks read the inputs, if they do so themselves
    router: Choice | None = None  # None in process: there is a single cell
    cells: int = 1
    tasks: int = 1  # that share the cells
    rows: tuple[int, int] | None = None  # of both sides, if counted
    pairs: float | None = None  # estimated from a sample
    memory_bytes: int | None = None
    limit: int | None = None  # rows after which the join stops
    cost: str = ""  # on Spark: the cost of each way to run the join, if there are several
    columns: str = ""  # the columns in the result, if not all
    advice: tuple[str, ...] = field(default=())
    diagonal: Diagonal | None = None  # algorithm diag
    table: str = ""  # how the table at rest is kept, in a join with a stream
    delays: tuple[str, ...] = ()  # time windows: how late rows may be
    state: tuple[str, ...] = ()  # streams with a condition on event time: how long rows are kept
    parameters: Mapping[str, Any] = field(default_factory=dict)  # of the operator, as given
    best: Best | None = None  # which partners of a left row are results; None: all

    @property
    def condition(self) -> Condition:
        """The condition of a join of two inputs."""
        return self.graph.condition

    @property
    def spec(self) -> OperatorSpec:
        """What the operator supports, if the plan has one."""
        return operator_spec(self.operator.name, len(self.graph.aliases))

    def make_operator(self, workspace: Workspace) -> JoinOperator:
        """The operator, ready to run; invalid parameters raise an error here."""
        return operator_class(self.operator.name, len(self.graph.aliases))(workspace)

    @property
    def decisions(self) -> list[tuple[str, str]]:
        """The decisions, each with its reason."""
        lines = [("join", str(self.how)), ("condition", self.graph.text)]
        if len(self.graph.aliases) > len(Side):
            lines[0] = ("join", f"{self.how}, {', '.join(self.graph.aliases)}")
        lines += [("filter", f"{text}, before the join") for text in self.graph.filter_texts]
        if self.best is not None:
            lines.append(("keeps", self.best.text))
        lines += [("driven by", by) for by in self.driven]
        lines += [("checked", f"{what}, on every candidate pair") for what in self.checked]
        lines.append(("kernel" if self.at_rest else "operator", f"{self.operator.name}: {self.operator.why}"))
        lines += [("parameter", f"{name} = {value!r}") for name, value in self.parameters.items()]
        if self.diagonal is not None:
            lines += self.diagonal.lines
        if self.table:
            lines.append(("table", self.table))
        lines += [("delay", delay) for delay in self.delays]
        lines += [("state", kept) for kept in self.state]
        if self.read:
            lines.append(("read", self.read))
        if self.rows is not None:
            lines.append(("rows", f"{self.rows[0]:,} and {self.rows[1]:,}"))
        if self.pairs is not None:
            lines.append(("pairs", f"{about(self.pairs)}, by a sample"))
        if self.router is not None:
            size = f"{self.cells:,} cells" + (f" in {self.tasks:,} tasks" if self.cells != self.tasks else "")
            lines.append(("router", f"{self.router.name}, {size}: {self.router.why}"))
        if self.cost:
            lines.append(("cost", self.cost))
        lines.append(("memory", "no limit" if self.memory_bytes is None else f"{self.memory_bytes:,} bytes per cell"))
        if self.columns:
            lines.append(("columns", self.columns))
        if self.limit is not None:
            lines.append(("limit", f"{self.limit:,} rows, after which the join stops"))
        return lines + [("advice", advice) for advice in self.advice]

    def explain(self) -> str:
        """The plan as text, one line per decision."""
        return "\n".join(f"{name:<10} {visible(text, one_line=True)}" for name, text in self.decisions)

    def __str__(self) -> str:
        return self.explain()

    def __repr__(self) -> str:
        on = visible(self.graph.text, one_line=True)
        return f"<JoinPlan {self.how} join by {self.operator.name} on {on}; print it for the reasons>"

    def _repr_html_(self) -> str:
        return draw(self._inputs(), self._stages(), self.decisions, repr(self))

    def _inputs(self) -> list[Box]:
        schemas = self.graph.schemas
        sizes = {alias: f"{len(schema):,} column{'s' * (len(schema) != 1)}" for alias, schema in schemas.items()}
        if self.rows is not None:
            sizes |= {alias: f"{rows:,} rows" for alias, rows in zip(schemas, self.rows, strict=False)}
        return [Box("input", alias, sizes[alias], ", ".join(schema.names)) for alias, schema in schemas.items()]

    def _stages(self) -> list[Box]:
        operator, router = self.operator, self.router
        boxes = [Box("operator", operator.name, self.graph.text, f"{operator.name}: {operator.why}")]
        if router is not None:
            boxes.insert(0, Box("router", router.name, f"{self.cells:,} cells", f"{router.name}: {router.why}"))
        expected = f"{about(self.pairs)} pairs" if self.pairs is not None else "results"
        if self.limit is not None:
            expected = f"{self.limit:,} rows"
        return [*boxes, Box("result", f"{self.how} join", expected)]


def about(number: float) -> str:
    """The number with two digits: a sample is no more precise."""
    if number < 1:
        return "hardly any"
    digits = max(0, len(str(int(number))) - 2)
    return f"about {round(number / 10**digits) * 10**digits:,}"
