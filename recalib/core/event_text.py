"""An event in one line, for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Details that a line shows, in this order.
_DETAILS = ("name", "state", "kind", "job", "alias", "version", "from_version", "actor")


def event_text(type: str, model: str | None, data: Mapping[str, Any]) -> str:
    """Return type, model, details and reason of an event."""
    details = [f"{name} {data[name]}" for name in _DETAILS if data.get(name) is not None]
    line = type if model is None else f"{type} of {model}"
    if details:
        line += f": {', '.join(details)}"
    reason = data.get("error") or data.get("reason")
    return f"{line}; {reason}" if reason else line
