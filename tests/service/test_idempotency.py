"""Repeated requests: every change accepts an idempotency key, over REST and gRPC."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from service.operations import OPERATIONS
from tests.service.conftest import Service
from tests.service.documented import answers, operations
from tests.service.stubs import SERVICES, Rpc, refused

KEY = {"Idempotency-Key": "k"}
#: An upload is identified by its bytes: a repeated upload succeeds without effect.
BY_CONTENT = {"upload_dataset"}


def test_every_change_accepts_an_idempotency_key() -> None:
    for name, operation in operations(answers().document).items():
        headers = {
            parameter["name"].lower()
            for parameter in operation.get("parameters", [])
            if parameter["in"] == "header"
        }
        # Sums of traffic are records: they are counted once, and are not audited.
        accepts = (OPERATIONS[name].mutates and name not in BY_CONTENT) or name == "add_traffic"
        assert ("idempotency-key" in headers) is accepts, name


def test_repeated_promotion_does_not_undo_a_rollback(ready: Service, rpc: Rpc) -> None:
    """The client lost the first answer and retries after another user has rolled back."""
    assert ready.fitted(promote=False)["result"]["version"] == 2
    champion = "/v1/models/digits/aliases/champion"

    def serving() -> int:
        answer: int = ready.client.get("/v1/models/digits/aliases").json()["items"][0]["version"]
        return answer

    promoted = ready.client.put(champion, json={"version": 2}, headers=KEY)
    assert (promoted.status_code, serving()) == (200, 2)
    ready.client.put(champion, json={"version": 1, "reason": "worse"})
    again = ready.client.put(champion, json={"version": 2}, headers=KEY)
    assert (again.status_code, again.json()) == (200, promoted.json())
    assert serving() == 1
    # A key is shared by REST and gRPC.
    request = SERVICES["Calibrators"].methods_by_name["SetAlias"].input_type._concrete_class
    point = request(model="digits", alias="champion", version=2)
    metadata = [("idempotency-key", "k")]
    assert rpc.calibrators.set_alias(point, metadata=metadata).version == 2
    assert serving() == 1
    refused(
        grpc.StatusCode.FAILED_PRECONDITION,
        rpc.calibrators.set_alias,
        request(model="digits", alias="champion", version=1),
        metadata=metadata,
    )
    assert (
        ready.client.put(champion, json={"version": 2, "reason": "x"}, headers=KEY).status_code
        == 409
    )
    # On another alias it belongs to another request.
    assert ready.client.put(f"{champion}2", json={"version": 2}, headers=KEY).status_code == 200


def test_repeated_refit_cancellation_and_settings_happen_once(ready: Service, rpc: Rpc) -> None:
    refit = "/v1/models/digits/monitoring/refit"
    first = ready.client.post(refit, headers=KEY).json()
    gone = ready.client.delete(f"/v1/jobs/{first['id']}", headers=KEY)
    assert gone.json()["state"] == "cancelled"
    # The refit job has ended; the repeated request starts no other job.
    assert ready.client.post(refit, headers=KEY).json() == first
    second = ready.client.post(refit, headers={"Idempotency-Key": "l"}).json()
    assert second["id"] != first["id"]
    assert ready.client.delete(f"/v1/jobs/{first['id']}", headers=KEY).json() == gone.json()
    assert ready.client.delete(f"/v1/jobs/{second['id']}", headers=KEY).status_code == 409
    kinds = {"create_refit": ("Monitoring", "CreateRefit"), "cancel_job": ("Jobs", "CancelJob")}
    requests: dict[str, Any] = {
        name: SERVICES[service].methods_by_name[method].input_type._concrete_class
        for name, (service, method) in kinds.items()
    }
    metadata = [("idempotency-key", "k")]
    job = rpc.monitoring.create_refit(requests["create_refit"](model="digits"), metadata=metadata)
    assert job.id == first["id"]
    job = rpc.jobs.cancel_job(requests["cancel_job"](id=first["id"]), metadata=metadata)
    assert job.id == first["id"]
    # Repeated settings do not undo a later change.
    where = "/v1/models/digits/monitoring/settings"
    set_first = ready.client.put(where, json={"tolerance": 0.03}, headers=KEY)
    ready.client.put(where, json={"tolerance": 0.04})
    again = ready.client.put(where, json={"tolerance": 0.03}, headers=KEY)
    assert (again.status_code, again.json()) == (200, set_first.json())
    watched = ready.client.get("/v1/models/digits").json()["monitoring"]
    assert watched["tolerance"] == pytest.approx(0.04)


@pytest.mark.parametrize("key", ["", "k" * 256])
def test_invalid_idempotency_keys_are_rejected(shared: Service, key: str) -> None:
    answer = shared.client.post(
        "/v1/models/digits/monitoring/refit", headers={"Idempotency-Key": key}
    )
    assert answer.status_code == 422
    assert shared.client.get("/v1/jobs?model=digits&job_state=queued").json()["items"] == []
