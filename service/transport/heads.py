"""Heads of requests that have been read before: clients send the same one thousands of times.

Everything before a body, byte for byte the same, means the same. So what the parser made of it is
kept, and the next request with it needs no parser: only what depends on time is asked again, such
as whether a key still counts.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from service.transport.request_ids import names_itself
from service.transport.short import Way

__all__ = ["Head", "Heads"]

#: What a head ends with.
_END = b"\r\n\r\n"
#: Bytes of a head that is kept, and how many are, which together is about a megabyte.
_LONGEST, _MOST = 2048, 256


class Head(msgspec.Struct, frozen=True):
    """What stands before the body of a request on a short way."""

    way: Way
    #: What stands in the path at each of the template's names.
    path: Mapping[str, str]
    query: Mapping[str, str]
    #: Its target, as errors are written for it.
    target: str
    #: By name.
    headers: Mapping[bytes, bytes]
    #: Lines that it has, but for the empty one.
    lines: int
    #: Whether the connection outlives the answer.
    stays: bool


class _Kept(msgspec.Struct, frozen=True):
    head: Head
    #: Of the body, in bytes.
    length: int


class Heads:
    """What is kept of a process's requests."""

    def __init__(self) -> None:
        self._kept: dict[bytes, _Kept] = {}

    def of_whole(self, data: bytes) -> tuple[Head, bytes] | None:
        """Return head and body where `data` is one request, and its head has been kept."""
        end = data.find(_END, 0, _LONGEST) + len(_END)
        kept = self._kept.get(data[:end])
        if kept is None or len(data) - end != kept.length:
            return None
        return kept.head, data[end:]

    def keep(self, data: bytes, head: Head, body: bytes) -> None:
        """Keep the head of a request.

        Parameters
        ----------
        data: the bytes that came with its beginning.
        head, body: what a parser has made of it.
        """
        end = data.find(_END, 0, _LONGEST) + len(_END)
        if (
            # One that has a name of its own does not come again.
            not names_itself(head.headers)
            and head.headers.get(b"content-length") == b"%d" % len(body)
            and len(data) - end == len(body)
            # Had the parser seen the end elsewhere, there were more lines.
            and data.count(b"\n", 0, end) == head.lines + 1
        ):
            if len(self._kept) >= _MOST:
                self._kept.clear()
            self._kept[data[:end]] = _Kept(head, len(body))
