"""gzip and deflate, as `Content-Encoding` and `Accept-Encoding` have them."""

from __future__ import annotations

import gzip
import zlib

from recalib.errors import InputError, TooLargeError, UnsupportedError

__all__ = ["compressed", "decompressed", "encoding_for"]

#: For zlib: 31 reads gzip's header, 15 that of zlib, which HTTP calls deflate.
_WINDOWS = {"gzip": 31, "deflate": 15}
#: The fastest: digits of floats give little more to the slower ones.
_LEVEL = 1


def decompressed(body: bytes, encoding: str, limit: int) -> bytes:
    """Return a body as it was before `encoding`, of at most `limit` bytes.

    Raises
    ------
    UnsupportedError: another encoding.
    InputError: not what it says, or cut short.
    TooLargeError: more than `limit`; no more than that is ever in memory.
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
    """Return the encoding to answer in: one that a client asks for by itself.

    Most libraries offer several without being told to; for their answers, compression costs more
    time than it saves.
    """
    name = accept.strip().lower()
    return name if name in _WINDOWS else None


def compressed(body: bytes, encoding: str) -> bytes:
    """Return `body` in `encoding`, which `encoding_for` gave."""
    if encoding == "gzip":
        return gzip.compress(body, _LEVEL, mtime=0)
    return zlib.compress(body, _LEVEL)
