"""Dictionary-encoded columns within a budget: rows carry their values, and results are encoded again.

A few rows of a dictionary-encoded column refer to all of its dictionary. Kept and written piece by piece, each piece
would count for as much as the whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pyarrow as pa

from dovetail.condition import Condition
from dovetail.condition.graph import Graph
from dovetail.core.rows import Arrival, Event
from dovetail.execution.steps import Step
from dovetail.planning.plan import JoinPlan


def has_dictionaries(plan: JoinPlan) -> bool:
    return any(_is_decoded(field.type) for schema in plan.condition.schemas for field in schema)


def _is_decoded(type_: pa.DataType) -> bool:
    """Whether Arrow can decode the type and encode it again: not views, lists and structs, which stay as they are."""
    t = pa.types
    if not t.is_dictionary(type_):
        return False
    value = type_.value_type
    return not (t.is_nested(value) or t.is_string_view(value) or t.is_binary_view(value))


def decode_plan(plan: JoinPlan) -> JoinPlan:
    """The same join of the values. Keys are cast to them anyway."""
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
        yield Arrival(event.input, _decode(event.batch)) if isinstance(event, Arrival) else event


def _decode(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [column.dictionary_decode() if _is_decoded(column.type) else column for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=_decode_schema(batch.schema))


def encode_steps(steps: Iterable[Step], schema: pa.Schema) -> Iterator[Step]:
    """The steps with rows of this schema."""
    for step in steps:
        done = step.results - step.batch.num_rows
        for batch in _encode(step.batch, schema):
            done += batch.num_rows
            yield replace(step, batch=batch, results=done)


def _encode(batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """One batch; more, if it has more values than the type of a dictionary's indices can number."""
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
    yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _encode_column(column: pa.Array, type_: pa.DictionaryType) -> pa.DictionaryArray:
    encoded = column.dictionary_encode()
    indices = encoded.indices.cast(type_.index_type)
    return pa.DictionaryArray.from_arrays(indices, encoded.dictionary, ordered=type_.ordered)
