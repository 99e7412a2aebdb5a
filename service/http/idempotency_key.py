"""`Idempotency-Key`, a header."""

from __future__ import annotations

from typing import Annotated

from fastapi import Header

__all__ = ["IdempotencyKey"]

IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=255,
        description="Any text that is new for each new request: repeating a request under the "
        "same key returns the first answer and has no further effect.",
    ),
]
