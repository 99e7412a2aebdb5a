"""Access tests: every route and RPC is called with invalid and with valid credentials."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import grpc
import pytest
from fastapi import FastAPI
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2
from starlette.testclient import TestClient

from recalib.core.access import SCOPES, Limits
from recalib.errors import UnauthorizedError
from recalib.registry import Registry
from recalib.settings import Settings
from service.access import limits
from service.access.authenticator import Authenticator
from service.app import create_app
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from service.grpc.rpc import method_name
from service.grpc_server import RpcServer  # noqa: F401  (declares operations)
from service.http import docs_pages
from service.metrics import CALIBRATED_ROWS, LABELS
from service.operations import OPERATIONS
from tests.service.documented import answers, operations
from tests.service.issuers import AUDIENCE, Issuer, encoded, issuer, signing_keys
from tests.service.stubs import HEALTH, REFLECTION, SERVICES, V2, Rpc, refused

pytestmark = pytest.mark.sqlite_only

__all__ = ["issuer", "signing_keys"]

_DOCUMENT = answers().document
DOCS_PATHS = docs_pages.install(FastAPI())
ROUTES = sorted(
    (operation["operationId"], verb, path)
    for path, of_path in _DOCUMENT["paths"].items()
    for verb, operation in of_path.items()
)
GUARDED = [route for route in ROUTES if OPERATIONS[route[0]].scope != "open"]
SERVICES = {**SERVICES, "v2": V2, "health": HEALTH, "reflection": REFLECTION}
METHODS = sorted(
    (method_name(method.name), service, method.name)
    for service, descriptor in SERVICES.items()
    for method in descriptor.methods
)
GUARDED_METHODS = [method for method in METHODS if OPERATIONS[method[0]].scope != "open"]


#: Invalid credentials, by their name in the keys of `Guarded`; None sends no credential.
UNKNOWN = (
    "wrong", "revoked", "expired", "expired token", "forged token", "unsigned token",
    "another's token", None,
)  # fmt: skip


class Guarded(NamedTuple):
    """A server that requires keys, with two models, `mine` and `theirs`."""

    client: Any
    registry: Registry
    #: Secrets and tokens by their purpose.
    keys: dict[str, str]

    def ask(self, verb: str, path: str, key: str | None, model: str = "mine") -> Any:
        filled = path.replace("{model}", model)
        filled = re.sub(r"\{(version|job_id)\}", "1", filled)
        filled = re.sub(r"\{\w+\}", "champion", filled)
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        return self.client.request(verb.upper(), filled, headers=headers, content=b"{}")


@pytest.fixture
def guarded(
    database_url: str,
    blob_url: str,
    registry: Registry,
    issuer: Issuer,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Guarded]:
    # The limit on wrong keys of one address is tested in test_limits.py.
    monkeypatch.setattr(limits, "_ALLOWED_SECONDS", 1e9)
    settings = Settings(
        oidc_issuer=issuer.url,
        oidc_audience=AUDIENCE,
        oidc_models_claim="models",
        database_url=database_url,
        blob_url=blob_url,
        grpc_port=0,
        require_keys=True,
        refresh_seconds=3600,
        load_seconds=60,
    )
    keys = _tokens(issuer)
    with registry.transaction() as tx:
        for scope in SCOPES:
            keys[scope] = tx.api_keys.create(scope, [scope])
        keys["bound"] = tx.api_keys.create("bound", SCOPES, ["mine"])
        keys["revoked"] = tx.api_keys.create("revoked", SCOPES)
        keys["expired"] = tx.api_keys.create("expired", SCOPES, lifetime_seconds=0.001)
        tx.api_keys.revoke("revoked")
        for name in ("mine", "theirs"):
            tx.models.create(name, None, 4, "test")
    keys["wrong"] = keys["admin"][:-1] + ("A" if keys["admin"][-1] != "A" else "B")
    with TestClient(create_app(settings), raise_server_exceptions=False) as client:
        client.app.state.recalib.event_feed.close()  # streams end at once
        yield Guarded(client, registry, keys)


def _tokens(issuer: Issuer) -> dict[str, str]:
    every = " ".join(f"recalib:{scope}" for scope in SCOPES)
    all_of_all = {"models": "*", "scope": every}
    return {
        **{
            f"{scope} token": issuer.token(scope=f"recalib:{scope}", models=["*"])
            for scope in SCOPES
        },
        "bound token": issuer.token("ec", "ES256", scope=every, models=["mine"]),
        "token for nothing": issuer.token(scope="openid", models="*"),
        "expired token": issuer.token(**all_of_all, exp=int(time.time()) - 60),
        "forged token": issuer.token("other", headers={"kid": "rsa"}, **all_of_all),
        "unsigned token": encoded({"alg": "none", "kid": "rsa"}, issuer.claims(**all_of_all)),
        "another's token": issuer.token(**all_of_all, aud="another"),
    }


def test_every_route_and_rpc_has_an_access_rule() -> None:
    names = {route[0] for route in ROUTES} | {method[0] for method in METHODS}
    assert names == set(OPERATIONS)


def test_forced_deletion_requires_admin(guarded: Guarded) -> None:
    """A key that may delete may not cancel the jobs of others."""
    for path in ("/v1/models/{model}/datasets/d", "/v1/models/{model}/calibrators/1"):
        answers = [
            guarded.ask("DELETE", f"{path}?force={force}", guarded.keys[scope]).status_code
            for scope, force in (("fit", "false"), ("fit", "true"), ("admin", "true"))
        ]
        assert answers == [404, 403, 404]


def test_operations_require_the_documented_scopes() -> None:
    """docs/access.md in short: the other tests take the declarations as the truth."""
    expected = {
        "any": {"metrics"},
        "predict": {"calibrate", "calibrate_stream", "v2_infer", "model_infer"},
        "label": {"add_labels"},
        "fit": {
            "upload_dataset",
            "get_dataset_content",
            "add_observations",
            "add_traffic",
            "create_calibrator",
            "create_batch",
            "get_batch_content",
            "create_evaluation",
            "get_evaluation_report",
            "create_training_run",
            "list_events",
            "stream_events",
            "update_dataset",
            "update_calibrator",
            "delete_dataset",
            "delete_calibrator",
            "delete_training_run",
        },
        "admin": {
            "create_model",
            "update_model",
            "delete_model",
            "delete_alias",
            "set_alias",
            "set_monitoring",
            "create_replay",
            "drop_candidate",
            "list_audit",
            "create_webhook",
            "list_webhooks",
            "update_webhook",
            "delete_webhook",
            "redeliver",
        },
    }
    for scope, names in expected.items():
        assert {name: OPERATIONS[name].scope for name in names} == dict.fromkeys(names, scope)


def test_every_route_rejects_missing_and_bad_credentials(guarded: Guarded) -> None:
    for name, verb, path in GUARDED:
        for kind in UNKNOWN:
            key = None if kind is None else guarded.keys[kind]
            answer = guarded.ask(verb, path, key)
            assert answer.status_code == 401, (name, kind, answer.text)
            assert answer.headers["www-authenticate"] == "Bearer"
            assert (list(answer.json()) == ["error"]) is path.startswith("/v2")
        for malformed in ("Basic abc", "Bearer", "Bearer  ", guarded.keys["admin"]):
            headers = {"Authorization": malformed}
            answer = guarded.client.request(verb.upper(), path, headers=headers)
            assert answer.status_code == 401, (name, malformed)


@pytest.mark.parametrize("kind", ["", pytest.param(" token", marks=pytest.mark.slow)])
def test_every_route_rejects_a_key_with_another_scope(guarded: Guarded, kind: str) -> None:
    """Rules read the scopes of keys and tokens alike: the short tests of RPCs send tokens."""
    for name, verb, path in GUARDED:
        for scope in SCOPES:
            answer = guarded.ask(verb, path, guarded.keys[scope + kind])
            may = OPERATIONS[name].scope in (scope, "any", "docs") or scope == "admin"
            assert (answer.status_code != 403) is may, (name, scope, answer.text)
            assert answer.status_code != 401
        assert guarded.ask(verb, path, guarded.keys["token for nothing"]).status_code == 403


def test_every_route_rejects_another_tenants_model(guarded: Guarded) -> None:
    for name, verb, path in GUARDED:
        for bound in (guarded.keys["bound"], guarded.keys["bound token"]):
            if "{model}" in path:
                assert guarded.ask(verb, path, bound, "theirs").status_code == 403, name
                assert guarded.ask(verb, path, bound, "no-such").status_code == 403
                assert guarded.ask(verb, path, bound, "mine").status_code != 403, name
            elif OPERATIONS[name].scope not in ("any", "docs") and not OPERATIONS[name].finds_model:
                assert guarded.ask(verb, path, bound).status_code == 403, name


def test_open_routes_need_no_key(guarded: Guarded) -> None:
    for name, verb, path in ROUTES:
        if OPERATIONS[name].scope == "open":
            assert guarded.ask(verb, path, None).status_code == 200, name
    assert guarded.client.get("/nowhere").status_code == 401


def test_metrics_for_a_bound_key_are_those_of_its_models(guarded: Guarded) -> None:
    """Neither names of other tenants' models nor counts over all tenants."""
    for model in ("mine", "theirs"):
        CALIBRATED_ROWS.labels(model, "1").inc()  # of this process
        LABELS.labels(model, "accepted").inc()
    whole = guarded.ask("get", "/metrics", guarded.keys["metrics"]).text
    assert {'model="mine"', 'model="theirs"'} <= set(re.findall(r'model="\w+"', whole))
    assert "recalib_jobs{" in whole
    for key in ("bound", "bound token"):
        text = guarded.ask("get", "/metrics", guarded.keys[key]).text
        samples = [line for line in text.splitlines() if not line.startswith("#")]
        assert {line.partition("{")[0] for line in samples} >= {
            "recalib_calibrated_rows_total",
            "recalib_labels_total",
        }
        assert [line for line in samples if 'model="mine"' not in line] == []


def test_description_of_the_server_needs_any_key(guarded: Guarded) -> None:
    for path in DOCS_PATHS:
        assert guarded.ask("get", path, None).status_code == 401, path
        assert guarded.ask("get", path, guarded.keys["metrics"]).status_code in (200, 307), path


def test_public_docs_need_no_key(database_url: str, blob_url: str, registry: Registry) -> None:
    settings = Settings(
        database_url=database_url,
        blob_url=blob_url,
        grpc_port=0,
        require_keys=True,
        public_docs=True,
    )
    with TestClient(create_app(settings)) as client:
        for path in DOCS_PATHS:
            assert client.get(path).status_code == 200, path
        assert client.get("/v1/models").status_code == 401
        with Rpc(f"127.0.0.1:{client.app.state.grpc_port}") as rpc:
            answer = _call(rpc, "reflection", "ServerReflectionInfo", None)
            assert answer is grpc.StatusCode.OK
            assert _call(rpc, "Models", "ListModels", None) is _NO


def test_jobs_have_the_access_rules_of_their_model(guarded: Guarded) -> None:
    with guarded.registry.transaction() as tx:
        jobs = {
            name: tx.jobs.enqueue("fit", {}, model=tx.models.get(name)).id
            for name in ("mine", "theirs")
        }
    for key in ("bound", "bound token"):
        bound = {"Authorization": f"Bearer {guarded.keys[key]}"}
        for verb in ("GET", "DELETE"):
            for id, status in ((jobs["mine"], 200), (jobs["theirs"], 404), ("none", 404)):
                answer = guarded.client.request(verb, f"/v1/jobs/{id}", headers=bound)
                assert answer.status_code == status, answer.text
                if status == 404:
                    assert answer.json()["detail"] == f"job {id!r} does not exist"
        for query, status in (("?model=mine", 200), ("?model=theirs", 403), ("", 403)):
            assert guarded.client.get(f"/v1/jobs{query}", headers=bound).status_code == status
    with guarded.registry.reading() as tx:
        assert tx.jobs.get(jobs["theirs"]).state == "queued"


@pytest.mark.both_databases
def test_idempotency_keys_are_per_caller(guarded: Guarded) -> None:
    """Two callers with the same idempotency key get separate answers."""
    with guarded.registry.transaction() as tx:
        other = tx.api_keys.create("other", ["admin"])
    guarded.client.app.state.recalib.access.refresh()
    answers = [
        guarded.client.post(
            "/v1/models",
            json={"name": "new", "classes": 3},
            headers={"Authorization": f"Bearer {key}", "Idempotency-Key": "k"},
        ).status_code
        for key in (guarded.keys["admin"], guarded.keys["admin"], other)
    ]
    assert answers == [201, 201, 409]


def test_audit_trail_names_the_key(guarded: Guarded) -> None:
    for key, name in (("admin", "admin"), ("admin token", "oidc:anna")):
        headers = {"Authorization": f"Bearer {guarded.keys[key]}"}
        model = {"name": key.replace(" ", "-"), "classes": 3}
        assert guarded.client.post("/v1/models", json=model, headers=headers).status_code == 201
        with guarded.registry.reading() as tx:
            assert tx.models.get(model["name"]).created_by == name


@pytest.mark.both_databases
def test_new_and_revoked_keys_take_effect_at_the_next_refresh(guarded: Guarded) -> None:
    with guarded.registry.transaction() as tx:
        secret = tx.api_keys.create("late", ["fit"])
    access = guarded.client.app.state.recalib.access
    assert guarded.ask("get", "/v1/models", secret).status_code == 401
    access.refresh()
    assert guarded.ask("get", "/v1/models", secret).status_code == 200
    with guarded.registry.transaction() as tx:
        tx.api_keys.revoke("late")
    access.refresh()
    assert guarded.ask("get", "/v1/models", secret).status_code == 401


def test_changed_limits_take_effect_at_the_next_refresh(guarded: Guarded) -> None:
    """Limits can be raised and lowered without a restart and without a new key."""
    with guarded.registry.transaction() as tx:
        secret = tx.api_keys.create("hasty", ["fit"])
    access = guarded.client.app.state.recalib.access

    def refused(limits: Limits) -> bool:
        with guarded.registry.transaction() as tx:
            tx.api_keys.limit("hasty", limits)
        access.refresh()
        statuses = [guarded.ask("get", "/v1/models", secret).status_code for _ in range(5)]
        return 429 in statuses

    assert refused(Limits(requests_per_second=0.01))
    assert not refused(Limits(requests_per_second=0))
    assert not refused(Limits(requests_per_second=1e6))


@pytest.fixture
def rpc(guarded: Guarded) -> Iterator[Rpc]:
    with Rpc(f"127.0.0.1:{guarded.client.app.state.grpc_port}") as rpc:
        yield rpc


def _call(rpc: Rpc, service: str, name: str, key: str | None, model: str = "mine") -> Any:
    method = SERVICES[service].methods_by_name[name]
    message = GetMessageClass(method.input_type)()
    for field in ("model", "model_name"):
        if hasattr(message, field):
            setattr(message, field, model)
    if name in ("ModelReady", "ModelMetadata"):
        setattr(message, "name", model)  # noqa: B010  (of a type that mypy does not know)
    if hasattr(message, "header"):
        message.header.model = model
    stub = getattr(rpc, {"TrainingRuns": "training_runs"}.get(service, service.lower()))
    metadata = [] if key is None else [("authorization", f"Bearer {key}")]
    sent = iter([message]) if method.client_streaming else message
    try:
        answer = getattr(stub, method_name(name))(sent, metadata=metadata, timeout=30)
        if method.server_streaming:
            next(iter(answer), None)
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


_NO, _NOT_FOR = grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED


def test_every_rpc_rejects_missing_and_bad_credentials(guarded: Guarded, rpc: Rpc) -> None:
    for name, service, method in GUARDED_METHODS:
        for kind in UNKNOWN:
            key = None if kind is None else guarded.keys[kind]
            assert _call(rpc, service, method, key) is _NO, (name, kind)


@pytest.mark.parametrize("kind", [pytest.param("", marks=pytest.mark.slow), " token"])
def test_every_rpc_rejects_a_key_with_another_scope(guarded: Guarded, rpc: Rpc, kind: str) -> None:
    for name, service, method in GUARDED_METHODS:
        for scope in SCOPES:
            code = _call(rpc, service, method, guarded.keys[scope + kind])
            may = OPERATIONS[name].scope in (scope, "any", "docs") or scope == "admin"
            assert (code is not _NOT_FOR) is may, (name, scope, code)
            assert code is not _NO
        assert _call(rpc, service, method, guarded.keys["token for nothing"]) is _NOT_FOR


def test_every_rpc_rejects_another_tenants_model(guarded: Guarded, rpc: Rpc) -> None:
    for name, service, method in GUARDED_METHODS:
        if OPERATIONS[name].scope in ("any", "docs") or OPERATIONS[name].finds_model:
            continue
        for bound in (guarded.keys["bound"], guarded.keys["bound token"]):
            assert _call(rpc, service, method, bound, "theirs") is _NOT_FOR, name
            if name not in ("create_model", "list_models"):
                assert _call(rpc, service, method, bound, "mine") is not _NOT_FOR, name


def test_another_tenants_job_is_not_found(guarded: Guarded, rpc: Rpc) -> None:
    """The status and the message are those of a job that does not exist."""
    with guarded.registry.transaction() as tx:
        id = tx.jobs.enqueue("fit", {}, model=tx.models.get("theirs")).id
    metadata = [("authorization", f"Bearer {guarded.keys['bound']}")]
    for job in (id, "none"):
        for call, request in (
            (rpc.jobs.get_job, pb.GetJobRequest(id=job)),
            (rpc.jobs.cancel_job, pb.CancelJobRequest(id=job)),
        ):
            error = refused(grpc.StatusCode.NOT_FOUND, call, request, metadata=metadata)
            assert error.details() == f"job {job!r} does not exist"


def test_each_stream_message_is_authorised(guarded: Guarded, rpc: Rpc) -> None:
    kind = GetMessageClass(SERVICES["Calibration"].methods_by_name["CalibrateStream"].input_type)
    pieces = [kind(model="mine"), kind(model="theirs")]
    metadata = [("authorization", f"Bearer {guarded.keys['bound']}")]
    error = refused(
        grpc.StatusCode.INVALID_ARGUMENT,  # it got in, without rows
        rpc.calibration.calibrate_stream,
        iter(pieces),
        metadata=metadata,
    )
    assert "matrix" in error.details()
    error = refused(_NOT_FOR, rpc.calibration.calibrate_stream, iter(pieces[1:]), metadata=metadata)
    assert "theirs" in error.details()


def test_open_rpcs_need_no_key(rpc: Rpc) -> None:
    for name, service, method in METHODS:
        if OPERATIONS[name].scope == "open" and name != "watch":
            assert _call(rpc, service, method, None) is grpc.StatusCode.OK, name


def test_health_without_a_key_is_of_the_whole_server(rpc: Rpc) -> None:
    """The message is not read: it names a service, and may have 64 MiB."""
    answer = rpc.health.check(health_pb2.HealthCheckRequest(service="none"))
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_optional_keys_are_checked_when_they_are_sent(
    database_url: str, blob_url: str, registry: Registry
) -> None:
    settings = Settings(database_url=database_url, blob_url=blob_url, grpc_port=-1)
    with registry.transaction() as tx:
        label = tx.api_keys.create("labels", ["label"])
    with TestClient(create_app(settings)) as client:
        assert client.get("/v1/models").status_code == 200
        headers = {"Authorization": f"Bearer {label}"}
        assert client.get("/v1/models", headers=headers).status_code == 403
        headers = {"Authorization": "Bearer nonsense"}
        assert client.get("/v1/models", headers=headers).status_code == 401


def test_key_that_expires_after_it_was_read_is_rejected(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    with registry.transaction() as tx:
        key = tx.api_keys.create("web", ["predict"], lifetime_seconds=60)
    authenticator = Authenticator(registry, required=True)
    authenticator.refresh()
    header = f"bearer {key}"  # the scheme has no case
    assert authenticator.principal(header).name == "web"
    clock = SimpleNamespace(time=lambda: time.time() + 61)
    monkeypatch.setattr("service.access.authenticator.time", clock)
    with pytest.raises(UnauthorizedError, match="has expired"):
        authenticator.principal(header)


def test_openapi_declares_the_key_for_every_operation() -> None:
    for name, operation in operations(_DOCUMENT).items():
        guarded = OPERATIONS[name].scope != "open"
        assert ("security" in operation) is guarded, name
        assert ({"401", "403", "429"} <= set(operation["responses"])) is guarded, name
