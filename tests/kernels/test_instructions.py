import numpy as np
import pytest

from dovetail.kernels.compiling import kernel
from dovetail.kernels.instructions import ones, trailing_zeros


@kernel
def compiled(word: np.uint64) -> tuple[np.uint64, np.uint64]:
    return trailing_zeros(word), ones(word)


@pytest.mark.parametrize(
    ("word", "expected"),
    [(1, (0, 1)), (2, (1, 1)), (12, (2, 2)), (2**63, (63, 1)), (2**64 - 1, (0, 64))],
)
def test_instructions_and_their_python_twins_agree(word: int, expected: tuple[int, int]) -> None:
    assert compiled(np.uint64(word)) == expected
    assert (trailing_zeros(np.uint64(word)), ones(np.uint64(word))) == expected


def test_zero_has_no_bits() -> None:
    assert ones(np.uint64(0)) == 0
