"""When files are joined along the diagonal, and how explain shows it.

`DOVETAIL_GOLDEN=write pytest tests/diag/test_choice.py` rewrites the golden files; review the diff.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import dovetail
from dovetail.condition import parse
from dovetail.diag.choice import GOOD_ROWS, SMALL_WINDOW, TABLES, ScanDiagonals
from dovetail.sources.protocol import TableScan

GOLDEN = Path(__file__).parents[1] / "golden" / "diagonal"
ORDERS, ITEMS = 20_000, 80_000


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Orders sorted by date, items by shipping date, and the same rows in other orders."""
    place = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(0)
    keys = rng.permutation(ORDERS)
    orders = pa.table({"id": keys, "day": np.arange(ORDERS) * 2400 // ORDERS, "note": ["-" * 30] * ORDERS})
    of = rng.integers(0, ORDERS, ITEMS)
    shipped = of * 2400 // ORDERS + rng.integers(1, 122, ITEMS)
    order = np.argsort(shipped, kind="stable")
    items = pa.table({"order_id": keys[of][order], "shipped": shipped[order], "price": rng.random(ITEMS)})
    pq.write_table(orders, place / "orders.parquet", row_group_size=3000)
    pq.write_table(items, place / "items.parquet", row_group_size=9000)
    pq.write_table(items.take(rng.permutation(ITEMS)), place / "shuffled.parquet")
    pq.write_table(items.slice(0, 5000), place / "few_items.parquet")
    return place


CASES: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "clustered": ("orders", "items", "l.id = r.order_id", {}),
    "clustered_outer": ("items", "orders", "l.order_id = r.id AND l.price < 0.5", {"how": "right", "memory": "4MB"}),
    "shuffled": ("orders", "shuffled", "l.id = r.order_id", {}),
    "shuffled_asked_for": ("orders", "shuffled", "l.id = r.order_id", {"algorithm": "diag", "memory": "4MB"}),
    "key_on_the_larger_side": ("few_items", "orders", "l.order_id = r.id", {"algorithm": "diag"}),
    "no_unique_key": ("items", "shuffled", "l.order_id = r.order_id", {}),
    "no_unique_key_asked_for": ("items", "shuffled", "l.order_id = r.order_id", {"algorithm": "diag"}),
    "settled": ("orders", "items", "l.id = r.order_id", {"algorithm": "diag", "share": 0.07, "tables": 7}),
    "memory_too_small": ("orders", "items", "l.id = r.order_id", {"memory": "200KB"}),
    "no_equality": ("orders", "few_items", "l.id < r.order_id", {}),
}


@pytest.mark.parametrize("name", CASES)
def test_explain(name: str, files: Path) -> None:
    left, right, on, options = CASES[name]
    text = f"{dovetail.explain(files / f'{left}.parquet', files / f'{right}.parquet', on, **options)}\n"
    file = GOLDEN / f"{name}.txt"
    if os.environ.get("DOVETAIL_GOLDEN") == "write":
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert text == file.read_text()


def test_every_file_is_of_a_case() -> None:
    assert {file.stem for file in GOLDEN.iterdir()} == set(CASES)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", [name for name in CASES if name not in ("no_equality", "no_unique_key_asked_for")])
def test_what_was_chosen_joins(name: str, files: Path) -> None:
    left, right, on, options = CASES[name]
    inputs = [ds.dataset(files / f"{side}.parquet") for side in (left, right)]
    if "no_unique_key" in name:
        on += " AND l.price = r.price"
    found = dovetail.join(*inputs, on, **options)
    tables = [dataset.to_table() for dataset in inputs]
    assert found.num_rows == dovetail.join(*tables, on, options.get("how", "inner")).num_rows


def test_tables_have_a_good_size_where_the_window_stays_small() -> None:
    def table_rows(rows: int, memory_bytes: int | None = None) -> int:
        table = pa.table({"k": np.arange(rows)})
        scans, condition = (TableScan(table), TableScan(table)), parse("l.k = r.k", table.schema, table.schema)
        plan, _ = ScanDiagonals(scans).plan(condition, "inner", memory_bytes, {}, asked=True)
        assert plan is not None
        assert plan.diagonal is not None
        return plan.diagonal.table_rows

    assert table_rows(100_000) == 100_000 * SMALL_WINDOW // TABLES
    assert table_rows(3_000_000) == GOOD_ROWS
    assert table_rows(3_000_000, 1 << 23) < GOOD_ROWS
