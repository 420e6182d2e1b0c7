"""Slices of a join along the diagonal: the pairs they find and the rows they leave over make up the whole join."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.seed import generator

from dovetail.condition import parse
from dovetail.core.join_types import JoinType
from dovetail.core.rows import Side
from dovetail.diag import slices
from dovetail.diag.choice import Wish, plan_diagonal
from dovetail.diag.slices import Range, Sliced, SliceJoin, cut_slices
from dovetail.errors import SourceError
from dovetail.execution.output import output_schema
from dovetail.sources.parquet_files import File, ParquetRows, group_sizes, read_footer
from dovetail.storage.local_store import LocalStore

ONES, MANY = 500, 2100
EVERY = (Side.LEFT, Side.RIGHT)


def scan(path: Path, table: pa.Table, files: int = 1, group: int = 97) -> ParquetRows:
    path.mkdir()
    parts = []
    for number in range(files):
        rows = -(-table.num_rows // files)
        file = path / f"{number}.parquet"
        pq.write_table(table.slice(number * rows, rows), file, row_group_size=group)
        place = LocalStore(file.parent)
        footer = read_footer(place, file.name)
        parts.append(File(place, file.name, group_sizes(footer.metadata), footer.stamp))
    return ParquetRows(parts, table.schema.names, table.schema, table.nbytes // table.num_rows)


def sliced(
    path: Path, one: Side = Side.LEFT, seed: int = 0, spread: int = 30, how: str = "inner", **plan: Any
) -> Sliced:
    rng = generator(seed)
    keys = rng.permutation(10 * ONES)[:ONES]
    beside = np.arange(MANY) * ONES // MANY + rng.integers(-spread, spread + 1, MANY)
    refers = pa.array(keys[np.clip(beside, 0, ONES - 1)], mask=rng.random(MANY) > 0.99)
    tables = [pa.table({"k": keys, "i": np.arange(ONES)}), pa.table({"f": refers, "n": np.arange(MANY)})]
    scans = [scan(path / "ones", tables[0], 2), scan(path / "many", tables[1], 3)]
    text = "l.k = r.f AND l.i % 7 != r.n % 5 AND l.i >= 50 AND r.n < 2000"
    if one is Side.RIGHT:
        scans, text = scans[::-1], "l.f = r.k AND l.n % 5 != r.i % 7 AND r.i >= 50 AND l.n < 2000"
    condition = parse(text, scans[0].schema, scans[1].schema)
    both = (scans[0], scans[1])
    wish = Wish.from_options(share=plan.get("share", 0.1), one=one.name.lower())
    planned = plan_diagonal(condition, how, both, wish, None)
    output = output_schema(scans[0].schema, scans[1].schema, "_right", JoinType(how))
    parts = tuple(cut_slices(both[one.other], plan.get("slices", 4)))
    return Sliced(planned, both, output, parts, np.empty(0, np.int64))


@pytest.fixture(autouse=True)
def _short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "LEAST_STEP", 50)


def found(join: Sliced) -> tuple[Counter[tuple[int, int]], list[int]]:
    """Pairs of row numbers, and the rows of RN that are left over."""
    pairs: Counter[tuple[int, int]] = Counter()
    left: list[int] = []
    for part in join.slices:
        for batch in SliceJoin(join, part).results():
            pairs.update(zip(batch.column("i").to_pylist(), batch.column("n").to_pylist(), strict=True))
        for batch in SliceJoin(join, part).left_over():
            left += batch.column("n").to_pylist()
    return pairs, left


def expected(join: Sliced) -> Counter[tuple[int, int]]:
    ones, many = (join.scans[side].to_table().to_pylist() for side in (join.one, join.many))
    by_key = {row["k"]: row["i"] for row in ones}
    pairs = ((by_key.get(row["f"]), row["n"]) for row in many if row["f"] is not None)
    return Counter((i, n) for i, n in pairs if i is not None and i % 7 != n % 5 and i >= 50 and n < 2000)


@pytest.mark.parametrize("one", EVERY)
@pytest.mark.parametrize(("share", "count"), [(0.02, 1), (0.1, 4), (0.3, 9), (1.0, 50)])
def test_settled_and_left_over_are_all(tmp_path: Path, one: Side, share: float, count: int) -> None:
    join = sliced(tmp_path, one, seed=count, share=share, slices=count)
    pairs, left = found(join)
    assert pairs == Counter({pair: 1 for pair in expected(join) if pair[1] not in set(left)})
    assert len(set(left)) == len(left)
    assert bool(left) == (share < 0.3)
    assert sum(SliceJoin(join, part).survey().left_over for part in join.slices) == len(left)


def test_slices_cover_both_sides_once(tmp_path: Path) -> None:
    join = sliced(tmp_path, slices=5)
    assert [part.start for part in join.slices] == [0, *(part.stop for part in join.slices[:-1])]
    assert join.slices[-1].stop == MANY
    owned = [join.owned_rows(part) for part in join.slices]
    assert [part.start for part in owned] == [0, *(part.stop for part in owned[:-1])]
    assert owned[-1].stop == ONES
    hashes = np.concatenate([SliceJoin(join, part).survey().hashes for part in join.slices])
    assert len(np.unique(hashes)) == len(hashes) == ONES


def test_the_survey_knows_who_has_a_partner(tmp_path: Path) -> None:
    join = sliced(tmp_path, how="left", share=0.5)
    partnered = np.zeros(ONES, np.bool_)
    for part in join.slices:
        seen = SliceJoin(join, part).survey()
        bits = np.unpackbits(seen.partnered)[: ONES - seen.low].view(np.bool_)
        partnered[seen.low : seen.low + len(bits)] |= bits
    assert set(np.flatnonzero(partnered)) == {i for i, _ in expected(join)}


def test_repeated_keys_are_left_over(tmp_path: Path) -> None:
    join = sliced(tmp_path, share=0.5)
    wanted = expected(join)
    hashes = np.unique(SliceJoin(join, join.slices[1]).survey().hashes)

    def without(some: np.ndarray) -> tuple[Counter[tuple[int, int]], list[int], set[int]]:
        told = Sliced(join.plan, join.scans, join.output, join.slices, some)
        pairs, left = found(told)
        return pairs, left, {i for i, _ in wanted} - {i for i, _ in pairs}

    partnered = [one for one in hashes[:8] if without(np.array([one]))[2]]  # some rows fail the other parts
    pairs, left, missing = without(np.array(partnered[:3]))
    assert len(missing) == 3
    assert pairs + Counter(pair for pair in wanted if pair[1] in set(left)) == wanted


def test_memory_is_bounded_by_the_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    join = sliced(tmp_path, share=0.1, slices=1)
    most = 0
    look_up = SliceJoin._look_up

    def watched(self: SliceJoin, batch: pa.RecordBatch, window: Any) -> Any:
        nonlocal most
        most = max(most, len(window.index))
        return look_up(self, batch, window)

    monkeypatch.setattr(SliceJoin, "_look_up", watched)
    assert list(SliceJoin(join, Range(0, MANY)).results())
    assert most <= 2 * join.window.tables * join.window.table_rows + 2


def test_changed_files_are_noticed(tmp_path: Path) -> None:
    join = sliced(tmp_path)
    pq.write_table(pa.table({"k": [1], "i": [2]}), str(join.scans[0].files[0]))
    with pytest.raises(SourceError, match="has changed since the join was planned"):
        list(SliceJoin(join, join.slices[0]).results())
