"""The query parameter `force` of deletions."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

Force = Annotated[
    bool,
    Query(
        description="Cancel the jobs that use it first, and delete a model or an alias although it "
        "is a champion. It requires the scope `admin`."
    ),
]
