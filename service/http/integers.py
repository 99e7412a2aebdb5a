"""Whole numbers in JSON, which knows one kind of number: 4.0 is 4, and 4.5 is none."""

from __future__ import annotations

from typing import Any

from pydantic import BeforeValidator

__all__ = ["WHOLE"]


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


#: As JSON Schema has `integer`; strict types would refuse 4.0, which some encoders write for 4.
#: It stands behind a type's bounds, or the description would lose them.
WHOLE = BeforeValidator(_whole)
