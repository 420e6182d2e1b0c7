"""Quiet and signalling NaNs, positive and negative, with bits that differ from np.nan."""

from typing import Any

import numpy as np
import pyarrow as pa

_BITS: dict[pa.DataType, Any] = {
    pa.float64(): np.array([2**63 - 2**51, 2**63 - 2**51 + 1, 2**64 - 2**51, 2**63 - 2**52 + 1, 2**64 - 1], np.uint64),
    pa.float32(): np.array([0x7FC00000, 0x7FC00001, 0xFFC00000, 0x7F800001, 0xFFFFFFFF], np.uint32),
    pa.float16(): np.array([0x7E00, 0x7E01, 0xFE00, 0x7C01, 0xFFFF], np.uint16),
}
NANS = {type_: bits.view(type_.to_pandas_dtype()) for type_, bits in _BITS.items()}
