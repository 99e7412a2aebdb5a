"""Errors, health, metrics and the OpenAPI document."""

from __future__ import annotations

import re

import numpy as np
import pytest
from openapi_spec_validator import validate

from recalib import errors
from recalib.registry import Registry
from service.http.problems import PROBLEMS
from tests.service.conftest import Service

pytestmark = pytest.mark.sqlite_only


def test_every_error_has_a_status() -> None:
    """A new error class needs a row in the table."""
    named = {getattr(errors, name) for name in errors.__all__} - {errors.RecalibWarning}
    assert set(PROBLEMS) == named


def test_openapi_document_is_valid(service: Service) -> None:
    document = service.client.get("/openapi.json").json()
    validate(document)
    ids = [
        operation["operationId"]
        for path in document["paths"].values()
        for operation in path.values()
    ]
    assert len(ids) == len(set(ids))
    calibrate = document["paths"]["/v1/models/{model}/calibrate"]["post"]
    names = {parameter["name"] for parameter in calibrate["parameters"]}
    assert names == {
        "model",
        "calibrator",
        "input",
        "top_k",
        "sets",
        "intervals",
        "accepted",
        "ids",
        "segment",
        "group",
    }
    assert "application/x-npy" in calibrate["requestBody"]["content"]


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/v1/models", "GET, POST"),
        ("/v1/models/digits/datasets/validation", "GET, PUT, PATCH, DELETE"),
        ("/v1/models/digits/calibrate", "POST"),
        ("/v1/jobs/1", "GET, DELETE"),
        ("/v2/models/digits/infer", "POST"),
    ],
)
def test_rejected_methods_list_the_allowed_ones(shared: Service, path: str, allowed: str) -> None:
    """RFC 9110 requires it; each route has one method, so the methods of a path are joined."""
    answer = shared.client.request("TRACE", path)
    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)


def test_livez_and_readyz(service: Service) -> None:
    assert service.client.get("/livez").json() == {"live": True}
    ready = service.client.get("/readyz")
    assert ready.status_code == 200
    assert ready.json()["registry"] == "reachable"


def test_loaded_calibrators_serve_without_the_registry(
    ready: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = [[0.0, 1.0, 2.0, 3.0]]
    assert ready.calibrate(row).status_code == 200

    def gone(self: Registry) -> None:
        raise errors.UnavailableError("the database cannot be reached")

    monkeypatch.setattr(Registry, "reading", gone)
    monkeypatch.setattr(Registry, "check", gone)
    assert ready.calibrate(row).status_code == 200
    state = ready.client.get("/readyz")
    assert state.status_code == 200
    assert state.json()["registry"] == "unreachable"
    other = ready.calibrate(row, calibrator="1")
    assert other.status_code == 503
    assert other.headers["retry-after"]
    assert "recalib_registry_up 0.0" in ready.client.get("/metrics").text


def test_not_ready_without_calibrators_and_registry(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(self: Registry) -> None:
        raise errors.UnavailableError("the database cannot be reached")

    monkeypatch.setattr(Registry, "check", gone)
    assert service.client.get("/readyz").status_code == 503
    assert service.client.get("/livez").status_code == 200


def sample(text: str, name: str, **labels: str) -> float:
    for line in text.splitlines():
        match = re.fullmatch(rf"{name}\{{(.*)\}} (\S+)", line)
        if match and all(f'{key}="{value}"' in match[1] for key, value in labels.items()):
            return float(match[2])
    return 0.0


def test_metrics_count_requests_rows_and_fits(ready: Service) -> None:
    def rows() -> float:
        text = ready.client.get("/metrics").text
        return sample(text, "recalib_calibrated_rows_total", model="digits", calibrator="1")

    before = rows()
    ready.calibrate(np.zeros((7, 4)))
    assert rows() == before + 7
    text = ready.client.get("/metrics").text
    route = "/v1/models/{model}/calibrate"
    assert sample(text, "recalib_http_requests_total", route=route, status="200") >= 1
    assert sample(text, "recalib_http_request_duration_seconds_count", route=route) >= 1
    assert sample(text, "recalib_jobs", kind="fit", state="succeeded") == 1


def test_client_text_is_not_a_metric_label(ready: Service) -> None:
    """Otherwise clients could fill the memory of the server and of Prometheus."""
    ready.client.get("/v1/models/evil-name-1")
    ready.client.get("/no/such/evil-path")
    ready.calibrate([[0.0] * 4], model="evil-model")
    ready.calibrate([[0.0] * 4], calibrator="evil-alias")
    assert "evil" not in ready.client.get("/metrics").text
