"""Machine instructions that Numba does not expose.

Bytes are copied and read several times faster than with Numba's slices; there are no bounds checks. Trailing zeros and
ones of a 64-bit word are counted by one instruction each. Run as plain Python, the functions do the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.extending import intrinsic, overload
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

WORD_BYTES = 8


def _address(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    return builder.gep(context.make_array(kind)(context, builder, array).data, [index])


def _copy_bytes(target: Bytes, at: int, source: Bytes, start: int, size: int) -> None:
    """target[at : at + size] = source[start : start + size]; they must not overlap."""
    target[at : at + size] = source[start : start + size]


def _compiled_copy(typing: Any, target: Any, at: Any, source: Any, start: Any, size: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        to, place, out_of, begin, length = arguments
        copy: Any = cgutils.raw_memcpy
        there = _address(context, builder, signature.args[0], to, place)
        copy(builder, there, _address(context, builder, signature.args[2], out_of, begin), length, 1)
        return context.get_dummy_value()

    return types.void(target, types.intp, source, types.intp, types.intp), generate


def _read_word(source: Bytes, start: int) -> np.uint64:
    """Eight bytes as a big-endian word: such words compare as their bytes do."""
    return np.uint64(int.from_bytes(source[start : start + WORD_BYTES].tobytes(), "big"))


def _compiled_read(typing: Any, source: Any, start: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _address(context, builder, signature.args[0], *arguments)
        word = context.get_value_type(types.uint64)
        return builder.bswap(builder.load(builder.bitcast(address, word.as_pointer()), align=1))

    return types.uint64(source, types.intp), generate


def _prefetch(source: NDArray[Any], start: int) -> None:
    """Hint that this address will be read soon."""


def _compiled_prefetch(typing: Any, source: Any, start: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _address(context, builder, signature.args[0], *arguments)
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [address.type, number, number, number])
        declared = builder.module.declare_intrinsic("llvm.prefetch", [address.type], kind)
        builder.call(declared, [address, number(0), number(3), number(1)])  # for reading, into all caches, data
        return context.get_dummy_value()

    return types.void(source, types.intp), generate


def _one_of(compiled: Any, plain: Any) -> Any:
    """The function for the way kernels run: compiled or plain Python."""
    return plain if getattr(numba.config, "DISABLE_JIT", 0) else cast(Any, intrinsic(compiled))


copy_bytes: Callable[[Bytes, int, Bytes, int, int], None] = _one_of(_compiled_copy, _copy_bytes)
prefetch: Callable[[NDArray[Any], Any], None] = _one_of(_compiled_prefetch, _prefetch)
read_word: Callable[[Bytes, int], np.uint64] = _one_of(_compiled_read, _read_word)


def trailing_zeros(word: np.uint64) -> np.uint64:
    """The number of zeros below the lowest one; `word` must not be 0."""
    return np.uint64((int(word) & -int(word)).bit_length() - 1)


def ones(word: np.uint64) -> np.uint64:
    """The number of bits set."""
    return np.uint64(int(word).bit_count())


def _generate(emit: Callable[[Any, Any, Any], Any]) -> Any:
    """An intrinsic on one 64-bit word; `emit` takes the code generation context, the builder and the word."""

    def typed(_typing: Any, _word: Any) -> Any:
        def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            return emit(context, builder, arguments[0])

        return types.uint64(types.uint64), generate

    return intrinsic(typed)


# The flag says that the result for 0 is undefined, which saves an instruction on some machines.
_trailing = _generate(lambda context, builder, word: builder.cttz(word, context.get_constant(types.boolean, True)))
_ones = _generate(lambda _, builder, word: builder.ctpop(word))

# Numba requires an overload and the function it returns to have the same parameter names, including annotations.
overload(trailing_zeros)(lambda word: lambda word: _trailing(word))
overload(ones)(lambda word: lambda word: _ones(word))
