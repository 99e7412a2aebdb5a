"""Thread-safe decoding of JSON and plain values into msgspec types.

msgspec inspects a class when it first decodes it. If two threads do so at the same time, the
process crashes (SIGSEGV, msgspec 0.22). This module creates decoders under a lock; decoding itself
needs none. Decoders that a module creates when it is imported are safe without it.
"""

from __future__ import annotations

import threading
from functools import cache
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_lock = threading.Lock()


def decoder_of(kind: type[T]) -> msgspec.json.Decoder[T]:
    """Return the JSON decoder of `kind`; its `decode` raises `msgspec.DecodeError`."""
    return _decoder(kind)  # type: ignore[arg-type]


def convert(value: Any, kind: type[T]) -> T:
    """Convert plain values to `kind`; raise `msgspec.ValidationError` if they do not match."""
    _decoder(kind)  # type: ignore[arg-type]
    return msgspec.convert(value, kind)


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    with _lock:
        return msgspec.json.Decoder(kind)
