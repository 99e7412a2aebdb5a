"""Text that can be kept: in both databases, and in an answer."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

__all__ = ["Text"]


def _storable(text: str) -> str:
    # PostgreSQL has no NUL in its text, and half of a surrogate pair has no UTF-8.
    if "\0" in text or any("\ud800" <= one <= "\udfff" for one in text):
        raise PydanticCustomError("text", "text of Unicode characters other than NUL")
    return text


Text = Annotated[str, AfterValidator(_storable)]
