"""Compression of bodies (`Content-Encoding`, `Accept-Encoding`): gzip and deflate."""

from __future__ import annotations

import gzip
import zlib

from recalib.errors import InputError, TooLargeError, UnsupportedError

#: `wbits` of zlib: 31 for gzip, 15 for the zlib format, which HTTP calls deflate.
_WINDOWS = {"gzip": 31, "deflate": 15}
#: The fastest level: slower ones compress floats hardly better.
_LEVEL = 1


def decompress(body: bytes, encoding: str, limit: int) -> bytes:
    """Return the decompressed body, of at most `limit` bytes.

    Raises
    ------
    UnsupportedError: an unknown encoding.
    InputError: the body is not in this encoding, or is truncated.
    TooLargeError: more than `limit` bytes; the rest is not decompressed.
    """
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return body
    if name not in _WINDOWS:
        accepted = ", ".join((*_WINDOWS, "identity"))
        raise UnsupportedError("Content-Encoding", found=name[:40], accepted=accepted)
    stream = zlib.decompressobj(_WINDOWS[name])
    try:
        plain = stream.decompress(body, limit + 1)
    except zlib.error as error:
        raise InputError("body", found=str(error)[:80], accepted=name) from None
    if len(plain) > limit:
        raise TooLargeError(
            "body", found=f"over {limit} bytes, decompressed", accepted=f"at most {limit} bytes"
        )
    if not stream.eof or stream.unused_data:
        raise InputError("body", found=f"{name} cut short or followed by more", accepted=name)
    return plain


def encoding_for(accept: str) -> str | None:
    """Return the encoding of the response, or None: no compression.

    A response is compressed only if `accept` names a single encoding. Most HTTP libraries list
    several by default; for these clients, compression costs more time than it saves.
    """
    name = accept.strip().lower()
    return name if name in _WINDOWS else None


def compress(body: bytes, encoding: str) -> bytes:
    """Return the body in `encoding`, a result of `encoding_for`."""
    if encoding == "gzip":
        return gzip.compress(body, _LEVEL, mtime=0)
    return zlib.compress(body, _LEVEL)
