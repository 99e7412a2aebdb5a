"""Formats of webhook messages.

- `recalib`: the event as in the API;
- `slack`: a line of text, as incoming webhooks of Slack, Mattermost and others take it;
- `alertmanager`: what Alertmanager sends to its webhook receivers (version 4). Only changes of a
  monitoring state have this form: `suspect` and `stale` fire an alert, the other states resolve it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

from recalib.core.event_text import event_text

if TYPE_CHECKING:
    from recalib.contract.events import Event

Format = Literal["recalib", "slack", "alertmanager"]
FORMATS: tuple[Format, ...] = ("recalib", "slack", "alertmanager")
#: The type of the events that have the format `alertmanager`.
STATE_CHANGED = "monitoring.state_changed"

_NO_END = "0001-01-01T00:00:00Z"


def message_of(event: Event, format: str) -> bytes:
    """Return the body of the message about an event, in JSON; `format` is one of `FORMATS`."""
    body = {"recalib": _event, "slack": _slack, "alertmanager": _alertmanager}[format](event)
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def _event(event: Event) -> dict[str, Any]:
    fields = {"type": event.type, "model": event.model, "data": event.data}
    return {"id": event.id, "at": _time(event), **fields}


def _slack(event: Event) -> dict[str, Any]:
    text = event_text(event.type, event.model, event.data)
    # https://api.slack.com/reference/surfaces/formatting#escaping
    for character, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(character, entity)
    return {"text": text}


def _alertmanager(event: Event) -> dict[str, Any]:
    state, at = event.data.get("state"), _time(event)
    status = "firing" if state in ("suspect", "stale") else "resolved"
    # Not the state or the version: a resolved alert must have the labels of the fired alert.
    labels = {"alertname": "CalibrationState", "model": event.model or ""}
    annotations = {
        "summary": event_text(event.type, event.model, event.data),
        "state": str(state),
        "version": str(event.data.get("version")),
    }
    drift = (event.data.get("evidence") or {}).get("alert")
    if drift:
        annotations |= {"description": drift["summary"], "command": drift["command"]}
        annotations |= {"runbook_url": drift["runbook"], "dashboard_url": drift["dashboard"]}
    alert = {
        "status": status,
        "labels": labels,
        "annotations": annotations,
        "startsAt": at,
        "endsAt": _NO_END if status == "firing" else at,
        "generatorURL": "",
        "fingerprint": "",
    }
    return {
        "version": "4",
        "groupKey": f'{{}}:{{alertname="CalibrationState", model="{event.model}"}}',
        "truncatedAlerts": 0,
        "status": status,
        "receiver": "recalib",
        "groupLabels": labels,
        "commonLabels": labels,
        "commonAnnotations": annotations,
        "externalURL": "",
        "alerts": [alert],
    }


def _time(event: Event) -> str:
    return event.at.isoformat(timespec="milliseconds")
