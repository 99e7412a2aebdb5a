"""Heads of requests that have been read before: clients send the same one thousands of times.

Everything before a body, byte for byte the same, means the same. So what the parser made of it is
kept, and the next request with it needs no parser: only what depends on time is asked again, such
as whether a key still counts.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from service.http.fast_routes import Way
from service.request_ids import names_itself

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
    #: Of the body, in bytes.
    length: int
    #: Whether the connection outlives the answer.
    stays: bool


class Heads:
    """What is kept of a process's requests."""

    def __init__(self) -> None:
        self._kept: dict[bytes, Head] = {}

    def of_whole(self, data: bytes) -> tuple[Head, bytes] | None:
        """Return head and body where `data` is one request, and its head has been kept."""
        end = data.find(_END, 0, _LONGEST) + len(_END)
        head = self._kept.get(data[:end])
        if head is None or len(data) - end != head.length:
            return None
        return head, data[end:]

    def keep(self, data: bytes, head: Head, headers: int) -> None:
        """Keep the head of a request.

        Parameters
        ----------
        data: the bytes that came with its beginning.
        head: what a parser has made of it.
        headers: how many the parser has seen, those that came twice counted twice.
        """
        end = data.find(_END, 0, _LONGEST) + len(_END)
        if (
            # One that has a name of its own does not come again.
            not names_itself(head.headers)
            and head.headers.get(b"content-length") == b"%d" % head.length
            and len(data) - end == head.length
            # Had the parser seen the end elsewhere, there were more lines than these, the first
            # and the empty one.
            and data.count(b"\n", 0, end) == headers + 2
        ):
            if len(self._kept) >= _MOST:
                self._kept.clear()
            self._kept[data[:end]] = head
