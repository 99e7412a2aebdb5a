"""Formats of messages, and their signature."""

from __future__ import annotations

import json
import time

import pytest
from standardwebhooks import Webhook
from standardwebhooks.webhooks import WebhookVerificationError

from recalib.contract.base import utc
from recalib.contract.events import Event
from recalib.webhooks import FORMATS, encode_secret, message_of, signature_headers

_STALE = Event(
    id=7,
    at=utc(1_772_600_767.125),
    type="monitoring.state_changed",
    model="resnet",
    data={"state": "stale", "version": 3, "actor": "monitor", "reason": "2% < 5% & <more>"},
)


def test_event_is_in_each_format() -> None:
    bodies = {name: json.loads(message_of(_STALE, name)) for name in FORMATS}
    at = "2026-03-04T05:06:07.125+00:00"
    assert bodies["recalib"] == {
        "id": 7,
        "at": at,
        "type": "monitoring.state_changed",
        "model": "resnet",
        "data": _STALE.data,
    }
    assert bodies["slack"] == {
        "text": "monitoring.state_changed of resnet: state stale, version 3, actor monitor; "
        "2% &lt; 5% &amp; &lt;more&gt;"
    }
    message = bodies["alertmanager"]
    (alert,) = message["alerts"]
    assert (message["version"], message["status"], alert["status"]) == ("4", "firing", "firing")
    assert alert["labels"] == {"alertname": "CalibrationState", "model": "resnet"}
    assert (alert["startsAt"], alert["endsAt"]) == (at, "0001-01-01T00:00:00Z")
    assert alert["annotations"]["state"] == "stale"


def test_alert_is_in_each_format() -> None:
    """The drift, the next command, and URLs that are clicked."""
    alert = {
        "summary": "too sure by 7.1 points",
        "command": "recalib rollback m --server https://recalib.example.com",
        "runbook": "https://runbooks.example.com/recalib#calibratorstale",
        "dashboard": "https://grafana.example.com/d/recalib-calibration?var-model=m",
    }
    data = {**_STALE.data, "evidence": {"alert": alert}}
    event = Event(id=7, at=_STALE.at, type=_STALE.type, model="m", data=data)
    bodies = {name: json.loads(message_of(event, name)) for name in FORMATS}
    assert bodies["recalib"]["data"]["evidence"]["alert"] == alert
    for text in alert.values():
        assert text in bodies["slack"]["text"]
        assert text in bodies["alertmanager"]["alerts"][0]["annotations"].values()


def test_fresh_state_resolves_the_alert() -> None:
    """It has the labels and the group of the alert that fired, although the version differs."""
    fresh = Event(
        id=8,
        at=_STALE.at,
        type=_STALE.type,
        model="resnet",
        data={"state": "fresh", "version": 4},
    )
    fired, resolved = (json.loads(message_of(event, "alertmanager")) for event in (_STALE, fresh))
    assert resolved["status"] == resolved["alerts"][0]["status"] == "resolved"
    assert resolved["alerts"][0]["endsAt"] == resolved["alerts"][0]["startsAt"]
    for name in ("groupKey", "groupLabels", "commonLabels"):
        assert fired[name] == resolved[name]


def test_signature_is_verified_by_another_implementation() -> None:
    secret, body, now = bytes(range(32)), b'{"id":7,"model":"\xc3\xa4"}', int(time.time())
    verifier = Webhook(encode_secret(secret))
    headers = signature_headers([secret], "event-7", now, body)
    assert verifier.verify(body, headers) == {"id": 7, "model": "ä"}
    for changed, forged in (
        (body + b" ", headers),
        (body, {**headers, "webhook-id": "event-8"}),
        (body, signature_headers([secret], "event-7", now - 3600, body)),
        (body, signature_headers([bytes(32)], "event-7", now, body)),
    ):
        with pytest.raises(WebhookVerificationError):
            verifier.verify(changed, forged)


def test_message_of_two_secrets_is_verified_by_either() -> None:
    secrets, body, now = (bytes(range(32)), bytes(32)), b"{}", int(time.time())
    headers = signature_headers(secrets, "event-7", now, body)
    for secret in secrets:
        assert Webhook(encode_secret(secret)).verify(body, headers) == {}
    with pytest.raises(WebhookVerificationError):
        Webhook(encode_secret(b"x" * 32)).verify(body, headers)
