"""Webhooks over REST and gRPC: what callers set and see, and who may."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from starlette.testclient import TestClient

from recalib.registry import Registry
from recalib.settings import Settings
from service.app import create_app
from service.webhooks.rest import create_webhook
from service.webhooks.schemas import WebhookCreate
from tests.registry.interleaving import Interleaved
from tests.service.conftest import Service
from tests.service.stubs import SERVICES, Rpc

pytestmark = pytest.mark.sqlite_only

_URL = "https://hooks.example.com/services/T0/secret-path"


def message(rpc: str, **fields: Any) -> Any:
    return SERVICES["Webhooks"].methods_by_name[rpc].input_type._concrete_class(**fields)


def created(service: Service, **fields: Any) -> dict[str, Any]:
    answer = service.client.post("/v1/webhooks", json={"url": _URL, **fields})
    assert answer.status_code == 201, answer.text
    webhook: dict[str, Any] = answer.json()
    return webhook


def delivered(registry: Registry, attempts: int, status: int = 204) -> None:
    """Claim the due deliveries, and record a refusal of the first."""
    with registry.transaction() as tx:
        lease = tx.webhooks.claim(60.0)
        assert lease is not None
        first, *others = (delivery.event.id for delivery in lease.due)
        tx.webhooks.record_refusal(lease, first, 400, "status 400: no", attempts)
        for event in others:
            tx.webhooks.record_success(lease, event, status)
        tx.webhooks.release(lease)


@pytest.mark.both_databases
def test_new_webhook_follows_a_model_that_is_renamed_meanwhile(service: Service) -> None:
    service.model()

    def rename() -> None:
        with service.registry.transaction() as tx:
            tx.edits.model(tx.models.get("digits"), "anna", name="renamed")

    other = Interleaved(service.registry, rename)
    with service.registry.transaction() as tx:
        other.start_after_write(tx)
        within: Any = SimpleNamespace(transaction=lambda: contextlib.nullcontext(tx))
        state: Any = SimpleNamespace(settings=Settings(), registry=within)
        webhook = create_webhook(WebhookCreate(url=_URL, model="digits"), state)
    other.finish()
    with service.registry.reading() as tx:
        assert tx.webhooks.get(webhook.id).model == "renamed"


@pytest.mark.both_databases
def test_webhook_is_created_changed_and_deleted(service: Service) -> None:
    """The secret is shown once, and the audit trail does not have the path of the URL."""
    client = service.client
    service.model()
    webhook = created(service, model="digits", types=["job", "alias.changed"])
    secret = webhook.pop("secret")
    assert secret.startswith("whsec_")
    where = f"/v1/webhooks/{webhook['id']}"
    shown = client.get(where).json()
    assert (shown.pop("secret"), shown) == (None, webhook)
    assert (webhook["enabled"], webhook["format"], webhook["reason"]) == (True, "recalib", "")
    changed = client.patch(where, json={"enabled": False, "url": "https://example.com/"}).json()
    assert (changed["enabled"], changed["reason"]) == (False, "by request")
    assert changed["url"] == "https://example.com/"
    assert client.patch(where, json={"enabled": True}).json()["reason"] == ""
    assert [item["id"] for item in client.get("/v1/webhooks").json()["items"]] == [webhook["id"]]
    assert client.get("/v1/webhooks?model=other").json()["items"] == []
    assert client.delete(where).status_code == 200
    assert client.get(where).status_code == 404
    audit = client.get("/v1/audit").text
    for action in ("create_webhook", "update_webhook", "delete_webhook"):
        assert action in audit
    assert "secret-path" not in audit
    assert secret not in audit


@pytest.mark.both_databases
def test_secret_is_rotated(service: Service, rpc: Rpc) -> None:
    """Only the answer has the new secret; the previous one signs for a day by default."""
    webhook = created(service)
    where = f"/v1/webhooks/{webhook['id']}"
    rotated = service.client.post(f"{where}/secret", json={}).json()
    assert rotated["secret"].startswith("whsec_")
    assert rotated["secret"] != webhook["secret"]
    until = datetime.fromisoformat(rotated["previous_secrets_until"])
    assert 0.9 < (until - datetime.now(UTC)).total_seconds() / 86_400 <= 1
    shown = service.client.get(where).json()
    assert shown == {**rotated, "secret": None}
    request = message("RotateWebhookSecret", id=webhook["id"], overlap_seconds=0)
    answer = rpc.webhooks.rotate_webhook_secret(request)
    assert answer.secret not in (webhook["secret"], rotated["secret"])
    assert not answer.HasField("previous_secrets_until")
    request = message("RotateWebhookSecret", id=webhook["id"])
    assert rpc.webhooks.rotate_webhook_secret(request).HasField("previous_secrets_until")
    audit = service.client.get("/v1/audit").text
    assert audit.count('"rotate_webhook_secret"') == 3
    assert "whsec_" not in audit


def test_repeated_creation_is_one_webhook(service: Service) -> None:
    key = {"Idempotency-Key": "k"}
    answers = [
        service.client.post("/v1/webhooks", json={"url": _URL}, headers=key).json()
        for _ in range(2)
    ]
    assert answers[0] == answers[1]
    assert len(service.client.get("/v1/webhooks").json()["items"]) == 1


def test_bad_webhooks_are_rejected(service: Service) -> None:
    service.model()
    for fields, field in (
        ({"url": "http://169.254.169.254/latest/"}, "url"),
        ({"url": "http://[::ffff:127.0.0.1]/"}, "url"),
        ({"url": "https://user:pw@example.com/"}, "url"),
        ({"types": ["job%"]}, "types"),
        ({"format": "alertmanager", "types": ["job"]}, "types"),
        ({"format": "xml"}, "format"),
        ({"secret": "mine"}, "secret"),
    ):
        answer = service.client.post("/v1/webhooks", json={"url": _URL, **fields})
        assert answer.status_code == 422, fields
        assert answer.json()["errors"][0]["field"].endswith(field)
        assert "user:pw" not in answer.text
    webhook = created(service, format="alertmanager")
    assert webhook["types"] == ["monitoring.state_changed"]
    where = f"/v1/webhooks/{webhook['id']}"
    assert service.client.patch(where, json={"url": "http://10.0.0.1/"}).status_code == 422


@pytest.mark.both_databases
def test_delivery_log_has_pages_and_an_event_is_sent_again(service: Service, rpc: Rpc) -> None:
    webhook = created(service)
    with service.registry.transaction() as tx:
        for number in range(5):
            tx.events.record(f"test.turn_{number}", None, {})
    delivered(service.registry, attempts=1)
    where = f"/v1/webhooks/{webhook['id']}/deliveries"
    page = service.client.get(where, params={"limit": 3}).json()
    rest = service.client.get(where, params={"cursor": page["next_cursor"]}).json()
    items = page["items"] + rest["items"]
    assert [item["event_id"] for item in items] == [5, 4, 3, 2, 1]
    assert (items[-1]["state"], items[-1]["status"], items[-1]["attempts"]) == ("dead", 400, 1)
    assert (items[-1]["error"], items[-1]["type"]) == ("status 400: no", "test.turn_0")
    assert items[0]["next_attempt_at"] is None
    dead = service.client.get(where, params={"delivery_state": "dead"}).json()["items"]
    assert dead == items[-1:]
    assert service.client.post(f"{where}/1").status_code == 202
    assert service.client.post(f"{where}/6").status_code == 404
    pending = rpc.webhooks.list_deliveries(
        message("ListDeliveries", id=webhook["id"], state=1)
    ).items
    assert [(item.event_id, item.attempts) for item in pending] == [(1, 0)]
    rpc.webhooks.redeliver(message("Redeliver", id=webhook["id"], event_id=2))
    pending = rpc.webhooks.list_deliveries(
        message("ListDeliveries", id=webhook["id"], state=1, limit=1)
    )
    assert [item.event_id for item in pending.items] == [2]
    assert pending.next_cursor


def test_grpc_webhooks_are_those_of_rest(service: Service, rpc: Rpc) -> None:
    service.model()
    request = message("CreateWebhook", url=_URL, model="digits", types=["job"], format=1)
    webhook = rpc.webhooks.create_webhook(request)
    assert webhook.secret.startswith("whsec_")
    shown = service.client.get(f"/v1/webhooks/{webhook.id}").json()
    assert (shown["format"], shown["model"], shown["types"]) == ("slack", "digits", ["job"])
    changed = rpc.webhooks.update_webhook(message("UpdateWebhook", id=webhook.id, enabled=False))
    assert (changed.enabled, changed.url, changed.HasField("secret")) == (False, _URL, False)
    assert [item.id for item in rpc.webhooks.list_webhooks(message("ListWebhooks")).items] == [
        webhook.id
    ]
    assert rpc.webhooks.get_webhook(message("GetWebhook", id=webhook.id)) == changed
    rpc.webhooks.delete_webhook(message("DeleteWebhook", id=webhook.id))
    with pytest.raises(grpc.RpcError) as error:
        rpc.webhooks.get_webhook(message("GetWebhook", id=webhook.id))
    assert error.value.code() is grpc.StatusCode.NOT_FOUND


@pytest.fixture
def guarded(registry: Registry, database_url: str, blob_url: str) -> Iterator[Any]:
    settings = Settings(
        database_url=database_url,
        blob_url=blob_url,
        grpc_port=-1,
        require_keys=True,
        webhook_targets="10.0.0.0/8",
    )
    with registry.transaction() as tx:
        for name in ("a", "b"):
            tx.models.create(name, None, 2, "test")
        secrets = {
            "all": tx.api_keys.create("all", ["admin"]),
            "a": tx.api_keys.create("a", ["admin"], ["a"]),
            "fit": tx.api_keys.create("fit", ["fit"]),
        }
    with TestClient(create_app(settings), raise_server_exceptions=False) as client:
        client.keys = {
            name: {"Authorization": f"Bearer {secret}"} for name, secret in secrets.items()
        }
        yield client


def test_a_key_sees_only_webhooks_of_its_models(guarded: Any) -> None:
    """For another key a webhook does not exist; a listed private address is accepted."""
    keys = guarded.keys
    webhooks = {}
    for model in ("a", "b", None):
        body = {"url": "http://10.1.2.3:9000/", "model": model}
        for key, status in (("fit", 403), ("a", 201 if model == "a" else 403)):
            answer = guarded.post("/v1/webhooks", json=body, headers=keys[key])
            assert answer.status_code == status, (key, model)
        webhooks[model] = guarded.post("/v1/webhooks", json=body, headers=keys["all"]).json()["id"]
    for model, id_ in webhooks.items():
        status = 200 if model == "a" else 404
        for path in ("", "/deliveries"):
            answer = guarded.get(f"/v1/webhooks/{id_}{path}", headers=keys["a"])
            assert answer.status_code == status
        change = guarded.patch(f"/v1/webhooks/{id_}", json={}, headers=keys["a"])
        assert change.status_code == status
        deleted = guarded.delete(f"/v1/webhooks/{id_}", headers=keys["a"])
        assert deleted.status_code == status
    assert guarded.get("/v1/webhooks", headers=keys["a"]).status_code == 403
    assert len(guarded.get("/v1/webhooks?model=a", headers=keys["a"]).json()["items"]) == 1
    assert guarded.get("/v1/webhooks", headers=keys["fit"]).status_code == 403
