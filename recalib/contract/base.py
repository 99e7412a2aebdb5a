"""What all resources share: times, lists, and keywords that are only documented."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Generic, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, PlainSerializer

from recalib.core.field_types import Documented

T = TypeVar("T")


class Resource(BaseModel):
    """A resource: immutable, and readable from JSON or from the attributes of a record."""

    # Built on first use: most programs with a client use few resources.
    model_config = ConfigDict(
        frozen=True, from_attributes=True, defer_build=True, val_temporal_unit="seconds"
    )


def one_of(literal: Any) -> Documented:
    """Return the values of a Literal as an enumeration; a client accepts those of a later server.

    >>> one_of(Literal["a", "b"]).keywords
    {'enum': ['a', 'b']}
    """
    return Documented({"enum": list(get_args(literal))})


def utc(seconds: float) -> datetime:
    """Return the time of `seconds` since 1970."""
    return datetime.fromtimestamp(seconds, UTC)


def _to_iso(time: datetime) -> str:
    return time.isoformat(timespec="milliseconds")


#: ISO 8601 with milliseconds, in UTC; records have seconds since 1970.
Time = Annotated[
    datetime,
    PlainSerializer(_to_iso, when_used="json"),
    Documented({"format": "date-time"}),
]


class Items(Resource, Generic[T]):
    """A complete list."""

    #: The items.
    items: list[T]


class Page(Items[T], Generic[T]):
    """A page of a list, and the cursor of the next page; None on the last one."""

    #: `cursor` of the next page; null on the last one.
    next_cursor: str | None
