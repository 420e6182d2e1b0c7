"""Keys that are dictionary-encoded on both sides are compared by their codes: each value is looked at once."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from dovetail.condition import Call, Column, Expression, types
from dovetail.condition.strategy import KeyPair
from dovetail.core.rows import Side

Batches = tuple[pa.RecordBatch, pa.RecordBatch]


def by_code(batches: Batches, pairs: Sequence[KeyPair]) -> tuple[Batches, list[KeyPair]]:
    """The same keys; of pairs of dictionary-encoded texts, columns of whole numbers that are added to the batches."""
    found: list[KeyPair] = []
    for pair in pairs:
        encoded = [_encoded(key, batch) for key, batch in zip(pair, batches, strict=True)]
        if encoded[0] is None or encoded[1] is None:
            found.append(pair)
            continue
        name = _new_name(batches)
        codes = _codes(encoded[0], encoded[1])
        batches = batches[0].append_column(name, codes[0]), batches[1].append_column(name, codes[1])
        found.append((Column(Side.LEFT, name, pa.int64()), Column(Side.RIGHT, name, pa.int64())))
    return batches, found


def _new_name(batches: Batches) -> str:
    """A name that no column has."""
    return "__code" + "_" * max(len(name) for batch in batches for name in batch.schema.names)


def _encoded(key: Expression, batch: pa.RecordBatch) -> pa.DictionaryArray | None:
    """The column behind a key that is a dictionary-encoded text, and nothing else."""
    match key:
        case Call("cast", (Column(_, name),), target) if types.is_text(target):
            column = batch.column(name)
            is_text = isinstance(column, pa.DictionaryArray) and types.is_text(column.type.value_type)
            return column if is_text else None
    return None


def _codes(left: pa.DictionaryArray, right: pa.DictionaryArray) -> tuple[pa.Array, pa.Array]:
    """One number per row, the same on both sides for the same text. A dictionary may hold a text twice, or null."""
    values = [column.dictionary.cast(pa.large_string()) for column in (left, right)]
    known = pc.unique(pa.chunked_array(values)).drop_null()
    numbers = [pc.index_in(of_side, known) for of_side in values]
    return numbers[0].cast(pa.int64()).take(left.indices), numbers[1].cast(pa.int64()).take(right.indices)
