"""An event in one line, for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Details that a line shows, in this order.
_DETAILS = ("name", "state", "warning", "kind", "job", "alias", "version", "from_version", "actor")


def event_text(type: str, model: str | None, data: Mapping[str, Any]) -> str:
    """Return type, model, details, reason and alert of an event."""
    details = [f"{name} {data[name]}" for name in _DETAILS if data.get(name) is not None]
    line = type if model is None else f"{type} of {model}"
    if details:
        line += f": {', '.join(details)}"
    reason = data.get("error") or data.get("reason")
    alert = (data.get("evidence") or {}).get("alert")
    texts = [line, reason]
    if alert:
        texts += [alert["summary"], f"next: {alert['command']}"]
        texts += [alert["runbook"], alert["dashboard"]]
    return "; ".join(text for text in texts if text)
