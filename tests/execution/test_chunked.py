"""Joins in chunks against joins at once, for every join type, whichever side comes first."""

import random
from collections import Counter

import pyarrow as pa
import pytest

from dovetail.condition import Condition, parse
from dovetail.core.join_types import JoinType
from dovetail.core.rows import Side, one_batch
from dovetail.execution.at_rest import join_at_rest
from dovetail.execution.chunked import Chunked
from dovetail.execution.output import output_schema
from dovetail.execution.tasks import Counting, Joining
from dovetail.matching import build_matcher
from dovetail.storage.blocks import BlockStore
from dovetail.testing import random_table

ON = ("l.k = r.k", "l.x < r.x AND l.n > r.n", "abs(l.x - r.x) <= 1 AND l.s <> 'a'", "l.s < r.s OR l.k = 2")


def rows_of(batches: list[pa.RecordBatch], schema: pa.Schema) -> Counter[str]:
    return Counter(map(repr, pa.Table.from_batches(batches, schema).to_pylist()))


def matched(condition: Condition, sides: list[pa.RecordBatch]) -> int:
    return build_matcher(condition, sides[0], sides[1]).count()


@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "left_semi", "left_anti"])
@pytest.mark.parametrize("on", ON)
@pytest.mark.parametrize("first", list(Side))
def test_chunks_give_the_same_rows(how: str, on: str, first: Side) -> None:
    rng = random.Random(f"{how}{on}{first}")
    for _ in range(5):
        tables = (random_table(rng), random_table(rng))
        condition = parse(on, tables[0].schema, tables[1].schema)
        schema = output_schema(tables[0].schema, tables[1].schema, "_right", JoinType(how))
        store = BlockStore()
        chunk_bytes = rng.choice([1, 300, 10**6])
        join = Chunked(Joining(condition, JoinType(how), schema, rows=3, room=5), first, store, chunk_bytes)
        arrivals = [(side, b) for side in (first, first.other) for b in tables[side].to_batches(max_chunksize=3)]
        found = list(join.run(arrivals))
        counts = list(Chunked(Counting(condition), first, store, chunk_bytes).run(arrivals))
        store.close()
        sides = [one_batch(table, table.schema) for table in tables]
        expected = list(join_at_rest(condition, JoinType(how), sides[0], sides[1], schema))
        pairs = matched(condition, sides)
        assert sum(batch["pairs"][0].as_py() for batch in counts) == pairs
        assert rows_of(found, schema) == rows_of(expected, schema)
