"""Compilation is reported when it happens; loading from the cache is not."""

from __future__ import annotations

import os

import numba
import pytest

from dovetail.kernels.compiling import compiling_reported

pytestmark = pytest.mark.skipif("NUMBA_DISABLE_JIT" in os.environ, reason="nothing is compiled")


def test_a_kernel_that_calls_another_is_one() -> None:
    @numba.njit
    def inner(x: int) -> int:
        return x + 1

    @numba.njit
    def outer(x: int) -> int:
        return int(inner(x)) * 2

    seen: list[bool] = []
    with compiling_reported(seen.append):
        assert outer(3) == 8
        assert seen == [True, False]
        outer(4)
    outer(1.5)
    assert seen == [True, False]  # neither kernels compiled earlier nor those compiled later
