import numpy as np
import pytest

from dovetail.kernels import equality
from dovetail.kernels.same_keys import pairs_to_compare, same_codes, same_strings


def strings(values: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.cumsum([0, *(len(value) for value in values)]).astype(np.int32)
    return offsets, np.frombuffer(b"".join(values), np.uint8)


def test_every_row_of_a_range_is_compared() -> None:
    join = equality.prepare(np.array([7, 9, 7, 5]), np.array([7, 7, 9, 7]))
    lefts, rights = pairs_to_compare(join)
    assert sorted(zip(lefts.tolist(), rights.tolist(), strict=True)) == [(0, 0), (0, 1), (0, 3), (1, 2), (2, 0)]


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 15, 16, 40])
def test_strings_differ_by_any_byte_or_by_length(size: int) -> None:
    value = bytes(range(1, size + 1))
    rows = np.array([1]), np.array([0])

    def same(left: bytes, right: bytes) -> bool:
        return bool(same_strings(*strings([b"before", left]), *strings([right, b"behind"]), *rows))

    assert same(value, value)
    assert not same(value, value + b"x")
    assert not same(value + b"x", value)
    for place in range(size):
        assert not same(value, value[:place] + b"\xff" + value[place + 1 :])


def test_codes() -> None:
    left, right = np.array([3, 4, 5]), np.array([5, 3])
    assert same_codes(left, right, np.array([0, 2]), np.array([1, 0]))
    assert not same_codes(left, right, np.array([0, 1]), np.array([1, 0]))
