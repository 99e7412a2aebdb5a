"""Field types of schemas: names, storable text, whole numbers."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from recalib.core.field_types import STORABLE, Documented, Interval

#: The largest integer of the database.
MAX_VERSION = 2**31 - 1


#: An alias: a name that does not consist of digits only.
ALIAS = Documented(
    {
        "pattern": r"^([A-Za-z]|[0-9]+[A-Za-z._\-])[A-Za-z0-9._\-]*$",
        "maxLength": 128,
    }
)


def _storable(text: str) -> str:
    # PostgreSQL text cannot hold NUL, and a lone surrogate has no UTF-8.
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise PydanticCustomError("text", "text of Unicode characters other than NUL")
    return text


Text = Annotated[str, AfterValidator(_storable), STORABLE]


#: A number or an alias of a version.
Version = Annotated[int, Interval(ge=1, le=MAX_VERSION)] | Text
VERSION_DESCRIPTION = (
    "A number or an alias of a version. An alias means the version that it points to now."
)
