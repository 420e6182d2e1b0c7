"""A divisibility condition on a sum of both inputs becomes an equality of remainders, for any signs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dovetail

FOUND = {
    "(l.x + r.y) % 7 = 0": lambda x, y: (x + y) % 7 == 0,
    "(l.x - r.y) % 7 = 0": lambda x, y: (x - y) % 7 == 0,
    "0 = (r.y - l.x + 3) % -7": lambda x, y: (y - x + 3) % 7 == 0,
    "(-l.x - r.y) % 5 != 0": lambda x, y: (x + y) % 5 != 0,
}
LEFT = {
    "(l.x + r.y) % 7 = 1": lambda x, y: np.fmod(x + y, 7) == 1,  # has the sign of the sum
    "(l.x * r.y) % 7 = 0": lambda x, y: (x * y) % 7 == 0,
    "(l.x + r.y) % 0 = 0": lambda x, y: np.zeros((len(x), y.size), bool),
}


@pytest.mark.parametrize("type_", [pa.int8(), pa.int32(), pa.int64()], ids=str)
@pytest.mark.parametrize("on", [*FOUND, *LEFT])
def test_residues(on: str, type_: pa.DataType) -> None:
    values = np.random.default_rng(3).integers(-128, 128, (2, 60))
    values[:, :2] = -128, 127
    nothing = np.arange(60) % 20 == 19
    left, right = (
        pa.table({name: pa.array(some, type_, mask=nothing), "row": np.arange(60)})
        for name, some in zip("xy", values, strict=True)
    )
    meant: Any = (FOUND | LEFT)[on](values[0].reshape(-1, 1), values[1].reshape(1, -1))
    meant &= ~nothing.reshape(-1, 1) & ~nothing
    found = dovetail.join(left, right, on)
    assert sorted(zip(found["row"].to_pylist(), found["row_right"].to_pylist(), strict=True)) == sorted(
        zip(*(side.tolist() for side in meant.nonzero()), strict=True)
    )
    driven = "driven by" in str(dovetail.explain(left, right, on))
    assert driven == (on in FOUND)
