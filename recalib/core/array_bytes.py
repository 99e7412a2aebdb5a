"""Named arrays as bytes: safetensors with metadata and a checksum, without pickle."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from recalib.core.decoding import decoder_of
from recalib.errors import CorruptError

Arrays = Mapping[str, NDArray[Any]]


def array_digest(text: str, arrays: Arrays) -> str:
    """Return the SHA-256 of a text and of arrays, which detects flipped bits."""
    digest = hashlib.sha256(text.encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"\0{name}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def read_arrays(data: bytes, content: str) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Return the arrays and the metadata of safetensors.

    Parameters
    ----------
    content: what the bytes should be, for the error.

    Raises
    ------
    CorruptError: other bytes.
    """
    try:
        arrays = safetensors.numpy.load(data)
        header_length = int.from_bytes(data[:8], "little")
        header = decoder_of(_Header).decode(data[8 : 8 + header_length])
    except (safetensors.SafetensorError, msgspec.DecodeError, ValueError, KeyError) as error:
        raise CorruptError(f"not {content}: {error}") from None
    return arrays, header.metadata


def state_to_bytes(kind: str, version: int, arrays: Arrays) -> bytes:
    """Return the sums of a state as bytes.

    Parameters
    ----------
    kind: what the state is of, such as its class.
    version: of the arrays and their meaning.
    """
    # A view may not be contiguous, and safetensors writes its memory as it is.
    contiguous = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    text = f"{kind} {version}"
    # One entry: safetensors writes several in any order, and equal states have equal bytes.
    metadata = {"state": f"{text} {array_digest(text, contiguous)}"}
    return safetensors.numpy.save(contiguous, metadata=metadata)


def state_from_bytes(
    kind: str, versions: Sequence[int], data: bytes
) -> tuple[int, dict[str, NDArray[Any]]]:
    """Return the version and the arrays in the result of `state_to_bytes`.

    Raises
    ------
    CorruptError: damaged bytes, another kind, or none of the `versions`.
    """
    arrays, metadata = read_arrays(data, f"a state of kind {kind}")
    text, _, digest = metadata.get("state", "").rpartition(" ")
    known = {f"{kind} {version}": version for version in versions}
    if text not in known:
        raise CorruptError(f"found state {text!r}, not {next(iter(known))!r}")
    if digest != array_digest(text, arrays):
        raise CorruptError("the state is damaged: its checksum is another")
    return known[text], arrays


class _Header(msgspec.Struct):
    """The header entry that the NumPy reader of safetensors does not return."""

    metadata: dict[str, str] = msgspec.field(name="__metadata__", default_factory=dict)
