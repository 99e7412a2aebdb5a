"""Late labels: each item of a batch has an outcome; the first label of a prediction is kept."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recalib.core.prediction_ids import BatchSummary, mint
from recalib.registry import MonitorRow
from tests.registry.scenes import labels_between
from tests.service.conftest import Service
from tests.service.test_transport import sample
from tests.training.watched import a_champion

pytestmark = pytest.mark.sqlite_only

_DAY = 86_400.0


def ids(
    service: Service, count: int, *, model: str = "digits", age: float = 0.0, key: int | None = None
) -> list[str]:
    """Return new ids of predictions of a model, made `age` seconds ago."""
    with service.registry.transaction() as tx:
        number = tx.models.get(model).id
        signing = tx.signing_keys.first() if key is None else tx.signing_keys.all()[key]
    predictions = BatchSummary([0.75] * count, [0.5] * count, [row % 4 for row in range(count)])
    return mint(signing, number, 1, time.time() - age, predictions)


def post(service: Service, items: Any, model: str = "digits", **more: Any) -> Any:
    return service.client.post(f"/v1/models/{model}/labels", json=items, **more)


def outcomes(service: Service, *items: tuple[str, int | str], model: str = "digits") -> list[Any]:
    """Send labels; return the status of each, with the reason if there is one."""
    answer = post(
        service,
        [{"prediction_id": prediction_id, "label": label} for prediction_id, label in items],
        model,
    )
    assert answer.status_code == 200, answer.text
    body = answer.json()
    statuses = [item["status"] for item in body["items"]]
    assert body["counts"] == {name: statuses.count(name) for name in body["counts"]}
    assert sum(body["counts"].values()) == len(items)
    return [
        item["status"] if "reason" not in item else (item["status"], item["reason"])
        for item in body["items"]
    ]


def stored(service: Service, model: str = "digits") -> list[Any]:
    with service.registry.reading() as tx:
        return labels_between(tx, tx.models.get(model), 1, 0, 1e11)


@pytest.mark.both_databases
def test_labels_are_stored_with_their_predictions(service: Service) -> None:
    service.model()
    first, second = ids(service, 2)
    assert outcomes(service, (first, 3), (second, 1)) == ["accepted", "accepted"]
    rows = stored(service)
    assert [(row.predicted, row.label) for row in rows] in ([(0, 3), (1, 1)], [(1, 1), (0, 3)])
    assert {(row.raw_confidence, row.confidence, row.version) for row in rows} == {(0.75, 0.5, 1)}
    assert outcomes(service) == []


def test_labels_after_the_last_look_are_counted_as_late(service: Service) -> None:
    """They are stored and counted as late; the next monitoring run keeps the count."""
    model = a_champion(service.registry)
    with service.registry.transaction() as tx:
        row = MonitorRow(1, 1, 1, {}, time.time() - 100, {}, {}, {}, 0, 0.0)
        tx.monitors.save(model, row)
    predicted = [
        *ids(service, 3, age=200.0, model="resnet"),
        *ids(service, 2, age=50.0, model="resnet"),
    ]
    items = [(prediction_id, 0) for prediction_id in predicted]
    assert outcomes(service, *items, model="resnet") == ["accepted"] * 5
    assert outcomes(service, *items, model="resnet") == ["duplicate"] * 5
    with service.registry.transaction() as tx:
        tx.monitors.save(model, replace(row, turn=2))
        state = tx.monitors.find(model, 1)
    assert state is not None
    assert (state.turn, state.late) == (2, 3)


@pytest.mark.both_databases
def test_repeated_labels_have_no_effect_and_different_ones_conflict(service: Service) -> None:
    """In later batches and in the same one; the first label is kept and marked as disputed."""
    service.model()
    first, second = ids(service, 2)
    conflict = ("conflict", "labelled 3 before; the first label is kept")
    assert outcomes(service, (first, 3)) == ["accepted"]
    before = stored(service)
    assert outcomes(service, (first, 3)) == ["duplicate"]
    assert stored(service) == before
    assert outcomes(service, (second, 1), (first, 2), (second, 1), (second, 0), (first, 3)) == [
        "accepted",
        conflict,
        "duplicate",
        ("conflict", "labelled 1 before; the first label is kept"),
        "duplicate",
    ]
    assert {(row.label, row.disputed) for row in stored(service)} == {(3, True), (1, True)}


def test_invalid_items_do_not_block_valid_ones(service: Service) -> None:
    """Forged, of another model, expired, from the future, of no class: one outcome each."""
    service.model()
    service.model("other")
    good, changed = ids(service, 2)
    forged = changed[:40] + ("A" if changed[40] != "A" else "B") + changed[41:]
    (foreign,) = ids(service, 1, model="other")
    (expired,) = ids(service, 1, age=30 * _DAY + 60)
    (late,) = ids(service, 1, age=30 * _DAY - 60)
    (early,) = ids(service, 1, age=-240)
    (future,) = ids(service, 1, age=-400)
    results = outcomes(
        service,
        ("nonsense", 0),
        (forged, 0),
        (foreign, 0),
        (expired, 0),
        (future, 0),
        (good, 4),
        (good, -1),
        (good, "cat"),
        (late, 1),
        (early, 1),
        (good, 2),
    )
    assert [result if isinstance(result, str) else result[0] for result in results] == [
        "invalid", "invalid", "invalid", "expired", "invalid", "invalid", "invalid", "invalid",
        "accepted", "accepted", "accepted",
    ]  # fmt: skip
    reasons = [result[1] for result in results[:8]]
    assert len(set(reasons)) == 8
    for reason, word in zip(
        reasons,
        ["88 characters", "changed", "another model", "old", "clocks", "0 to 3", "-1", "'cat'"],
        strict=True,
    ):
        assert word in reason
    assert len(stored(service)) == 3
    assert outcomes(service, (foreign, 0), model="other") == ["accepted"]


def test_ids_of_old_keys_are_valid_until_revocation(
    service: Service,
) -> None:
    service.model()
    old = ids(service, 3)
    with service.registry.transaction() as tx:
        tx.signing_keys.rotate()
        tx.signing_keys.rotate()
    new = ids(service, 3)
    assert outcomes(service, (old[0], 1), (new[0], 1)) == ["accepted", "accepted"]
    with service.registry.transaction() as tx:
        tx.signing_keys.revoke()
    results = outcomes(service, (old[1], 1), (new[1], 1))
    assert results[0][0] == "invalid"
    assert "given up" in results[0][1]
    assert results[1] == "accepted"


def test_labels_can_be_class_names(service: Service) -> None:
    """A name is never read as a number, and a number never as a name."""
    service.model(classes=["1", "0", "cat"])
    batch = ids(service, 4)
    results = outcomes(
        service, (batch[0], "cat"), (batch[1], "0"), (batch[2], 0), (batch[3], "2"), (batch[0], 1)
    )
    assert results == [
        "accepted",
        "accepted",
        "accepted",
        ("invalid", "label '2': none of the model's class labels"),
        ("conflict", "labelled 'cat' before; the first label is kept"),
    ]
    assert sorted(row.label for row in stored(service)) == [0, 1, 2]


def test_batches_over_the_limit_are_rejected(service: Service) -> None:
    """The whole batch is rejected; the client can send two batches instead."""
    service.model()
    many = [{"prediction_id": "x", "label": 0}] * 2_001
    service.client.app.state.recalib.settings.max_labels = 2_000
    assert post(service, many[:2_000]).status_code == 200
    answer = post(service, many)
    assert answer.status_code == 413
    assert answer.json()["errors"][0] == {
        "field": "body", "found": "2001 labels", "accepted": "at most 2000"
    }  # fmt: skip


BAD = [
    (b"{}", "body"),
    (b"[[]]", "[0]"),
    (b'[{"prediction_id": "x"}]', "[0]"),
    (b'[{"prediction_id": "x", "label": 1.5}]', "[0].label"),
    (b'[{"prediction_id": "x", "label": true}]', "[0].label"),
    (b'[{"prediction_id": "x", "label": null}]', "[0].label"),
    (b'[{"prediction_id": 7, "label": 1}]', "[0].prediction_id"),
    (b'[{"prediction_id": "x", "label": 1, "model": 2}]', "[0]"),
    (b"[", "body"),
    (b"", "body"),
    (b"\xff", "body"),
]


@pytest.mark.parametrize(("body", "field"), BAD)
def test_invalid_label_batches_are_rejected(shared: Service, body: bytes, field: str) -> None:
    headers = {"Content-Type": "application/json"}
    answer = shared.client.post("/v1/models/digits/labels", content=body, headers=headers)
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["field"] == field


_TEXTS = st.text(max_size=100) | st.text("AQab09-_", min_size=88, max_size=88)
_LABELS = st.integers(-(2**70), 2**70) | st.text(max_size=20)


@pytest.mark.slow
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(_TEXTS, _LABELS), max_size=5))
@pytest.mark.both_databases
def test_arbitrary_ids_and_labels_are_not_server_errors(
    service: Service, items: list[tuple[str, Any]]
) -> None:
    """Ids and labels have any characters and any length."""
    if not service.client.get("/v1/models").json()["items"]:
        service.model()
    body = json.dumps(
        [{"prediction_id": prediction_id, "label": label} for prediction_id, label in items]
    )
    headers = {"Content-Type": "application/json"}
    answer = service.client.post("/v1/models/digits/labels", content=body, headers=headers)
    assert answer.status_code in (200, 422), answer.text
    if answer.status_code == 200:
        assert {item["status"] for item in answer.json()["items"]} <= {"invalid"}


def test_labels_are_counted_by_outcome(service: Service) -> None:
    service.model()
    first, second = ids(service, 2)

    def counts() -> list[float]:
        text = service.client.get("/metrics").text
        return [
            sample(text, "recalib_labels_total", model="digits", status=status)
            for status in ("accepted", "duplicate", "conflict", "expired", "invalid")
        ]

    before = counts()
    outcomes(service, (first, 0), (second, 0), (first, 0), (first, 1), ("x", 0))
    added = [now - then for now, then in zip(counts(), before, strict=True)]
    assert added == [2, 1, 1, 0, 1]
