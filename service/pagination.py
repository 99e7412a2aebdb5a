"""Lists in pages: an opaque cursor is the start of the next page."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from recalib.errors import InputError
from recalib.registry import is_name

T = TypeVar("T")
P = TypeVar("P")


def next_cursor(rows: Sequence[T], limit: int, position: Callable[[T], str]) -> str | None:
    """Return the opaque start of the next page, or None after the last page.

    Parameters
    ----------
    rows: up to `limit` + 1 items; the last shows that there is another page.
    position: of an item, in the order of the list.
    """
    if len(rows) <= limit:
        return None
    return base64.urlsafe_b64encode(position(rows[limit - 1]).encode()).decode()


def page_of(
    kind: Callable[..., P],
    rows: Sequence[T],
    limit: int,
    position: Callable[[T], str],
    item: Callable[[T], Any] = lambda row: row,
) -> P:
    """Return the page `kind` with up to `limit` items.

    The other parameters are those of `next_cursor`; `item` returns the wire form of a row that is
    not a resource.
    """
    cursor = next_cursor(rows, limit, position)
    return kind(items=[item(row) for row in rows[:limit]], next_cursor=cursor)


def decode_cursor(cursor: str | None) -> str | None:
    """Return the position in `cursor`; `InputError` if no page ever handed it out."""
    if cursor is None:
        return None
    try:
        position = base64.b64decode(cursor, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        position = ""
    if not is_name(position):  # a number is a name too
        raise _foreign_cursor()
    return position


def decode_number(cursor: str | None, *, max_digits: int = 18) -> int | None:
    """Return the number in `cursor`; raises as `decode_cursor`."""
    position = decode_cursor(cursor)
    if position is None:
        return None
    if not re.fullmatch(rf"[0-9]{{1,{max_digits}}}", position):
        raise _foreign_cursor()
    return int(position)


def _foreign_cursor() -> InputError:
    return InputError("cursor", found="something else", accepted="next_cursor of a page")
