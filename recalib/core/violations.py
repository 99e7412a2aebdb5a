"""pydantic's violations in the words of `InputError`: what was found, and what is accepted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

#: For the kinds whose message does not name accepted values.
_BY_KIND = {
    "extra_forbidden": "no field of this name",
    "json_invalid": "JSON",
    "unexpected_keyword_argument": "no field of this name",
    "missing": "a value: the field is required",
}


def accepted_values(violation: Mapping[str, Any]) -> str:
    """Return what is accepted, from an entry of `ValidationError.errors()`.

    >>> accepted_values({"type": "greater_than", "msg": "Input should be greater than 0"})
    'greater than 0'
    >>> message = "Input should be a valid integer, unable to parse string as an integer"
    >>> accepted_values({"type": "int_parsing", "msg": message})
    'a valid integer'
    """
    text = _BY_KIND.get(violation["type"]) or str(violation["msg"])
    text = text.removeprefix("Value error, ")
    if text.startswith("Input should be a valid "):
        # What follows the comma repeats what was found.
        text = text.partition(", ")[0]
    text = re.sub(r"^\w+ should (be|have|match) ", "", text)
    return text.partition(" after validation")[0]
