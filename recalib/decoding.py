"""Reading JSON and plain values into classes, from any thread.

msgspec finds out what a class looks like when it first reads one, and whoever reads one on another
thread meanwhile finds that half done: the process crashes (SIGSEGV, as of msgspec 0.22). So it is
found out here, one thread at a time; what is read after that needs no lock. A decoder made while a
module is imported is safe as it is, where no thread has the class yet.
"""

from __future__ import annotations

import threading
from functools import cache
from typing import Any, TypeVar

import msgspec

__all__ = ["converted", "decoder_of"]

T = TypeVar("T")

_finding_out = threading.Lock()


def decoder_of(kind: type[T]) -> msgspec.json.Decoder[T]:
    """Return what reads JSON as `kind`; `decode` raises `msgspec.DecodeError`."""
    with _finding_out:
        return _made(kind)  # type: ignore[arg-type]


def converted(value: Any, kind: type[T]) -> T:
    """Return plain values as `kind`; `msgspec.ValidationError` where they are none."""
    decoder_of(kind)
    return msgspec.convert(value, kind)


@cache
def _made(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)
