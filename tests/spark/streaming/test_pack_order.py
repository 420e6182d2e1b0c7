"""Packed rows arrive in the order of their sources, from memory or from a file."""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path

import pandas as pd
import pytest
from tests.full_disk import REASON, full_disk
from tests.seed import seeded

from dovetail.errors import StateError
from dovetail.spark.streaming.end_of_stream import LAST
from dovetail.spark.streaming.pack_order import Pack, packs_in_order


def frames_of(packs: list[Pack], rng: random.Random) -> list[pd.DataFrame]:
    shuffled = rng.sample(packs, len(packs))
    size = rng.randint(1, 20)
    return [pd.DataFrame(shuffled[i : i + size], columns=Pack._fields) for i in range(0, len(shuffled), size)]


@pytest.mark.parametrize("most_bytes", [0, 700, 1 << 20])
def test_any_order_of_frames(most_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/nowhere")
    rng = seeded(most_bytes)
    packs = [
        Pack((partition << 40) + position, side, rng.randbytes(rng.randint(1, 300)))
        for partition, position, side in product(range(3), range(20), range(2))
    ]
    packs += [Pack(LAST, side, None) for side in (-1, 0)]
    for _ in range(3):
        assert list(packs_in_order(frames_of(packs, rng), most_bytes)) == packs
    assert not list(tmp_path.iterdir())
    assert not list(packs_in_order([], most_bytes))


def test_a_full_disk_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    frames = [pd.DataFrame([Pack(0, 0, b"x" * 2000)], columns=Pack._fields)]
    with pytest.raises(StateError, match=REASON), full_disk(100):
        list(packs_in_order(frames, 1000))
