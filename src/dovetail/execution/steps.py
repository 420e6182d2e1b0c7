"""The steps of a progressive join: new results or aggregates, and an estimate of the total.

A limit ends them. Results are generated lazily, so nothing is computed beyond the limit.

Within a budget, dictionary-encoded columns are decoded, and encoded again in the results: a few rows of such a column
refer to its whole dictionary, so each small piece would count as much as the whole.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import pyarrow as pa

from dovetail.columns.batches import empty_batch, put_together
from dovetail.condition import Condition
from dovetail.condition.graph import Graph
from dovetail.core.markup import table_of, tag, together
from dovetail.core.metrics import Estimate
from dovetail.core.rows import Arrival, End, Event, Matches, Phase, Side
from dovetail.estimation.estimate import CONFIDENCE
from dovetail.estimation.measures import Measures
from dovetail.execution.output import MOST_BYTES, fixed_rows, result_batches
from dovetail.execution.stop_rule import Until
from dovetail.operators.protocol import Workspace
from dovetail.planning.plan import JoinPlan
from dovetail.sources.protocol import Source
from dovetail.sources.reader import TimeIsOverError

Rows: TypeAlias = pa.Table | Source


SHOWN_ROWS = 10  # per step in a notebook


@dataclass(frozen=True, slots=True, repr=False)
class Step:
    """New results of a progressive join, and its progress.

    Example:
        >>> import dovetail, pyarrow as pa
        >>> table = pa.table({"k": [1, 2, 3]})
        >>> for step in dovetail.progressive(table, table, "l.k < r.k"):
        ...     print(step)
        <Step cleanup: 3 new results, 3 so far, 3 in all>
    """

    batch: pa.RecordBatch
    phase: Phase
    results: int  # so far, including this batch
    estimate: Estimate | None  # None while it would not be reliable
    aggregates: Mapping[str, Estimate | None] | None = None  # if requested instead of results
    objection: str | None = None  # why there is no estimate, if the order of rows prevents it
    done: float | None = None  # the fraction of the work done, if known
    operator: str | None = None  # the operator that found them, if the plan does not fix it,
    reason: str | None = None  # and the reason for this choice

    def __repr__(self) -> str:
        return f"<Step {self._summary}>"

    def _repr_html_(self) -> str:
        rows = self.batch.slice(0, SHOWN_ROWS).to_pylist()
        more = self.batch.num_rows - len(rows)
        note = tag("p", f"and {more:,} more", style="margin:2px 0 0;opacity:.65") if more > 0 else None
        return str(
            together(tag("p", self._summary, style="margin:0 0 4px"), table_of(self.batch.schema.names, rows), note)
        )

    @property
    def _summary(self) -> str:
        if self.aggregates is not None:
            found = ", ".join(f"{name} {_bounded(value)}" for name, value in self.aggregates.items())
            return f"{self.phase}: {found} after {self.results:,} results"
        new = "1 new result" if self.batch.num_rows == 1 else f"{self.batch.num_rows:,} new results"
        words = f"{self.phase}: {new}, {self.results:,} so far"
        return words if self.estimate is None else f"{words}, {_bounded(self.estimate)} in all"


def _bounded(estimate: Estimate | None) -> str:
    """An estimate as text; without bounds if it is exact."""
    if estimate is None:
        return "not known yet"
    if estimate.low == estimate.high:
        return _rounded(estimate.total)
    return f"about {_rounded(estimate.total)} ({_rounded(estimate.low)} to {_rounded(estimate.high)})"


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 1000 else f"{value:.4g}"


@dataclass(slots=True)
class Sizes:
    """The number of rows of each input, if known: from the start, or once the input has ended."""

    rows: list[int | None] = field(default_factory=lambda: [None, None])
    all_came: bool = False

    @classmethod
    def from_inputs(cls, inputs: Iterable[Rows]) -> Sizes:
        """Sizes of tables, and of sources with an attribute `rows`."""
        return cls([_row_count(rows) for rows in inputs])

    @property
    def of_two(self) -> tuple[int, int] | None:
        """The sizes of both inputs, if there are two and both are known; estimates need them."""
        known = [count for count in self.rows if count is not None]
        return (known[0], known[1]) if len(known) == len(self.rows) == len(Side) else None

    def watch(self, events: Iterable[Event]) -> Iterator[Event]:
        """Pass on the events and count their rows: in the end the actual number counts, not the announced one."""
        came = [0] * len(self.rows)
        for event in events:
            match event:
                case Arrival(number, batch):
                    came[number] += batch.num_rows
                    if came[number] > (self.rows[number] or 0):
                        self.rows[number] = None
                    self.all_came = came == self.rows
                case End(number):
                    self.rows[number] = came[number]
            yield event


def _row_count(rows: Rows) -> int | None:
    count = rows.num_rows if isinstance(rows, pa.Table) else getattr(rows, "rows", None)
    return count if isinstance(count, int) and count >= 0 else None


class StepBuilder:
    """Builds steps from results, each with an estimate of the total."""

    def __init__(
        self,
        workspace: Workspace,
        sizes: Sizes,
        aggregates: Mapping[str, str],
        most_bytes: int = MOST_BYTES,
        *,
        pairs_only: bool,
    ) -> None:
        """`most_bytes`: about the size of a batch of results."""
        self._pairs_only = pairs_only
        self._most_bytes = most_bytes
        self._estimator = workspace.estimator
        self._sizes = sizes
        self.measures = Measures(aggregates, tuple(workspace.graph.schemas.values()))
        self._sums: dict[str, float] = {}
        self._most_rows: int | None = None  # per batch; 0: depends on the values

    @property
    def all_came(self) -> bool:
        """Whether all rows have arrived, as far as known."""
        return self._sizes.all_came

    def batches(self, results: Matches, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows of the results. If aggregates are requested, there are no rows, and the results are summed."""
        if not self.measures:
            if self._most_rows is None:
                self._most_rows = fixed_rows(schema, self._most_bytes) or 0
            yield from result_batches(results, schema, self._most_rows or None, most_bytes=self._most_bytes)
        elif results.size and results.is_complete:
            self.add(self.measures.sum_pairs(results))
            yield empty_batch(schema)

    def add(self, sums: Mapping[str, float]) -> None:
        """Add sums over further results."""
        for name, value in sums.items():
            self._sums[name] = self._sums.get(name, 0.0) + value

    def step(self, batch: pa.RecordBatch, phase: Phase, results: int) -> Step:
        estimate, sizes = self.estimate_results(results), self._sizes.of_two
        objection = self._estimator.objection if estimate is None and sizes is not None else None
        aggregates: Mapping[str, Estimate | None] | None = None
        if self.measures and sizes is not None:
            aggregates = self.measures.estimate_aggregates(self._estimator, *sizes)
        elif self.measures:
            aggregates = dict.fromkeys(self.measures.names)
        return Step(batch, phase, results, estimate, aggregates, objection)

    def last(self, step: Step | None, schema: pa.Schema, results: int) -> Step:
        """The last step, with exact figures. Without results, it has only the aggregates."""
        if step is None:
            step = Step(empty_batch(schema), Phase.CLEANUP, results, None)
        estimate = Estimate(results, results, results, CONFIDENCE) if self._pairs_only else None
        if not self.measures:
            return replace(step, estimate=estimate)
        return replace(step, estimate=estimate, aggregates=self.measures.exact(self._sums))

    def estimate_results(self, results: int) -> Estimate | None:
        """The estimate of the total, raised to the results so far; None if it contradicts them."""
        sizes = self._sizes.of_two
        estimate = None if sizes is None else self._estimator.estimate(*sizes)
        if estimate is None or estimate.low == estimate.high:
            return estimate
        total, low, high, confidence = estimate
        return Estimate(max(total, results), max(low, results), high, confidence) if results < high else None


def limit_rows(batches: Iterable[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    """The first `limit` rows; after that the batches are closed."""
    with _closing(batches):
        if limit is None:
            yield from batches
            return
        missing = limit
        for batch in batches if missing else ():
            yield batch.slice(0, missing)
            missing -= min(missing, batch.num_rows)
            if not missing:
                return


def limit_steps(steps: Iterable[Step], limit: int | None, until: Until | None = None) -> Generator[Step, None, None]:
    """Steps with the first `limit` rows, or until `until` is reached; then the join is closed."""
    until = (until or Until()).start_clock()
    with _closing(steps), suppress(TimeIsOverError):
        results = 0
        for step in steps if limit != 0 else ():
            if limit is None or results + step.batch.num_rows < limit:
                results += step.batch.num_rows
                yield step
                if until.is_reached(step):
                    return
            else:
                yield replace(step, batch=step.batch.slice(0, limit - results), results=limit)
                return


@contextmanager
def _closing(rows: object) -> Iterator[None]:
    """Close a generator on exit, whether or not it has ended."""
    try:
        yield
    finally:
        close = getattr(rows, "close", None)
        if close is not None:
            close()


def has_dictionaries(plan: JoinPlan) -> bool:
    return any(_is_decoded(field.type) for schema in plan.condition.schemas for field in schema)


def _is_decoded(type_: pa.DataType) -> bool:
    """Whether Arrow can decode the type and encode it again. Views, lists and structs stay as they are; so do ordered
    dictionaries, since the dictionary defines the order."""
    t = pa.types
    if not t.is_dictionary(type_) or type_.ordered:
        return False
    value = type_.value_type
    return not (t.is_nested(value) or t.is_string_view(value) or t.is_binary_view(value))


def decode_plan(plan: JoinPlan) -> JoinPlan:
    """The same join on decoded values. Keys are cast to these anyway."""
    return replace(plan, graph=Graph.of(_decode_condition(plan.condition)))


def _decode_condition(condition: Condition) -> Condition:
    schemas = (_decode_schema(condition.schemas[0]), _decode_schema(condition.schemas[1]))
    alternatives = tuple(map(_decode_condition, condition.alternatives))
    return replace(condition, schemas=schemas, alternatives=alternatives)


def _decode_schema(schema: pa.Schema) -> pa.Schema:
    fields = [field.with_type(field.type.value_type) if _is_decoded(field.type) else field for field in schema]
    return pa.schema(fields, schema.metadata)


def decode_events(events: Iterable[Event]) -> Iterator[Event]:
    for event in events:
        yield Arrival(event.input, decode_batch(event.batch)) if isinstance(event, Arrival) else event


def decode_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [column.dictionary_decode() if _is_decoded(column.type) else column for column in batch.columns]
    return put_together(columns, _decode_schema(batch.schema), batch.num_rows)


def encode_steps(steps: Iterable[Step], schema: pa.Schema) -> Iterator[Step]:
    """The steps with rows encoded to this schema."""
    for step in steps:
        done = step.results - step.batch.num_rows
        for batch in _encode(step.batch, schema):
            done += batch.num_rows
            yield replace(step, batch=batch, results=done)


def _encode(batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """One batch, or several if it has more distinct values than the dictionary's index type can number."""
    try:
        columns = [
            _encode_column(column, field.type) if _is_decoded(field.type) else column
            for column, field in zip(batch.columns, schema, strict=True)
        ]
    except pa.ArrowInvalid:
        if batch.num_rows <= 1:
            raise
        half = batch.num_rows // 2
        yield from _encode(batch.slice(0, half), schema)
        yield from _encode(batch.slice(half), schema)
        return
    yield put_together(columns, schema, batch.num_rows)


def _encode_column(column: pa.Array, type_: pa.DictionaryType) -> pa.DictionaryArray:
    encoded = column.dictionary_encode()
    indices = encoded.indices.cast(type_.index_type)
    return pa.DictionaryArray.from_arrays(indices, encoded.dictionary, ordered=type_.ordered)
