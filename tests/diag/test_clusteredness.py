"""Measured deviations are those of the data, for any keys, filters and files."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dovetail.condition import parse
from dovetail.condition.graph import Graph
from dovetail.core.join_types import JoinType
from dovetail.core.rows import Side
from dovetail.diag.clusteredness import measure
from dovetail.diag.join import DiagonalJoin, Tally
from dovetail.execution.output import output_schema
from dovetail.planning.plan import Choice, Diagonal, JoinPlan
from dovetail.sources.protocol import Scan, TableScan
from dovetail.storage.hash_table import HashTable

ONES, MANY = 20_000, 80_000


def related(deviations: np.ndarray) -> tuple[Scan, Scan]:
    """Each row of RN refers to the row of R1 at this distance from its expected position."""
    keys = np.random.default_rng(0).permutation(ONES)
    at = np.clip(np.arange(MANY) * ONES // MANY + deviations, 0, ONES - 1)
    return TableScan(pa.table({"k": keys})), TableScan(pa.table({"k": keys[at], "v": np.arange(MANY) % 10}))


def run(scans: tuple[Scan, Scan], tables: int, table_rows: int) -> Tally:
    condition = parse("l.k = r.k", scans[0].schema, scans[1].schema)
    plan = JoinPlan(
        Graph.of(condition), JoinType.INNER, Choice("diag", ""), diagonal=Diagonal(Side.LEFT, tables, table_rows, ONES)
    )
    join = DiagonalJoin(plan, scans, output_schema(scans[0].schema, scans[1].schema, "_right"))
    for _ in join.results():
        pass
    return join.tally


def test_deviations_are_those_of_the_data() -> None:
    deviations = np.random.default_rng(1).integers(-300, 301, MANY)
    scans = related(deviations)
    condition = parse("l.k = r.k", scans[0].schema, scans[1].schema)
    whole = measure(condition, scans, Side.LEFT, places=None)
    inner = slice(2000, -2000)  # at the ends, deviations are cut off
    assert whole.deviations[inner].tolist() == deviations[inner].tolist()
    assert (whole.sampled, whole.repeated, whole.alone) == (MANY, 0, 0.0)
    assert whole.quantiles == pytest.approx((0.0075, 0.01425, 0.01485), abs=0.0002)
    some = measure(condition, scans, Side.LEFT)
    assert some.sampled == 16 * 2048
    assert some.quantiles == pytest.approx(whole.quantiles, abs=0.0005)
    assert some.text == "of 32,768 partners 50% within 0.76%, 95% within 1.43%, 99% within 1.49% of l from the diagonal"


def test_filters_leave_deviations_as_they_are() -> None:
    scans = related(np.full(MANY, 7))
    for on in ("l.k = r.k AND r.v = 3", "l.k = r.k AND l.k < 500"):
        seen = measure(parse(on, scans[0].schema, scans[1].schema), scans, Side.LEFT)
        assert set(seen.deviations[: len(seen.deviations) - 10].tolist()) == {7}


def test_no_more_pairs_than_rows_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key with 4,000 rows on one side and 1,000 on the other would have 4 million pairs."""
    pairs = 0
    find = HashTable.find

    def counted(table: HashTable, *given: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        nonlocal pairs
        for found in find(table, *given):
            pairs += len(found[0])
            yield found

    monkeypatch.setattr(HashTable, "find", counted)
    rng = np.random.default_rng(3)
    ones, many = rng.integers(0, 5, 5_000), rng.integers(0, 6, 20_000)
    scans = TableScan(pa.table({"k": ones})), TableScan(pa.table({"k": many}))
    condition = parse("l.k = r.k", scans[0].schema, scans[1].schema)
    found = measure(condition, scans, Side.LEFT, places=None)
    known = many < 5
    first = np.array([np.flatnonzero(ones == key)[0] for key in many[known]])
    assert found.deviations.tolist() == (first - np.flatnonzero(known) // 4).tolist()
    assert found.repeated == known.sum()
    assert pairs <= len(ones)


def test_repeated_and_missing_keys_are_seen() -> None:
    one = TableScan(pa.table({"k": [1, 2, 2, 4]}))
    many = TableScan(pa.table({"k": [1, 2, 9, None, 4, 4]}))
    seen = measure(parse("l.k = r.k", one.schema, many.schema), (one, many), Side.LEFT)
    assert (seen.sampled, seen.repeated, seen.alone) == (5, 1, pytest.approx(0.2))
    empty = TableScan(pa.table({"k": pa.array([], pa.int64())}))
    nothing = measure(parse("l.k = r.k", one.schema, many.schema), (one, empty), Side.LEFT)
    assert (nothing.quantiles, nothing.alone, nothing.mishits(5, 1)) == ((0.0, 0.0, 0.0), 0.0, 0.0)


SHAPES: dict[str, Any] = {
    "normal": lambda rng: rng.normal(0, 200, MANY),
    "uniform": lambda rng: rng.uniform(-400, 400, MANY),
    "skewed": lambda rng: rng.exponential(150, MANY),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("tables", [3, 5, 8])
def test_the_window_that_is_chosen_suffices_and_is_no_larger_than_needed(shape: str, tables: int) -> None:
    """Section 3.5: if 1 % of mishits are accepted, there are between 0.1 % and 1 %."""
    scans = related(SHAPES[shape](np.random.default_rng(2)).round().astype(np.int64))
    condition = parse("l.k = r.k", scans[0].schema, scans[1].schema)
    seen = measure(condition, scans, Side.LEFT)
    rows = seen.table_rows(tables, accept=0.01)
    tally = run(scans, tables, rows)
    assert 0.001 <= tally.mishits / MANY <= 0.01
    assert tally.mishits / MANY == pytest.approx(seen.mishits(tables, rows), abs=0.004)
