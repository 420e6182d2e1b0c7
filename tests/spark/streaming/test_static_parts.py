"""A table in parts, probed with batches of a stream: every class of condition, random types, against the definition."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.effort import some
from tests.random_rows import MORE_CONDITIONS, random_rows
from tests.seed import generator, seeded

from dovetail.condition import parse
from dovetail.core.join_types import JoinType
from dovetail.core.rows import Side
from dovetail.errors import StateError
from dovetail.execution.at_rest import Joining
from dovetail.execution.output import output_schema
from dovetail.planning.statistics import sample_table
from dovetail.spark.exchange.packing import ARROW_PACKED, packer
from dovetail.spark.streaming.static_join import Ranges, StaticJoin, part_writer, table_prober
from dovetail.testing import CONDITIONS
from dovetail.testing.conformance import results_by_definition

SEVERAL_PARTS = 3
TYPES = [
    (Side.LEFT, JoinType.INNER),
    (Side.LEFT, JoinType.LEFT),
    (Side.LEFT, JoinType.LEFT_SEMI),
    (Side.LEFT, JoinType.LEFT_ANTI),
    (Side.RIGHT, JoinType.INNER),
    (Side.RIGHT, JoinType.RIGHT),
]
"""The side of the stream, and the supported join types."""
ON = [*CONDITIONS, *MORE_CONDITIONS, "l.k = r.k OR l.x < r.x", "l.k < r.k AND l.x <= r.x AND l.n >= r.n AND l.d < r.d"]


def numbered(table: pa.Table) -> pa.Table:
    return table.append_column("row", pa.array(np.arange(table.num_rows)))


def prepare(tables: Sequence[pa.Table], on: str, how: JoinType, stream: Side, place: Path, cells: int) -> StaticJoin:
    """The join, with the table written as by workers."""
    condition = parse(on, tables[0].schema, tables[1].schema)
    schema = output_schema(tables[0].schema, tables[1].schema, "_right", how)
    join = StaticJoin(Joining(condition, how, schema), stream, place, None)
    table = stream.other
    ranges = Ranges(join, sample_table(condition, table, tables[table]), cells)
    pack = packer(table, ranges, condition.schema(table))
    packed = pa.Table.from_batches(pack(iter(tables[table].to_batches(max_chunksize=6))), ARROW_PACKED)
    parts = []
    for cell in range(ranges.cells):
        mine = packed.filter(pc.equal(packed["cell"], cell)).to_batches()
        parts += [pickle.loads(part) for found in part_writer(join)(iter(mine)) for part in found["part"].to_pylist()]
    return replace(join, parts=tuple(parts))


def results(join: StaticJoin, stream: pa.Table) -> Counter[tuple[Any, ...]]:
    """Pairs of row numbers, from several batches of the stream."""
    found: Counter[tuple[Any, ...]] = Counter()
    for batch in table_prober(join)(iter(stream.to_batches(max_chunksize=7))):
        assert batch.schema.equals(join.work.schema)
        lefts = batch["row"].to_pylist()
        rights = batch["row_right"].to_pylist() if join.work.how.emits_pairs else [None] * len(lefts)
        found.update(zip(lefts, rights, strict=True))
    return found


@pytest.mark.one_in(2)
@pytest.mark.parametrize("on", ON)
def test_any_condition(on: str, tmp_path: Path) -> None:
    number = ON.index(on)
    for turn, (stream, how) in enumerate(some(TYPES, number, of=2)):
        rng = seeded(100 * number + turn)
        tables = [numbered(random_rows(rng)) for _ in Side]
        join = prepare(tables, on, how, stream, tmp_path / str(turn), rng.choice([1, SEVERAL_PARTS]))
        expected = results_by_definition(dict(zip("lr", tables, strict=True)), on, how)
        assert results(join, tables[stream]) == Counter(expected), (stream, how)


def numbers(rows: int, seed: int) -> pa.Table:
    rng = generator(seed)
    return numbered(pa.table({name: rng.permutation(rows) for name in "abc"}))


def test_parts_that_cannot_match_are_not_read(tmp_path: Path) -> None:
    stream, table = numbers(20, 1), numbers(300, 2)
    join = prepare([stream, table], "abs(l.a - r.a) <= 2", JoinType.LEFT, Side.LEFT, tmp_path, SEVERAL_PARTS)
    assert len(join.parts) == SEVERAL_PARTS
    expected = Counter(results_by_definition({"l": stream, "r": table}, "abs(l.a - r.a) <= 2", JoinType.LEFT))
    for part in join.parts[1:]:
        (tmp_path / part.rows.name).unlink()
    assert results(join, stream) == expected


def test_probes_choose_between_three_inequalities(tmp_path: Path) -> None:
    """The table is sorted by each two of them, since the stream is unknown when the table is written."""
    stream, table = numbers(50, 1), numbers(60, 2)
    on = "l.a < r.a AND l.b > r.b AND l.c <= r.c"
    join = prepare([stream, table], on, JoinType.INNER, Side.LEFT, tmp_path, 1)
    assert [len(part.orders) for part in join.parts] == [3]
    assert results(join, stream) == Counter(results_by_definition({"l": stream, "r": table}, on, JoinType.INNER))


def test_rows_of_the_table_that_cannot_match_are_not_kept(tmp_path: Path) -> None:
    stream, table = numbers(5, 1), numbers(10, 2)
    join = prepare([stream, table], "l.a < r.a AND r.b < 4", JoinType.INNER, Side.LEFT, tmp_path, 1)
    assert [part.rows.rows for part in join.parts] == [4]


def test_a_part_that_is_lost(tmp_path: Path) -> None:
    stream, table = numbers(5, 1), numbers(10, 2)
    join = prepare([stream, table], "l.a < r.a", JoinType.INNER, Side.LEFT, tmp_path, 1)
    (tmp_path / join.parts[0].rows.name).unlink()
    with pytest.raises(StateError, match=r"\.arrow is missing\. Stop the query, call dovetail\.join again"):
        results(join, stream)
