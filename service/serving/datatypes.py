"""Floating-point datatypes of binary tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from recalib.core.arrays import Floats

#: A length that no array has; Python does not even print the product of two much larger ones.
MAX_DIMENSION = 2**40

#: NumPy's types by the protocol's names, little-endian.
DATATYPES: dict[str, Any] = {
    "FP16": np.dtype("<f2"),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
    # NumPy has no bfloat16; its bits are the upper half of a float32.
    "BF16": np.dtype("<u2"),
}


def from_bytes(data: bytes | memoryview, datatype: str) -> Floats:
    """Return the values of little-endian bytes as a flat array; BF16 as float32."""
    flat: Any = np.frombuffer(data, DATATYPES[datatype])
    if datatype == "BF16":
        flat = (flat.astype(np.uint32) << 16).view(np.float32)
    return flat.astype(flat.dtype.newbyteorder("="), copy=False)
