"""The OpenAPI document: every documented answer occurs, and no other.

`DocumentedClient` checks in all tests of this folder that no other answer occurs.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text

from recalib.errors import UnavailableError
from recalib.references import MANIFEST_TYPE
from recalib.registry import Challenger, Registry
from service.http.problems import PROBLEMS
from tests.service.conftest import NPZ, Service, npz
from tests.service.documented import operations
from tests.service.test_replays import log_of

pytestmark = pytest.mark.sqlite_only

DIGITS, UNKNOWN = "/v1/models/digits", "/v1/models/unknown"
JSON = {"Content-Type": "application/json"}
TEXT = {"Content-Type": "text/plain"}
LOG = {"Content-Type": "application/vnd.apache.parquet"}
LONG = b" " * 100_001
KEY = {"Idempotency-Key": "k"}
RECIPE = {"data": {"source": "arrays"}, "model": {"name": "linear"}}

#: A request for each documented problem of each operation, on a service with
#: one model and one version; 500 and 503 have separate tests.
LONG_KEY = {"Idempotency-Key": "k" * 256}
PROVOKED: dict[tuple[str, int], tuple[str, str, dict[str, Any]]] = {
    ("create_model", 409): ("POST", "/v1/models", {"json": {"name": "digits", "classes": 4}}),
    ("create_model", 413): ("POST", "/v1/models", {"content": LONG, "headers": JSON}),
    ("create_model", 415): ("POST", "/v1/models", {"content": b"{}", "headers": TEXT}),
    ("create_model", 422): ("POST", "/v1/models", {"json": {}}),
    ("list_audit", 422): ("GET", "/v1/audit?cursor=eA==", {}),
    ("list_events", 422): ("GET", "/v1/events?type=a%25", {}),
    ("list_model_events", 404): ("GET", f"{UNKNOWN}/events", {}),
    ("list_model_events", 422): ("GET", f"{DIGITS}/events?order=any", {}),
    ("create_webhook", 404): (
        "POST",
        "/v1/webhooks",
        {"json": {"url": "https://example.com/", "model": "unknown"}},
    ),
    ("create_webhook", 409): (
        "POST",
        "/v1/webhooks",
        {"json": {"url": "https://example.com/"}, "headers": KEY},
    ),
    ("create_webhook", 413): ("POST", "/v1/webhooks", {"content": LONG, "headers": JSON}),
    ("create_webhook", 415): ("POST", "/v1/webhooks", {"content": b"{}", "headers": TEXT}),
    ("create_webhook", 422): ("POST", "/v1/webhooks", {"json": {"url": "http://127.0.0.1/"}}),
    ("list_webhooks", 422): ("GET", "/v1/webhooks?limit=0", {}),
    ("get_webhook", 404): ("GET", "/v1/webhooks/none", {}),
    ("update_webhook", 404): ("PATCH", "/v1/webhooks/none", {"json": {}}),
    ("update_webhook", 409): ("PATCH", "/v1/webhooks/w", {"json": {}, "headers": KEY}),
    ("update_webhook", 413): ("PATCH", "/v1/webhooks/w", {"content": LONG, "headers": JSON}),
    ("update_webhook", 415): ("PATCH", "/v1/webhooks/w", {"content": b"{}", "headers": TEXT}),
    ("update_webhook", 422): ("PATCH", "/v1/webhooks/w", {"json": {"enabled": 7}}),
    ("rotate_webhook_secret", 404): ("POST", "/v1/webhooks/none/secret", {"json": {}}),
    ("rotate_webhook_secret", 409): (
        "POST",
        "/v1/webhooks/w/secret",
        {"json": {"overlap_seconds": 1}, "headers": KEY},
    ),
    ("rotate_webhook_secret", 413): (
        "POST",
        "/v1/webhooks/w/secret",
        {"content": LONG, "headers": JSON},
    ),
    ("rotate_webhook_secret", 415): (
        "POST",
        "/v1/webhooks/w/secret",
        {"content": b"{}", "headers": TEXT},
    ),
    ("rotate_webhook_secret", 422): (
        "POST",
        "/v1/webhooks/w/secret",
        {"json": {"overlap_seconds": -1}},
    ),
    ("delete_webhook", 404): ("DELETE", "/v1/webhooks/none", {}),
    ("delete_webhook", 409): ("DELETE", "/v1/webhooks/w", {"headers": KEY}),
    ("delete_webhook", 422): ("DELETE", "/v1/webhooks/w", {"headers": LONG_KEY}),
    ("list_deliveries", 404): ("GET", "/v1/webhooks/none/deliveries", {}),
    ("list_deliveries", 422): ("GET", "/v1/webhooks/w/deliveries?delivery_state=lost", {}),
    ("redeliver", 404): ("POST", "/v1/webhooks/w/deliveries/9", {}),
    ("redeliver", 409): ("POST", "/v1/webhooks/w/deliveries/9", {"headers": KEY}),
    ("redeliver", 422): ("POST", "/v1/webhooks/w/deliveries/0", {}),
    ("list_models", 422): ("GET", "/v1/models?limit=0", {}),
    ("get_model", 404): ("GET", UNKNOWN, {}),
    ("update_model", 404): ("PATCH", UNKNOWN, {"json": {}}),
    ("update_model", 409): ("PATCH", DIGITS, {"json": {"name": "letters"}}),
    ("update_model", 413): ("PATCH", DIGITS, {"content": LONG}),
    ("update_model", 415): ("PATCH", DIGITS, {"content": b"{}"}),
    ("update_model", 422): ("PATCH", DIGITS, {"json": {"retention": {"label_seconds": 60}}}),
    ("delete_model", 404): ("DELETE", UNKNOWN, {}),
    ("delete_model", 409): ("DELETE", DIGITS, {}),
    ("delete_model", 422): ("DELETE", f"{DIGITS}?force=perhaps", {}),
    ("create_refit", 404): ("POST", f"{UNKNOWN}/monitoring/refit", {}),
    ("create_refit", 422): ("POST", f"{DIGITS}/monitoring/refit", {"headers": LONG_KEY}),
    ("create_refit", 409): ("POST", "/v1/models/new/monitoring/refit", {}),
    ("create_replay", 404): ("POST", f"{UNKNOWN}/monitoring/replays", {"headers": LOG}),
    ("create_replay", 409): (
        "POST",
        f"{DIGITS}/monitoring/replays",
        {"content": log_of(60, hours=72), "headers": KEY | LOG},
    ),
    ("create_replay", 413): (
        "POST",
        f"{DIGITS}/monitoring/replays",
        {"content": LONG * 10, "headers": LOG},
    ),
    ("create_replay", 415): ("POST", f"{DIGITS}/monitoring/replays", {"headers": TEXT}),
    ("create_replay", 422): ("POST", f"{DIGITS}/monitoring/replays", {"headers": LOG}),
    ("drop_candidate", 404): ("DELETE", f"{DIGITS}/monitoring/candidates/9", {}),
    ("drop_candidate", 409): ("DELETE", f"{DIGITS}/monitoring/candidates/1", {}),
    ("drop_candidate", 422): ("DELETE", f"{DIGITS}/monitoring/candidates/0", {}),
    ("list_monitoring_history", 422): ("GET", f"{DIGITS}/monitoring/history?cursor=eA==", {}),
    ("list_monitoring_history", 404): ("GET", f"{UNKNOWN}/monitoring/history", {}),
    ("get_monitoring", 404): ("GET", f"{UNKNOWN}/monitoring", {}),
    ("set_monitoring", 404): ("PUT", f"{UNKNOWN}/monitoring/settings", {"json": {}}),
    ("set_monitoring", 409): ("PUT", f"{DIGITS}/monitoring/settings", {"json": {}}),
    ("set_monitoring", 413): ("PUT", f"{DIGITS}/monitoring/settings", {"content": LONG}),
    ("set_monitoring", 415): ("PUT", f"{DIGITS}/monitoring/settings", {"content": b"{}"}),
    ("set_monitoring", 422): ("PUT", f"{DIGITS}/monitoring/settings", {"json": {"alpha": 2}}),
    ("upload_dataset", 404): ("PUT", f"{UNKNOWN}/datasets/d", {"content": b"x", "headers": NPZ}),
    ("upload_dataset", 409): (
        "PUT",
        f"{DIGITS}/datasets/validation",
        {"content": npz([[0.0, 1, 2, 3]], [1]), "headers": NPZ},
    ),
    ("upload_dataset", 413): (
        "PUT",
        f"{DIGITS}/datasets/d",
        {"content": LONG * 10, "headers": NPZ},
    ),
    ("upload_dataset", 415): ("PUT", f"{DIGITS}/datasets/d", {"content": b"x", "headers": TEXT}),
    ("upload_dataset", 422): ("PUT", f"{DIGITS}/datasets/d", {"content": b"x", "headers": NPZ}),
    ("list_datasets", 404): ("GET", f"{UNKNOWN}/datasets", {}),
    ("list_datasets", 422): ("GET", f"{DIGITS}/datasets?cursor=!", {}),
    ("get_dataset", 404): ("GET", f"{DIGITS}/datasets/d", {}),
    ("update_dataset", 404): ("PATCH", f"{DIGITS}/datasets/d", {"json": {}}),
    ("update_dataset", 409): (
        "PATCH",
        f"{DIGITS}/datasets/validation",
        {"json": {"tags": ["other"]}, "headers": KEY},
    ),
    ("update_dataset", 413): ("PATCH", f"{DIGITS}/datasets/validation", {"content": LONG}),
    ("update_dataset", 415): ("PATCH", f"{DIGITS}/datasets/validation", {"content": b"{}"}),
    ("update_dataset", 422): (
        "PATCH",
        f"{DIGITS}/datasets/validation",
        {"json": {"tags": ["a", "a"]}},
    ),
    ("delete_dataset", 404): ("DELETE", f"{DIGITS}/datasets/d", {}),
    ("delete_dataset", 409): ("DELETE", f"{DIGITS}/datasets/validation", {}),
    ("delete_dataset", 422): ("DELETE", f"{DIGITS}/datasets/d?force=perhaps", {}),
    ("get_dataset_content", 404): ("GET", f"{DIGITS}/datasets/d/content", {}),
    ("get_dataset_content", 409): ("GET", f"{DIGITS}/datasets/reference/content", {}),
    ("create_calibrator", 404): ("POST", f"{DIGITS}/calibrators", {"json": {"dataset": "d"}}),
    ("create_calibrator", 409): (
        "POST",
        f"{DIGITS}/calibrators",
        {"json": {"dataset": "validation", "map": "identity"}, "headers": KEY},
    ),
    ("create_calibrator", 413): ("POST", f"{DIGITS}/calibrators", {"content": LONG}),
    ("create_calibrator", 415): ("POST", f"{DIGITS}/calibrators", {"content": b"{}"}),
    ("create_calibrator", 422): ("POST", f"{DIGITS}/calibrators", {"json": {}}),
    ("list_calibrators", 404): ("GET", f"{UNKNOWN}/calibrators", {}),
    ("list_calibrators", 422): ("GET", f"{DIGITS}/calibrators?limit=x", {}),
    ("get_calibrator", 404): ("GET", f"{DIGITS}/calibrators/9", {}),
    ("get_calibrator", 422): ("GET", f"{DIGITS}/calibrators/0", {}),
    ("update_calibrator", 404): ("PATCH", f"{DIGITS}/calibrators/9", {"json": {}}),
    ("update_calibrator", 409): (
        "PATCH",
        f"{DIGITS}/calibrators/1",
        {"json": {"tags": ["other"]}, "headers": KEY},
    ),
    ("update_calibrator", 413): ("PATCH", f"{DIGITS}/calibrators/1", {"content": LONG}),
    ("update_calibrator", 415): ("PATCH", f"{DIGITS}/calibrators/1", {"content": b"{}"}),
    ("update_calibrator", 422): ("PATCH", f"{DIGITS}/calibrators/1", {"json": {"tags": [""]}}),
    ("delete_calibrator", 404): ("DELETE", f"{DIGITS}/calibrators/9", {}),
    ("delete_calibrator", 409): ("DELETE", f"{DIGITS}/calibrators/1", {}),
    ("delete_calibrator", 422): ("DELETE", f"{DIGITS}/calibrators/0", {}),
    ("get_calibrator_parameters", 404): ("GET", f"{DIGITS}/calibrators/9/parameters", {}),
    ("get_calibrator_parameters", 422): ("GET", f"{DIGITS}/calibrators/x/parameters", {}),
    ("get_calibrator_onnx", 404): ("GET", f"{DIGITS}/calibrators/9/onnx", {}),
    ("get_calibrator_onnx", 422): ("GET", f"{DIGITS}/calibrators/x/onnx", {}),
    ("create_batch", 404): ("POST", f"{DIGITS}/batches", {"json": {"dataset": "d"}}),
    ("create_batch", 409): (
        "POST",
        f"{DIGITS}/batches",
        {"json": {"dataset": "validation", "format": "npz"}, "headers": KEY},
    ),
    ("create_batch", 413): ("POST", f"{DIGITS}/batches", {"content": LONG * 10, "headers": NPZ}),
    ("create_batch", 415): ("POST", f"{DIGITS}/batches", {"content": b"x", "headers": TEXT}),
    ("create_batch", 422): ("POST", f"{DIGITS}/batches", {"json": {}}),
    ("list_batches", 404): ("GET", f"{UNKNOWN}/batches", {}),
    ("list_batches", 422): ("GET", f"{DIGITS}/batches?cursor=!", {}),
    ("delete_batch", 404): ("DELETE", f"{DIGITS}/batches/none", {}),
    ("delete_batch", 422): ("DELETE", f"{DIGITS}/batches/none?force=perhaps", {}),
    ("get_batch", 404): ("GET", f"{DIGITS}/batches/none", {}),
    ("get_batch_content", 404): ("GET", f"{DIGITS}/batches/none/content", {}),
    ("create_evaluation", 404): (
        "POST",
        f"{DIGITS}/evaluations",
        {"json": {"dataset": "d", "versions": [1]}},
    ),
    ("create_evaluation", 409): (
        "POST",
        f"{DIGITS}/evaluations",
        {"json": {"dataset": "validation", "versions": ["identity"]}, "headers": KEY},
    ),
    ("create_evaluation", 413): ("POST", f"{DIGITS}/evaluations", {"content": LONG}),
    ("create_evaluation", 415): ("POST", f"{DIGITS}/evaluations", {"content": b"{}"}),
    ("create_evaluation", 422): ("POST", f"{DIGITS}/evaluations", {"json": {}}),
    ("list_evaluations", 404): ("GET", f"{UNKNOWN}/evaluations", {}),
    ("list_evaluations", 422): ("GET", f"{DIGITS}/evaluations?cursor=!", {}),
    ("delete_evaluation", 404): ("DELETE", f"{DIGITS}/evaluations/none", {}),
    ("delete_evaluation", 422): ("DELETE", f"{DIGITS}/evaluations/none?force=perhaps", {}),
    ("get_evaluation", 404): ("GET", f"{DIGITS}/evaluations/none", {}),
    ("get_evaluation_report", 404): ("GET", f"{DIGITS}/evaluations/none/report", {}),
    ("list_aliases", 404): ("GET", f"{UNKNOWN}/aliases", {}),
    ("set_alias", 409): (
        "PUT",
        f"{DIGITS}/aliases/a",
        {"json": {"version": 1, "reason": "other"}, "headers": KEY},
    ),
    ("set_alias", 404): ("PUT", f"{DIGITS}/aliases/a", {"json": {"version": 9}}),
    ("set_alias", 413): ("PUT", f"{DIGITS}/aliases/a", {"content": LONG}),
    ("set_alias", 415): ("PUT", f"{DIGITS}/aliases/a", {"content": b"{}"}),
    ("set_alias", 422): ("PUT", f"{DIGITS}/aliases/7", {"json": {"version": 1}}),
    ("delete_alias", 404): ("DELETE", f"{DIGITS}/aliases/none", {}),
    ("delete_alias", 409): ("DELETE", f"{DIGITS}/aliases/champion", {}),
    ("delete_alias", 422): ("DELETE", f"{DIGITS}/aliases/a", {"headers": LONG_KEY}),
    ("get_alias_history", 404): ("GET", f"{UNKNOWN}/aliases/champion/history", {}),
    ("get_alias_history", 422): ("GET", f"{DIGITS}/aliases/champion/history?limit=0", {}),
    ("create_training_run", 404): (
        "POST",
        "/v1/training-runs",
        {"json": {**RECIPE, "calibrate": {"model": "unknown"}}},
    ),
    ("create_training_run", 409): (
        "POST",
        "/v1/training-runs",
        {"json": {**RECIPE, "seed": 2}, "headers": KEY},
    ),
    ("create_training_run", 413): ("POST", "/v1/training-runs", {"content": LONG}),
    ("create_training_run", 415): ("POST", "/v1/training-runs", {"content": b"{}"}),
    ("create_training_run", 422): ("POST", "/v1/training-runs", {"json": {}}),
    ("delete_training_run", 404): ("DELETE", "/v1/training-runs/none", {}),
    ("delete_training_run", 422): ("DELETE", "/v1/training-runs/none?force=perhaps", {}),
    ("get_training_run_file", 404): ("GET", "/v1/training-runs/none/files/weights", {}),
    ("list_jobs", 404): ("GET", "/v1/jobs?model=unknown", {}),
    ("list_jobs", 422): ("GET", "/v1/jobs?job_state=bored", {}),
    ("get_job", 404): ("GET", "/v1/jobs/none", {}),
    ("cancel_job", 422): ("DELETE", "/v1/jobs/none", {"headers": LONG_KEY}),
    ("cancel_job", 404): ("DELETE", "/v1/jobs/none", {}),
    ("add_labels", 404): ("POST", f"{UNKNOWN}/labels", {"json": []}),
    ("add_labels", 413): ("POST", f"{DIGITS}/labels", {"content": LONG, "headers": JSON}),
    ("add_labels", 415): ("POST", f"{DIGITS}/labels", {"content": b"[]", "headers": TEXT}),
    ("add_labels", 422): ("POST", f"{DIGITS}/labels", {"json": {}}),
    ("add_observations", 404): ("POST", f"{UNKNOWN}/observations", {"json": {}}),
    ("add_observations", 409): ("POST", "/v1/models/new/observations", {"json": {}}),
    ("add_observations", 413): (
        "POST",
        f"{DIGITS}/observations",
        {"content": LONG, "headers": JSON},
    ),
    ("add_observations", 415): (
        "POST",
        f"{DIGITS}/observations",
        {"content": b"[]", "headers": TEXT},
    ),
    ("add_observations", 422): ("POST", f"{DIGITS}/observations", {"json": {}}),
    ("add_traffic", 404): ("POST", f"{UNKNOWN}/traffic", {"json": {"buckets": []}}),
    ("add_traffic", 409): ("POST", "/v1/models/new/traffic", {"json": {"buckets": []}}),
    ("add_traffic", 413): ("POST", f"{DIGITS}/traffic", {"content": LONG, "headers": JSON}),
    ("add_traffic", 415): ("POST", f"{DIGITS}/traffic", {"content": b"{}", "headers": TEXT}),
    ("add_traffic", 422): ("POST", f"{DIGITS}/traffic", {"json": {}}),
    ("calibrate", 404): ("POST", f"{UNKNOWN}/calibrate", {"json": {"logits": [[0, 1, 2, 3]]}}),
    ("calibrate", 406): (
        "POST",
        f"{DIGITS}/calibrate",
        {"json": {"logits": [[0, 1, 2, 3]]}, "headers": {"Accept": "text/html"}},
    ),
    ("calibrate", 409): ("POST", "/v1/models/new/calibrate", {"json": {"logits": [[0, 1]]}}),
    ("calibrate", 413): ("POST", f"{DIGITS}/calibrate", {"content": LONG}),
    ("calibrate", 415): ("POST", f"{DIGITS}/calibrate", {"content": b"x", "headers": TEXT}),
    ("calibrate", 422): ("POST", f"{DIGITS}/calibrate", {"json": {"logits": [[0, 1]]}}),
}


@pytest.fixture
def stocked(ready: Service) -> Service:
    """A service with a champion, a model without one, and a used idempotency key."""
    ready.model("new", classes=2, serve_uncalibrated=False)
    answer = ready.client.post(f"{DIGITS}/calibrators", json={"dataset": "validation"}, headers=KEY)
    assert answer.status_code == 202
    answer = ready.client.post(f"{DIGITS}/batches", json={"dataset": "validation"}, headers=KEY)
    assert answer.status_code == 202
    evaluation = {"dataset": "validation", "versions": [1]}
    answer = ready.client.post(f"{DIGITS}/evaluations", json=evaluation, headers=KEY)
    assert answer.status_code == 202
    answer = ready.client.post("/v1/training-runs", json=RECIPE, headers=KEY)
    assert answer.status_code == 202
    gone = ready.client.delete(f"/v1/jobs/{answer.json()['id']}", headers=KEY)
    assert gone.status_code == 200
    assert ready.client.post("/v1/training-runs", json=RECIPE).status_code == 202
    for path in ("datasets/validation", "calibrators/1"):
        described = ready.client.patch(f"{DIGITS}/{path}", json={"tags": ["a"]}, headers=KEY)
        assert described.status_code == 200
    point = {"json": {"version": 1}, "headers": KEY}
    assert ready.client.put(f"{DIGITS}/aliases/a", **point).status_code == 200
    with ready.registry.transaction() as tx:
        tx.datasets.create(
            tx.models.get("digits"), "reference", 64 * "0", 2, 4, 9, MANIFEST_TYPE, "logits", {},
            "s3://bucket/logits/",
        )  # fmt: skip
        promoted = Challenger(1, 1, 0, 1.0, 1.0, 0.05, {}, "promoted", 2.0)
        tx.candidates.add(tx.models.get("digits"), promoted)
        tx.webhooks.create("https://example.com/", None, [], "recalib", "anna")
        tx.connection.execute(text("UPDATE webhooks SET id = 'w'"))
        # The key was used for other requests.
        for scope in (
            "create_replay digits",
            "create_webhook",
            "update_webhook w",
            "rotate_webhook_secret w",
            "delete_webhook",
            "redeliver w",
        ):
            tx.idempotency.store("k", scope, "another", 200, b"{}")
    settings = {"segments": ["eu"]}
    answer = ready.client.put(f"{DIGITS}/monitoring/settings", json=settings)
    assert answer.status_code == 200
    return ready


def promised(document: dict[str, Any]) -> dict[tuple[str, int], dict[str, Any]]:
    """Return every documented problem, by operation and status."""
    return {
        (name, int(status)): answer
        for name, operation in operations(document).items()
        for status, answer in operation["responses"].items()
        if "application/problem+json" in answer.get("content", {})
    }


@pytest.mark.slow
def test_every_documented_problem_occurs(stocked: Service) -> None:
    """A documented status that never occurs is noise in generated clients."""
    # Errors of keys are tested in test_access.py and test_limits.py, 421 in test_browsers.py.
    elsewhere = (401, 403, 421, 429, 500, 503)
    documented = {key for key in promised(stocked.client.app.openapi()) if key[1] not in elsewhere}
    # The key was used to cancel another job.
    job = stocked.client.get("/v1/jobs?model=digits").json()["items"][0]["id"]
    queued = stocked.client.get("/v1/jobs?job_state=queued").json()["items"]
    ids = {job["kind"]: job["id"] for job in queued}
    provoked = {
        **PROVOKED,
        ("cancel_job", 409): ("DELETE", f"/v1/jobs/{job}", {"headers": KEY}),
        ("delete_training_run", 409): ("DELETE", f"/v1/training-runs/{ids['train']}", {}),
        ("delete_evaluation", 409): ("DELETE", f"{DIGITS}/evaluations/{ids['evaluate']}", {}),
        ("delete_batch", 409): ("DELETE", f"{DIGITS}/batches/{ids['batch']}", {}),
    }
    assert documented == set(provoked)
    for (name, status), (verb, path, more) in provoked.items():
        answer = stocked.client.request(verb, path, **more)
        assert answer.status_code == status, (name, status, answer.text)
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["status"] == status


def requests_of(name: str) -> tuple[str, str, dict[str, Any]]:
    """Return a request that reaches the registry, for each operation."""
    good = {
        "create_model": ("POST", "/v1/models", {"json": {"name": "m", "classes": 3}}),
        "list_models": ("GET", "/v1/models", {}),
        "list_audit": ("GET", "/v1/audit", {}),
        "list_events": ("GET", "/v1/events", {}),
        "list_webhooks": ("GET", "/v1/webhooks", {}),
        "create_calibrator": ("POST", f"{DIGITS}/calibrators", {"json": {"dataset": "d"}}),
        "calibrate": ("POST", f"{UNKNOWN}/calibrate", {"json": {"logits": [[0, 1]]}}),
    }
    return good.get(name) or PROVOKED[name, 404]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "status"), [(UnavailableError("the database is gone"), 503), (KeyError("us"), 500)]
)
def test_server_faults_are_documented_problems(
    service: Service, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int
) -> None:
    """An operation answers any internal failure with a documented problem."""

    def broken(self: Registry) -> None:
        raise error

    names = [name for name, code in promised(service.client.app.openapi()) if code == status]
    assert len(names) > 15
    monkeypatch.setattr(Registry, "reading", broken)
    monkeypatch.setattr(Registry, "transaction", broken)
    for name in names:
        verb, path, more = requests_of(name)
        answer = service.client.request(verb, path, **more)
        assert answer.status_code == status, name
        assert answer.headers["content-type"] == "application/problem+json"
        assert "KeyError" not in answer.text


def test_framework_errors_are_not_documented(service: Service) -> None:
    """Every answer of 400 and above is a problem, except for `/readyz`, which has more fields.

    The Open Inference Protocol defines a separate error format.
    """
    document = service.client.app.openapi()
    assert "HTTPValidationError" not in json.dumps(document)
    for name, operation in operations(document).items():
        for status, answer in operation["responses"].items():
            if int(status) >= 400 and name != "readyz":
                kind = "application/json" if name.startswith("v2_") else "application/problem+json"
                assert list(answer["content"]) == [kind], name
    assert set(promised(document)) >= {("calibrate", status) for status in (413, 415, 422, 503)}


def test_every_error_status_is_documented(service: Service) -> None:
    """Every status in `PROBLEMS`, and 421, is documented for an operation."""
    described = {status for _, status in promised(service.client.app.openapi())}
    assert described == {status for status, _ in PROBLEMS.values()} | {421}


def test_times_have_the_format_of_times(service: Service) -> None:
    """So that generated clients return times, not texts."""
    schemas = service.client.get("/openapi.json").json()["components"]["schemas"]
    times = {
        (name, field): json.dumps(schema)
        for name, described in schemas.items()
        for field, schema in described.get("properties", {}).items()
        if (field == "at" or field.endswith("_at")) and '"string"' in json.dumps(schema)
    }
    assert len(times) > 15
    assert [field for field, schema in times.items() if '"date-time"' not in schema] == []


def test_operations_have_tags_and_sentences(service: Service) -> None:
    """Summaries are sentences; there are no other tags than those that are described."""
    document = service.client.app.openapi()
    tags = {tag["name"] for tag in document["tags"]}
    documented = operations(document)
    for name, operation in documented.items():
        assert name.isidentifier()
        assert operation["summary"].endswith("."), name
        assert operation.get("description", "A.").endswith("."), name
    assert {tag for operation in documented.values() for tag in operation["tags"]} == tags


def test_bodies_are_documented_by_content_type(service: Service) -> None:
    """Uploads are bytes or a JSON object; calibrate accepts three formats and answers in four."""
    # A copy: all tests share the document.
    documented = operations(copy.deepcopy(service.client.app.openapi()))
    upload = documented["upload_dataset"]["requestBody"]["content"]
    assert upload["application/x-npz"]["schema"] == {"type": "string", "format": "binary"}
    data, reference = upload.pop("application/json")["schema"]["anyOf"]
    assert reference == {"$ref": "#/components/schemas/DatasetReference"}
    download = documented["get_dataset_content"]["responses"]["200"]["content"]
    assert download.pop("application/json")["schema"] == data
    assert data == {"$ref": "#/components/schemas/Data"}
    assert download == upload
    calibrate = documented["calibrate"]
    forms = ["application/json", "application/x-npy", "application/vnd.apache.arrow.stream"]
    assert list(calibrate["requestBody"]["content"]) == forms
    assert list(calibrate["responses"]["200"]["content"]) == [*forms, "application/x-npz"]
    assert list(documented["metrics"]["responses"]["200"]["content"]) == ["text/plain"]


@pytest.mark.parametrize("kind", ["json", "x-npz"])
def test_every_documented_content_type_is_accepted(service: Service, data, kind: str) -> None:
    """JSON of the documented schema is accepted as an upload."""
    service.model()
    logits, labels = data[0][:40], data[1][:40]
    bodies: dict[str, Callable[[], bytes]] = {
        "json": lambda: json.dumps({"logits": logits.tolist(), "labels": labels.tolist()}).encode(),
        "x-npz": lambda: npz(logits, labels),
    }
    answer = service.client.put(
        f"{DIGITS}/datasets/d",
        content=bodies[kind](),
        headers={"Content-Type": f"application/{kind}"},
    )
    assert answer.status_code == 201, answer.text
    assert answer.json()["rows"] == 40
