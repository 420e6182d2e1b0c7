"""Finds the rows of each micro-batch of a query in Spark's checkpoint.

Killing the driver can move files between micro-batches: a source logs its next file before the query logs the
micro-batch. If the kill happens in between, the source has two files in the next micro-batch.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlparse

import pyarrow.parquet as pq
from tests.spark.streaming.window_oracle import Source

SIDES = ("left", "right")  # directories of the streams


def micro_batches(place: Path, names: tuple[str, str]) -> Iterator[list[Source]]:
    """The rows of each micro-batch, by file in the order of partitions; these columns have the row numbers."""
    files = read_sources(place / "checkpoint")
    before = [-1] * len(files)
    for offsets in read_offsets(place / "checkpoint"):
        batch = []
        for noted, first, last in zip(files, before, offsets, strict=True):
            batch += [path for number in range(first + 1, last + 1) for path in noted[number]]
        # Each file is a partition, sorted by stream (left first), then by size (largest first).
        batch.sort(key=lambda path: (SIDES.index(path.parent.name), -path.stat().st_size))
        yield [(side, rows(path, names[side])) for path in batch for side in [SIDES.index(path.parent.name)]]
        before = offsets


def rows(path: Path, name: str) -> list[int]:
    numbers: list[int] = pq.read_table(path, columns=[name])[name].to_pylist()
    return numbers


def read_sources(checkpoint: Path) -> list[dict[int, list[Path]]]:
    """The files of each source, by offset."""
    found: list[dict[int, list[Path]]] = []
    for source in sorted((checkpoint / "sources").iterdir(), key=lambda path: int(path.name)):
        noted: dict[Path, int] = {}
        for log in source.glob("[0-9]*"):  # some of them repeat entries of others
            for line in log.read_text().splitlines()[1:]:
                entry = json.loads(line)
                noted[Path(unquote(urlparse(entry["path"]).path))] = entry["batchId"]
        by_offset: dict[int, list[Path]] = defaultdict(list)
        for path, offset in sorted(noted.items()):
            by_offset[offset].append(path)
        found.append(by_offset)
    return found


def read_offsets(checkpoint: Path) -> Iterator[list[int]]:
    """The last offset of each source in each micro-batch."""
    for log in sorted((checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name)):
        _, _, *sources = log.read_text().splitlines()  # after the version and the settings
        yield [-1 if source == "-" else json.loads(source)["logOffset"] for source in sources]
