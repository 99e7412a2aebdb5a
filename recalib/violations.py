"""pydantic's violations in the words of `InputError`: what was found, and what is accepted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["accepted_values"]

#: For the kinds whose message does not name accepted values.
_BY_KIND = {
    "extra_forbidden": "no field of this name",
    "json_invalid": "JSON",
    "missing": "a value: the field is required",
}


def accepted_values(violation: Mapping[str, Any]) -> str:
    """Return what is accepted, from an entry of `ValidationError.errors()`.

    >>> accepted_values({"type": "greater_than", "msg": "Input should be greater than 0"})
    'greater than 0'
    """
    text = _BY_KIND.get(violation["type"]) or str(violation["msg"])
    return text.removeprefix("Input should be ").removeprefix("Value error, ")
