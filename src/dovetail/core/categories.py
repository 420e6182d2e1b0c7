"""The order of an ordered categorical (pandas' Categorical, Polars' Enum, Arrow's ordered dictionary).

Arrow's type says that there is an order; only the data says which. Conditions are bound to schemas, so the field of
such a column carries its categories while it is joined.
"""

from __future__ import annotations

import pyarrow as pa

ORDER = b"dovetail:order"


def is_ordered(type_: pa.DataType) -> bool:
    return bool(pa.types.is_dictionary(type_) and type_.ordered)


def with_order(field: pa.Field, column: pa.ChunkedArray) -> pa.Field:
    """The field with the categories of its column in order, unless its chunks disagree about them."""
    found = max((chunk.dictionary for chunk in column.chunks), key=len, default=None)
    if found is None or not all(
        chunk.dictionary.equals(found.slice(0, len(chunk.dictionary))) for chunk in column.chunks
    ):
        return field
    sink = pa.BufferOutputStream()
    batch = pa.record_batch([found], ["categories"])
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return field.with_metadata({**(field.metadata or {}), ORDER: sink.getvalue().to_pybytes()})


def order_of(field: pa.Field) -> pa.Array | None:
    """The categories in their order, if they are known."""
    stored = (field.metadata or {}).get(ORDER)
    return None if stored is None else pa.ipc.open_stream(stored).read_next_batch().column(0)


def without_order(field: pa.Field) -> pa.Field:
    """The field without its categories, for results."""
    if ORDER not in (field.metadata or {}):
        return field
    others = {key: value for key, value in field.metadata.items() if key != ORDER}
    return field.with_metadata(others) if others else field.remove_metadata()
