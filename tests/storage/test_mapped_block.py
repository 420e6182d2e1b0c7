"""Blocks that stay mapped: read repeatedly, but in memory only while in use."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from dovetail.errors import StateError
from dovetail.storage.blocks import BlockStore
from dovetail.storage.segments import SegmentStore

ROWS = pa.record_batch({"k": np.arange(100_000), "s": [str(i) for i in range(100_000)]})


def resident_kib(path: Path) -> int:
    """Resident memory of the mappings of a file."""
    total, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, _, rest = line.partition(" ")
        if "-" in name and not name.endswith(":"):
            inside = line.endswith(str(path))
        elif inside and name == "Rss:":
            total += int(rest.split()[0])
    return total


def test_pages_are_given_back_and_read_again(tmp_path: Path) -> None:
    store = BlockStore(tmp_path)
    block = store.write(ROWS, "l")
    mapped = store.map(block, verify=True)
    rows = mapped.read()
    for _ in range(2):
        assert rows.equals(ROWS)
        assert resident_kib(tmp_path / block.name) > 500
        mapped.release()
        assert resident_kib(tmp_path / block.name) == 0
    store.remove([block])
    assert mapped.read().equals(ROWS)


def test_a_checksum_is_compared_without_mapped_pages(tmp_path: Path) -> None:
    """Many segments are mapped at once, and only the pages in use should count as memory."""
    store = BlockStore(tmp_path)
    block = store.write(ROWS, "l")
    mapped = store.map(block, verify=True)
    assert resident_kib(tmp_path / block.name) < block.nbytes / 1024 / 4
    assert mapped.read().equals(ROWS)


@pytest.mark.parametrize("damage", ["missing", "short", "changed", "empty"])
def test_damage_is_reported(damage: str, tmp_path: Path) -> None:
    """A segment is verified when a process first reads it."""
    store = SegmentStore(tmp_path, 1)
    block = store.write(ROWS, "l")
    path = tmp_path / block.name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    match damage:
        case "missing":
            path.unlink()
        case "short":
            path.write_bytes(bytes(data[:-8]))
        case "changed":
            path.write_bytes(bytes(data))
        case "empty":
            path.write_bytes(b"")
    with pytest.raises(StateError, match="missing" if damage == "missing" else "damaged"):
        store.map(block)
