from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.full_disk import REASON, full_disk

from dovetail.core.metrics import Counters
from dovetail.errors import InputError, StateError
from dovetail.storage.blocks import Block, BlockStore

ROWS = pa.record_batch({"k": np.arange(1000), "s": [None if i % 3 else "x" * i for i in range(1000)]})


def test_a_block_reads_back_as_written(tmp_path: Path) -> None:
    store = BlockStore(tmp_path / "new" / "place", durable=True)
    block = store.write(ROWS, "l", (0, 999))
    assert (block.rows, block.low, block.high) == (1000, 0, 999)
    again = Block.from_json(block.to_json())
    assert BlockStore(store.directory).read(again, verify=True).equals(ROWS)
    assert [p.name for p in store.directory.iterdir()] == [block.name]


@pytest.mark.parametrize("name", ["../secret.arrow", "/etc/secret.arrow", "cell-1/a.arrow", "..", ""])
def test_a_name_that_leads_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(StateError, match="is not the name of a block"):
        Block.from_json(Block(name, 1, 1, 0).to_json())


def test_a_mapped_block_survives_its_removal(tmp_path: Path) -> None:
    store = BlockStore(tmp_path)
    block = store.write(ROWS, "l")
    rows = store.read(block)
    store.remove([block])
    assert rows.equals(ROWS)
    with pytest.raises(StateError, match="is missing"):
        store.read(block)


def test_a_temporary_store_leaves_nothing_behind() -> None:
    store = BlockStore()
    store.write(ROWS, "l")
    directory = store.directory
    store.close()
    assert not directory.exists()


@pytest.mark.parametrize("damage", ["cut", "flip"])
def test_damage_is_reported(tmp_path: Path, damage: str) -> None:
    store = BlockStore(tmp_path)
    block = store.write(ROWS, "l")
    path = tmp_path / block.name
    data = bytearray(path.read_bytes())
    if damage == "cut":
        data = data[:-100]
    else:
        data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(StateError, match=r"is damaged.*Restore the state directory"):
        store.read(block, verify=True)


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot create the directory .*file/below"):
        BlockStore(tmp_path / "file" / "below").write(ROWS, "l")


def test_a_full_disk_is_reported_and_leaves_no_file(tmp_path: Path) -> None:
    store = BlockStore(tmp_path, durable=True)
    with pytest.raises(StateError, match=REASON), full_disk(100):
        store.write(ROWS, "l")
    assert list(tmp_path.iterdir()) == []


def test_reads_are_counted_as_sequential_or_random(tmp_path: Path) -> None:
    counters = Counters()
    store = BlockStore(tmp_path, counters=counters)
    blocks = [store.write(ROWS.slice(i, 10), "l") for i in range(4)]
    for i in (0, 1, 2, 0, 1):
        store.read(blocks[i])
    assert (counters.pages_written, counters.pages_read_sequential, counters.pages_read_random) == (4, 3, 2)
