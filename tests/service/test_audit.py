"""The audit trail: changes and refused requests, over REST and gRPC."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import text
from starlette.testclient import TestClient

from recalib.drift import STATES
from recalib.errors import ForbiddenError, InputError, UnavailableError
from recalib.registry import Registry, Transaction, monitors
from recalib.settings import Settings
from service.app import create_app
from service.labels.housekeeping import purge
from service.operations import OPERATIONS
from tests.fitting.conftest import draw
from tests.service.conftest import Service, npz
from tests.service.documented import answers
from tests.service.issuers import AUDIENCE, Issuer, issuer, signing_keys
from tests.service.stubs import SERVICES, Rpc

pytestmark = pytest.mark.sqlite_only

__all__ = ["issuer", "signing_keys"]


@pytest.fixture
def keys(registry: Registry) -> dict[str, str]:
    with registry.transaction() as tx:
        return {
            "root": tx.api_keys.create("root", ["admin"], actor="cli:anna"),
            "web": tx.api_keys.create("web", ["predict"]),
            "bound": tx.api_keys.create("bound", ["admin"], ["digits"]),
        }


@pytest.fixture
def client(
    registry: Registry, database_url: str, blob_url: str, issuer: Issuer, keys: dict[str, str]
) -> Iterator[Any]:
    settings = Settings(
        database_url=database_url,
        blob_url=blob_url,
        grpc_port=0,
        require_keys=True,
        refresh_seconds=3600,
        oidc_issuer=issuer.url,
        oidc_audience=AUDIENCE,
    )
    with TestClient(create_app(settings), raise_server_exceptions=False) as client:
        client.headers["Authorization"] = f"Bearer {keys['root']}"
        yield client


def _trail(client: Any, **query: Any) -> list[tuple[str, str, str | None, str, str]]:
    answer = client.get("/v1/audit", params=query)
    assert answer.status_code == 200, answer.text
    return [
        (item["actor"], item["action"], item["model"], item["target"], item["result"])
        for item in answer.json()["items"]
    ]


@pytest.mark.both_databases
def test_audit_trail_records_actors_and_actions(
    client: Any, registry: Registry, issuer: Issuer, keys: dict[str, str]
) -> None:
    service = Service(client, registry)
    service.model()
    data = npz(*draw(600, 4, 3.0))
    assert service.upload(data).status_code == 201
    # A repeated change has no effect and no entry.
    assert service.upload(data).status_code == 200
    fit = service.ask_fit(map="temperature").json()["id"]
    service.work()
    token = {"Authorization": f"Bearer {issuer.token(scope='recalib:admin', sub='berta')}"}
    second = service.client.post(
        "/v1/models/digits/calibrators", json={"dataset": "validation"}, headers=token
    ).json()["id"]
    for _ in range(2):
        assert client.delete(f"/v1/jobs/{second}", headers=token).status_code == 200
    third = client.post("/v1/models/digits/monitoring/refit").json()["id"]
    changed = client.put("/v1/models/digits/monitoring/settings", json={"tolerance": 0.03})
    assert changed.status_code == 200
    with registry.transaction() as tx:
        tx.api_keys.revoke("web", "cli:anna")
        tx.api_keys.revoke("web", "cli:anna")
    worker = [
        entry
        for entry in _trail(client)
        if entry[0] not in ("root", "oidc:berta", "cli:anna", "cli")
    ]
    assert [entry[1:] for entry in worker] == [("set_alias", "digits", "champion", "done")]
    assert [entry for entry in _trail(client) if entry not in worker] == [
        ("cli:anna", "revoke_key", None, "web", "done"),
        ("root", "set_monitoring", "digits", "digits", "done"),
        ("root", "create_refit", "digits", third, "done"),
        ("oidc:berta", "cancel_job", "digits", second, "done"),
        ("oidc:berta", "create_calibrator", "digits", second, "done"),
        ("root", "create_calibrator", "digits", fit, "done"),
        ("root", "upload_dataset", "digits", "validation", "done"),
        ("root", "create_model", "digits", "digits", "done"),
        ("cli", "create_key", None, "bound", "done"),
        ("cli", "create_key", None, "web", "done"),
        ("cli:anna", "create_key", None, "root", "done"),
    ]
    rolled = client.put(
        "/v1/models/digits/aliases/canary", json={"version": 1, "reason": "try\r\nX: \x1b[2J\u202e"}
    )
    assert rolled.status_code == 200
    (entry,) = client.get("/v1/audit?limit=1").json()["items"]
    assert (entry["target"], entry["detail"]) == ("canary", r"version 1: try\r\nX: \x1b[2J\u202e")
    # No entry contains a secret.
    everything = client.get("/v1/audit?limit=1000").text
    assert not any(secret in everything for secret in keys.values())


@pytest.mark.both_databases
def test_audit_trail_has_pages_and_filters(client: Any, registry: Registry) -> None:
    with registry.transaction() as tx:
        for number in range(7):
            tx.audit.record("cli:x" if number % 2 else "root", "set_alias", f"m{number % 3}", "a")
    everything = _trail(client)
    entries, cursor = [], None
    while True:
        more = {} if cursor is None else {"cursor": cursor}
        page = client.get("/v1/audit", params={"limit": 4, **more}).json()
        entries += [item["id"] for item in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert len(entries) == len(everything)
    assert entries == sorted(entries, reverse=True)
    assert len(_trail(client, actor="cli:x")) == 3
    assert len(_trail(client, model="m1")) == 2
    assert len(_trail(client, action="set_alias", actor="root", model="m0")) == 2
    assert _trail(client, actor="unknown") == []
    for query in ({"cursor": "eA=="}, {"actor": "\0"}, {"limit": 0}):
        assert client.get("/v1/audit", params=query).status_code == 422


def test_admins_see_only_entries_of_their_models(
    client: Any, registry: Registry, keys: dict[str, str]
) -> None:
    with registry.transaction() as tx:
        for model in ("digits", "other"):
            tx.audit.record("root", "set_alias", model, "champion")
    bound = {"Authorization": f"Bearer {keys['bound']}"}
    web = {"Authorization": f"Bearer {keys['web']}"}
    assert client.get("/v1/audit", headers=web).status_code == 403
    for query, status in (("", 403), ("?model=other", 403), ("?model=digits", 200)):
        assert client.get(f"/v1/audit{query}", headers=bound).status_code == status
    assert [entry[2] for entry in _trail(client, model="digits")] == ["digits"]


class _Away:
    """A registry that cannot be reached."""

    def transaction(self) -> None:
        raise UnavailableError("away")


@pytest.mark.both_databases
def test_refused_requests_are_recorded_with_a_limit(
    client: Any, registry: Registry, keys: dict[str, str]
) -> None:
    """Also if the registry was away when they were to be written."""
    web = {"Authorization": f"Bearer {keys['web']}"}
    bound = {"Authorization": f"Bearer {keys['bound']}"}
    for _ in range(3):
        assert client.post("/v1/models", json={}, headers=web).status_code == 403
    alias = "/v1/models/other/aliases/champion"
    assert client.put(alias, json={"version": 1}, headers=bound).status_code == 403
    # Reading is not a change; an invalid model name is not recorded.
    assert client.get("/v1/models", headers=web).status_code == 403
    ugly = client.put("/v1/models/a%0Ab/aliases/champion", json={"version": 1}, headers=web)
    assert ugly.status_code == 403
    access = client.app.state.recalib.access
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(access, "registry", _Away())
        with pytest.raises(UnavailableError):
            access.write_refusals()
    access.write_refusals()
    access.write_refusals()
    assert [entry for entry in _trail(client) if entry[4] == "refused"] == [
        ("bound", "set_alias", "other", "other", "refused"),
        ("web", "set_alias", None, "", "refused"),
        ("web", "create_model", None, "", "refused"),
    ]
    details = [
        item["detail"] for item in client.get("/v1/audit?action=create_model").json()["items"]
    ]
    assert details == ["3 times"]
    access._refused.clear()
    principal = access.principal(web["Authorization"])
    for number in range(1000):
        with pytest.raises(ForbiddenError):
            access.authorise(principal, OPERATIONS["set_alias"], f"m{number}")
    with pytest.raises(ForbiddenError):
        access.authorise(principal, OPERATIONS["delete_model"], "m")
    other = access.principal(bound["Authorization"])
    with pytest.raises(ForbiddenError):
        access.authorise(other, OPERATIONS["set_alias"], "secret")
    access.write_refusals()
    # Decoys hide neither another operation nor another caller.
    *_, after = [entry for entry in _trail(client) if entry[4] == "refused"][::-1]
    assert after == ("bound", "set_alias", "secret", "secret", "refused")
    entries = client.get("/v1/audit?actor=web&limit=1000").json()["items"]
    # The trail begins with the newest entry.
    counts = {item["action"]: item["detail"] for item in entries[::-1] if item["model"] is None}
    assert counts["set_alias"] == "950 times"
    assert counts["delete_model"] == ""


def test_grpc_and_rest_return_the_same_entries(
    client: Any, registry: Registry, keys: dict[str, str]
) -> None:
    with registry.transaction() as tx:
        tx.audit.record("root", "set_alias", "digits", "champion", "version 1 to 2: better")
    request = SERVICES["Audit"].methods_by_name["ListAudit"].input_type._concrete_class
    metadata = [("authorization", f"Bearer {keys['root']}")]
    with Rpc(f"127.0.0.1:{client.app.state.grpc_port}") as rpc:
        page = rpc.audit.list_audit(request(limit=1), metadata=metadata)
        (entry,) = page.items
        assert (entry.actor, entry.action, entry.model) == ("root", "set_alias", "digits")
        assert (entry.target, entry.detail) == ("champion", "version 1 to 2: better")
        assert entry.result == "done"
        assert page.next_cursor
        rest = rpc.audit.list_audit(request(cursor=page.next_cursor), metadata=metadata)
        assert [item.action for item in rest.items] == ["create_key"] * 3
        assert not rest.items[0].HasField("model")
        none = rpc.audit.list_audit(request(actor="unknown"), metadata=metadata)
        assert list(none.items) == []


@pytest.mark.both_databases
def test_old_entries_and_idempotency_answers_expire(registry: Registry) -> None:
    with registry.transaction() as tx:
        for kind in ("old", "new"):
            tx.audit.record("root", kind, None, "x")
            tx.idempotency.store(kind, "create_model", "f", 201, b"{}")
        for table, column in (("audit", "action"), ("idempotency", "key")):
            column_of = "at" if table == "audit" else "created_at"
            _age(tx, table, column_of, column)
    purge(registry, Settings(audit_seconds=86_000.0))
    with registry.reading() as tx:
        assert [entry.action for entry in tx.audit.page(None, 10)] == ["new"]
        assert tx.idempotency.find("old", "create_model") is None
        assert tx.idempotency.find("new", "create_model") is not None


def _age(tx: Transaction, table: str, at: str, name: str) -> None:
    tx.connection.execute(
        text(f"UPDATE {table} SET {at} = {at} - 86500 WHERE {name} = 'old'")  # noqa: S608
    )


def test_dropped_candidates_and_state_changes_are_recorded(registry: Registry) -> None:
    with registry.transaction() as tx:
        model = tx.models.create("m", None, 2, "anna")
        for kind in (*STATES, "dropped"):
            tx.monitors.record(model, 1, kind, "monitor", "because")
    with registry.reading() as tx:
        (entry,) = tx.audit.page(None, 10)
    assert (entry.action, entry.actor, entry.target) == (
        "candidate_dropped",
        "monitor",
        "version 1",
    )
    assert tuple(monitors._STATES) == STATES


def test_reserved_key_names_are_rejected(registry: Registry) -> None:
    for name in ("anonymous", "monitor", "cli", "worker"):
        with pytest.raises(InputError, match="reserved"), registry.transaction() as tx:
            tx.api_keys.create(name, ["fit"])


def test_every_change_has_an_audit_rule() -> None:
    changes = {
        operation["operationId"]
        for path, of_path in answers().document["paths"].items()
        for verb, operation in of_path.items()
        if verb != "get" and path.startswith("/v1")
    }
    # Labels, observations and traffic are records themselves; calibrating changes nothing.
    records = {"add_labels", "add_observations", "add_traffic"}
    unaudited = {name for name in changes if not OPERATIONS[name].mutates}
    assert unaudited == {"calibrate", *records}
