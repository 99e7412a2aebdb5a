"""Types of the fields of settings: ranges, whole numbers, JSON Schema keywords.

A range is an `Interval` of numbers or a `Literal` of words. pydantic reads the same types, so a
dataclass is its own JSON Schema; nothing here imports pydantic.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, field
from functools import cache
from numbers import Real
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from annotated_types import Interval

from recalib.errors import InputError

_WORDS = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}

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


class _Number:
    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core.core_schema import no_info_before_validator_function

        schema = {**handler(source), "strict": True}
        is_integer = schema["type"] == "int"
        return no_info_before_validator_function(_int_of_float, schema) if is_integer else schema


#: A number of JSON: no text, neither true nor false, and 4.0 for a whole number, as some encoders
#: write 4. It follows the bounds in an annotation, or the OpenAPI document would lose them.
NUMBER = _Number()


def setting(default: Any, description: str) -> Any:
    """Return a field of a dataclass, with the description of its JSON Schema."""
    return field(default=default, metadata={"description": description})


def check_fields(options: Any, prefix: str = "options.") -> None:
    """Raise `InputError` for a field of a dataclass that is outside the range of its type."""
    for name, (limit, is_optional) in _limits(options.__class__).items():
        value = getattr(options, name)
        if value is None and is_optional:
            continue
        if isinstance(limit, Interval):
            legal, accepted = _is_inside(value, limit), describe_range(limit)
        else:
            legal, accepted = value in limit, ", ".join(map(str, limit))
        if not legal:
            found = f"{value:g}" if isinstance(value, Real) else repr(value)[:80]
            raise InputError(prefix + name, found=found, accepted=accepted)


def describe_range(interval: Interval) -> str:
    """Return an interval in words.

    >>> describe_range(Interval(gt=0, lt=1))
    'above 0 and below 1'
    """
    return " and ".join(f"{_WORDS[name]} {bound:g}" for name, bound in _bounds(interval))


def _is_inside(value: object, interval: Interval) -> bool:
    is_number = isinstance(value, Real) and math.isfinite(value)
    return is_number and all(
        getattr(operator, name)(value, bound) for name, bound in _bounds(interval)
    )


def _bounds(interval: Interval) -> list[tuple[str, Any]]:
    bounds = ((name, getattr(interval, name)) for name in _WORDS)
    return [(name, bound) for name, bound in bounds if bound is not None]


@cache
def _limits(kind: type) -> dict[str, tuple[Any, bool]]:
    """Return the interval or the words of each field that has them, and whether None is legal."""
    limits: dict[str, tuple[Any, bool]] = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        parts = (hint, *get_args(hint))
        is_optional = type(None) in parts
        for part in parts:
            if get_origin(part) is Literal:
                limits[name] = get_args(part), is_optional
            for limit in getattr(part, "__metadata__", ()):
                if isinstance(limit, Interval):
                    limits[name] = limit, is_optional
    return limits


def _int_of_float(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value
