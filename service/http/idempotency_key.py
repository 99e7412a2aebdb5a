"""The header `Idempotency-Key`."""

from __future__ import annotations

from typing import Annotated

from fastapi import Header

IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=255,
        description="A unique text for each new request. Repeating a request with the same key "
        "returns the first response and has no further effect.",
    ),
]
