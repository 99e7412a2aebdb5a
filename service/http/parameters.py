"""Parameters of many routes: pages of lists, idempotency keys, and `force` of deletions."""

from __future__ import annotations

from typing import Annotated

from fastapi import Header, Query

Limit = Annotated[int, Query(ge=1, le=1000, description="Maximum number of items of a page.")]
#: The opaque start of a page.
Cursor = Annotated[
    str | None, Query(max_length=512, description="`next_cursor` of the previous page.")
]
#: The header `Idempotency-Key`.
IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=255,
        description="A unique text for each new request. Repeating a request with the same key "
        "returns the first response and has no further effect.",
    ),
]
Force = Annotated[
    bool,
    Query(
        description="Cancel the jobs that use it first, and delete a model or an alias although it "
        "is a champion. It requires the scope `admin`."
    ),
]
