"""Types of the fields of settings: ranges, whole numbers, JSON Schema keywords.

A type has an `Interval` of numbers, or is a `Literal` of words. pydantic reads the same types, so a
dataclass is its own JSON Schema; nothing here imports pydantic.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from recalib.errors import InputError


@dataclass(frozen=True)
class Interval:
    """The finite numbers above `gt` or from `ge` on, and below `lt` or up to `le`.

    pydantic takes no text, neither true nor false, and 4.0 for a whole number, as `integer` in JSON
    Schema does; some encoders write 4.0 for 4.

    >>> 0.5 in Interval(gt=0, lt=1)
    True
    >>> str(Interval(gt=0, lt=1))
    'above 0 and below 1'
    """

    gt: float | None = None
    ge: float | None = None
    lt: float | None = None
    le: float | None = None

    def __contains__(self, value: Any) -> bool:
        """Return whether a value is a number in the range."""
        try:
            is_finite = math.isfinite(value)
        except TypeError:
            return False
        return (
            is_finite
            and (self.gt is None or value > self.gt)
            and (self.ge is None or value >= self.ge)
            and (self.lt is None or value < self.lt)
            and (self.le is None or value <= self.le)
        )

    def __str__(self) -> str:
        words = {"above": self.gt, "at least": self.ge, "below": self.lt, "at most": self.le}
        return " and ".join(
            f"{word} {bound:g}" for word, bound in words.items() if bound is not None
        )

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Return the schema of a number with the bounds."""
        from pydantic_core.core_schema import no_info_before_validator_function

        bounds = {name: bound for name, bound in vars(self).items() if bound is not None}
        schema = {**handler(source), **bounds, "strict": True}
        is_integer = schema["type"] == "int"
        return no_info_before_validator_function(_int_of_float, schema) if is_integer else schema


Positive = Annotated[float, Interval(gt=0)]
NonNegative = Annotated[float, Interval(ge=0)]
AtLeastOne = Annotated[float, Interval(ge=1)]
Fraction = Annotated[float, Interval(gt=0, lt=1)]
Count = Annotated[int, Interval(ge=1)]


@dataclass(frozen=True)
class Documented:
    """JSON Schema keywords that are only documented: other code checks them, with better errors."""

    keywords: dict[str, Any] = field(hash=False)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        """Return pydantic's schema with the keywords."""
        return {**handler(schema), **self.keywords}


#: A name, as `recalib.core.resource_names` checks it; a test keeps the two consistent.
NAME = Documented({"pattern": r"^[A-Za-z0-9][A-Za-z0-9._\-]*$", "maxLength": 128})
#: Text that a database stores.
STORABLE = Documented({"pattern": r"^[^\u0000]*$"})
UNIQUE = Documented({"uniqueItems": True})


def check_fields(options: Any, prefix: str = "options.") -> None:
    """Raise `InputError` for a field of a dataclass that is outside the range of its type."""
    for name, accepted, is_optional in _accepted_values(options.__class__):
        value = getattr(options, name)
        if value not in accepted and not (is_optional and value is None):
            found = f"{value:g}" if isinstance(value, int | float) else repr(value)[:80]
            text = (
                str(accepted) if isinstance(accepted, Interval) else ", ".join(map(str, accepted))
            )
            raise InputError(prefix + name, found=found, accepted=text)


@cache
def _accepted_values(kind: type) -> list[tuple[str, Any, bool]]:
    """Return the interval or the words of each field that has them, and whether None is legal."""
    hints, limits = get_type_hints(kind, include_extras=True), []
    for name in (option.name for option in dataclasses.fields(kind)):
        parts = (hints[name], *get_args(hints[name]))
        accepted = [get_args(part) for part in parts if get_origin(part) is Literal]
        accepted += [item for part in parts for item in _intervals(part)]
        limits += [(name, values, type(None) in parts) for values in accepted]
    return limits


def _intervals(hint: Any) -> list[Any]:
    return [item for item in getattr(hint, "__metadata__", ()) if isinstance(item, Interval)]


def _int_of_float(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value
