"""Field types of schemas: names, storable text, whole numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError

#: The largest integer of the database.
MAX_VERSION = 2**31 - 1


@dataclass(frozen=True)
class Documented:
    """JSON Schema keywords that are only documented: other code checks them, with better errors."""

    keywords: dict[str, Any] = field(hash=False)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Return pydantic's schema with the keywords."""
        return {**handler(schema), **self.keywords}


#: A name, as `recalib.registry` checks it; a test keeps the two consistent.
NAME = Documented({"pattern": r"^[A-Za-z0-9][A-Za-z0-9._\-]*$", "maxLength": 128})
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


#: ISO 8601, in UTC.
Time = Annotated[str, Documented({"format": "date-time"})]

Text = Annotated[str, AfterValidator(_storable), Documented({"pattern": r"^[^\u0000]*$"})]


def _integral_float_to_int(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


#: Accepts 4.0 as 4, as `integer` in JSON Schema does; some encoders write 4.0 for 4. It follows the
#: bounds in an annotation, or the OpenAPI document would lose them.
INTEGRAL = BeforeValidator(_integral_float_to_int)

#: A number or an alias of a version. Strict: `true` is no number.
Version = Annotated[int, Field(strict=True, ge=1, le=MAX_VERSION), INTEGRAL] | Text
VERSION_DESCRIPTION = (
    "A number or an alias of a version. An alias means the version that it points to now."
)
