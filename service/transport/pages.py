"""Lists in pages: `?limit=` and an opaque `?cursor=` that the page before handed out."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated

from fastapi import Query

from recalib.errors import InputError
from recalib.registry import is_name

__all__ = ["Cursor", "Limit", "decode_cursor", "encode_cursor"]

Limit = Annotated[int, Query(ge=1, le=1000, description="Most items of one page.")]
Cursor = Annotated[
    str | None, Query(max_length=512, description="`next_cursor` of the page before.")
]


def encode_cursor(position: str | None) -> str | None:
    """Return where the next page begins, opaque, or None after the last."""
    return None if position is None else base64.urlsafe_b64encode(position.encode()).decode()


def decode_cursor(cursor: str | None) -> str | None:
    """Return the position in `cursor`; `InputError` if no page ever handed it out."""
    if cursor is None:
        return None
    try:
        position = base64.b64decode(cursor, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        position = ""
    # Names, versions and ids of jobs are all names.
    if not is_name(position):
        raise InputError("cursor", found="something else", accepted="next_cursor of a page")
    return position
