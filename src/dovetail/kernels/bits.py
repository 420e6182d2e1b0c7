"""Machine instructions for 64-bit words that Numba has no name for: count zeros, count ones.

Each is a plain Python function for the interpreter and the debugger, overloaded by one LLVM instruction in kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic, overload


def trailing_zeros(word: np.uint64) -> np.uint64:
    """How many zeros are below the lowest one; `word` must not be 0."""
    return np.uint64((int(word) & -int(word)).bit_length() - 1)


def ones(word: np.uint64) -> np.uint64:
    """How many bits are set."""
    return np.uint64(int(word).bit_count())


def _generate(emit: Callable[[Any, Any, Any], Any]) -> Any:
    """An intrinsic on one 64-bit word; `emit` is given the code generation context, the builder and the word."""

    def typed(_typing: Any, _word: Any) -> Any:
        def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            return emit(context, builder, arguments[0])

        return types.uint64(types.uint64), generate

    return intrinsic(typed)


# The flag says that the answer for 0 does not matter, which saves an instruction on some machines.
_trailing = _generate(lambda context, builder, word: builder.cttz(word, context.get_constant(types.boolean, True)))
_ones = _generate(lambda _, builder, word: builder.ctpop(word))

# Numba wants the parameter names of an overload and of what it returns to be the same, annotations included.
overload(trailing_zeros)(lambda word: lambda word: _trailing(word))
overload(ones)(lambda word: lambda word: _ones(word))
