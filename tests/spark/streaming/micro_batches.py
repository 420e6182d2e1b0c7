"""Which rows came in which micro-batch of a query, by what Spark wrote down in its checkpoint.

A kill of the driver can move files between micro-batches: a source notes its next file before the query notes the
micro-batch, and if the kill comes between the two, that source has two files in the next one.
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
    """The files of each micro-batch in the order of their partitions; columns of these names number the rows."""
    files = read_sources(place / "checkpoint")
    before = [-1] * len(files)
    for offsets in read_offsets(place / "checkpoint"):
        batch = []
        for noted, first, last in zip(files, before, offsets, strict=True):
            batch += [path for number in range(first + 1, last + 1) for path in noted[number]]
        # Each file is a partition, those of the left stream first, the largest of a stream first.
        batch.sort(key=lambda path: (SIDES.index(path.parent.name), -path.stat().st_size))
        yield [(side, rows(path, names[side])) for path in batch for side in [SIDES.index(path.parent.name)]]
        before = offsets


def rows(path: Path, name: str) -> list[int]:
    numbers: list[int] = pq.read_table(path, columns=[name])[name].to_pylist()
    return numbers


def read_sources(checkpoint: Path) -> list[dict[int, list[Path]]]:
    """The files of each source by the offset at which they come."""
    found: list[dict[int, list[Path]]] = []
    for source in sorted((checkpoint / "sources").iterdir(), key=lambda path: int(path.name)):
        noted: dict[Path, int] = {}
        for log in source.glob("[0-9]*"):  # some of them repeat what is in others
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
        _, _, *sources = log.read_text().splitlines()  # after its version and its settings
        yield [-1 if source == "-" else json.loads(source)["logOffset"] for source in sources]
