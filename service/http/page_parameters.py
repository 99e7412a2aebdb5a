"""Lists in pages: `?limit=` and an opaque `?cursor=` that the page before handed out."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

__all__ = ["Cursor", "Limit"]

Limit = Annotated[int, Query(ge=1, le=1000, description="Most items of one page.")]
Cursor = Annotated[
    str | None, Query(max_length=512, description="`next_cursor` of the page before.")
]
