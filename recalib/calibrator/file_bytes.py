"""The bytes of a parameter file: safetensors with the card in its metadata."""

from __future__ import annotations

from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from recalib.core.array_bytes import Arrays, array_digest, read_arrays
from recalib.core.card import Card
from recalib.errors import CorruptError

#: Larger files are rejected, so that a hostile header cannot allocate much memory.
_MAX_FILE_BYTES = 2**30


def parameter_file(card: Card, parameters: Arrays) -> bytes:
    """Return the bytes of a parameter file."""
    arrays = {name: np.asarray(value, order="C") for name, value in parameters.items()}
    text = card.to_json()
    metadata = {"card": text, "sha256": array_digest(text, arrays)}
    return safetensors.numpy.save(arrays, metadata=metadata)


def read_parameter_file(data: bytes) -> tuple[dict[str, NDArray[Any]], Card]:
    """Return the parameters and the card in a parameter file's bytes.

    Raises
    ------
    CorruptError: other or damaged bytes.
    """
    if len(data) > _MAX_FILE_BYTES:
        raise CorruptError(f"the file has {len(data)} bytes, over {_MAX_FILE_BYTES}")
    arrays, header = read_arrays(data, "a Recalib parameter file")
    if "card" not in header:
        raise CorruptError("not a Recalib parameter file: its metadata has no card")
    if any(array.dtype != np.float64 for array in arrays.values()):
        raise CorruptError("not a Recalib parameter file: parameters are not float64")
    digest = array_digest(header["card"], arrays)
    if header.get("sha256", digest) != digest:  # the oldest files have no checksum
        raise CorruptError("the parameter file is damaged: its checksum is another")
    return arrays, Card.from_json(header["card"])
