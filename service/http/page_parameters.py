"""Pagination parameters: `?limit=` and the opaque `?cursor=` from the previous page."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

Limit = Annotated[int, Query(ge=1, le=1000, description="Maximum number of items of a page.")]
Cursor = Annotated[
    str | None, Query(max_length=512, description="`next_cursor` of the previous page.")
]
