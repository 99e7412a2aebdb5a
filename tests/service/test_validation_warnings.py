"""A version that cannot stay fresh is named by fits, promotions and settings."""

from __future__ import annotations

import pytest
from sqlalchemy import update

from recalib.registry import tables
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from tests.fitting.conftest import draw_with_wrong_labels
from tests.service.conftest import Service, npz
from tests.service.stubs import Rpc
from tests.service.test_grpc_workflow import fitted

pytestmark = pytest.mark.sqlite_only

_TEXT = "(temperature) on its own validation data is"


@pytest.fixture
def misfit(service: Service) -> Service:
    """A service with rows to which no temperature fits."""
    service.model()
    service.upload(npz(*draw_with_wrong_labels(600, 4, 0.3, seed=2)))
    return service


def settings(service: Service, **values: float) -> list[str]:
    answer = service.client.put("/v1/models/digits/monitoring/settings", json=values)
    assert answer.status_code == 200
    warnings: list[str] = answer.json()["warnings"]
    return warnings


def test_fit_promotion_settings_and_report_warn(misfit: Service) -> None:
    result = misfit.fitted(map="temperature")["result"]
    assert result["promoted"]
    assert [_TEXT in text for text in result["warnings"]] == [True]
    alias = "/v1/models/digits/aliases"
    promoted = misfit.client.put(f"{alias}/champion", json={"version": 1}).json()
    assert [f"version 1 {_TEXT}" in text for text in promoted["warnings"]] == [True]
    assert misfit.client.put(f"{alias}/canary", json={"version": 1}).json()["warnings"] == []
    (text,) = settings(misfit, objective=0.2)
    assert "although it meets the objective of 0.2" in text
    report = misfit.client.get("/v1/models/digits/monitoring").json()
    assert report["warnings"] == [text]


@pytest.mark.slow
def test_larger_tolerance_or_another_map_ends_the_warning(misfit: Service) -> None:
    misfit.fitted(map="temperature")
    assert settings(misfit, objective=0.2, tolerance=0.15) == []
    (text,) = settings(misfit, objective=0.1, tolerance=0.15)
    assert "the tolerance of 0.15 is larger than the objective of 0.1" in text
    settings(misfit)
    result = misfit.fitted(map="auto")["result"]
    assert (result["promoted"], result["warnings"]) == (True, [])
    assert misfit.client.get("/v1/models/digits/monitoring").json()["warnings"] == []


def test_new_model_with_contradicting_settings_warns(service: Service) -> None:
    body = {"name": "m", "classes": 3, "monitoring": {"objective": 0.01}}
    (text,) = service.client.post("/v1/models", json=body).json()["warnings"]
    assert "the tolerance of 0.02 is larger than the objective of 0.01" in text


def test_warnings_over_grpc(misfit: Service, rpc: Rpc) -> None:
    job = fitted(rpc, misfit, map="temperature")
    assert _TEXT in job.result["warnings"][0]
    alias = pb.SetAliasRequest(model="digits", alias="champion", version=1)
    assert _TEXT in rpc.calibrators.set_alias(alias).warnings[0]
    request = pb.SetMonitoringRequest(model="digits", settings=pb.MonitoringSettings(objective=0.2))
    assert _TEXT in rpc.monitoring.set_monitoring(request).warnings[0]
    report = rpc.monitoring.get_monitoring(pb.GetMonitoringRequest(model="digits"))
    assert _TEXT in report.warnings[0]


def test_unreadable_card_does_not_prevent_a_promotion(misfit: Service) -> None:
    misfit.fitted(map="temperature", promote=False)
    with misfit.registry.transaction() as tx:
        tx.connection.execute(update(tables.calibrators).values(card={"map": "temperature"}))
    answer = misfit.client.put("/v1/models/digits/aliases/champion", json={"version": 1})
    assert (answer.status_code, answer.json()["warnings"]) == (200, [])
