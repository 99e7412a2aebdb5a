"""Data sets that are not logits of their model are warned of, and promoted only with `force`."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special
from numpy.typing import NDArray

from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from service.monitoring.flush import flush
from tests.fitting.conftest import draw
from tests.service.conftest import Service, npz
from tests.service.stubs import Rpc

Data = tuple[NDArray[Any], NDArray[Any]]
_OTHER = draw(600, 4, 1.0, seed=7)

WRONG: dict[str, Callable[[NDArray[Any], NDArray[Any]], Data]] = {
    "softmax": lambda z, y: (scipy.special.softmax(z, axis=1), y),
    "percent": lambda z, y: (100 * scipy.special.softmax(z, axis=1), y),
    "scaled": lambda z, y: (10 * z, y),
    "columns": lambda z, y: (np.roll(z, 1, axis=1), y),
    "labels": lambda z, y: (z, np.random.default_rng(0).permutation(y)),
    "another model": lambda z, y: (3 * _OTHER[0], _OTHER[1]),
}


def _fresh(kind: str) -> Data:
    logits, labels = draw(600, 4, 3.0, seed=5)
    return WRONG[kind](logits, labels)


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_data_set_is_not_promoted(ready: Service, kind: str) -> None:
    """Upload and job warn, also with `promote: true`; an alias needs `force` too."""
    answer = ready.upload(npz(*_fresh(kind)), "wrong")
    assert answer.status_code == 201
    assert "only with `force`" in answer.json()["warnings"][0]
    for promote in ("if_better", True):
        result = ready.fitted(dataset="wrong", promote=promote)["result"]
        assert not result["promoted"]
        assert result["reason"].startswith("not promoted without `force`: ")
        assert result["warnings"][0] == answer.json()["warnings"][0]
    alias = "/v1/models/digits/aliases/champion"
    refusal = ready.client.put(alias, json={"version": 2})
    assert refusal.status_code == 409
    assert "`force`" in refusal.json()["detail"]
    assert ready.client.put(alias, json={"version": 2, "force": True}).status_code == 200
    assert ready.client.put(alias, json={"version": 1}).status_code == 200  # a rollback
    assert ready.client.put(alias, json={"version": 2}).status_code == 200  # it was a champion


def test_forced_fit_is_promoted_and_becomes_history(ready: Service) -> None:
    ready.upload(npz(*_fresh("scaled")), "scaled")
    result = ready.fitted(dataset="scaled", promote="if_better", force=True)["result"]
    assert result["promoted"]
    assert "only with `force`" in result["warnings"][0]
    logits, labels = draw(600, 4, 3.0, seed=6)
    assert ready.upload(npz(10 * logits, labels), "again").json()["warnings"] == []


def test_refused_data_sets_are_no_history(ready: Service) -> None:
    """The second softmax output is refused like the first."""
    for number in range(2):
        logits, labels = draw(600, 4, 3.0, seed=number + 20)
        answer = ready.upload(npz(10 * logits, labels), f"scaled-{number}")
        assert "only with `force`" in answer.json()["warnings"][0]


def test_right_data_sets_have_no_warning(ready: Service) -> None:
    """Neither has drift, nor a file of probabilities that is sent as such."""
    logits, labels = draw(600, 4, 6.0, seed=9)
    softmax = scipy.special.softmax(logits, axis=1)
    file = io.BytesIO()
    np.savez(file, probabilities=softmax, labels=labels)
    sent = ready.upload(file.getvalue(), "sent", params={"input": "probabilities"})
    assert sent.json()["warnings"] == []
    assert ready.upload(npz(logits, labels), "drifted").json()["warnings"] == []
    assert ready.upload(npz(logits, labels), "drifted").json()["warnings"] == []  # again
    assert "force" not in str(ready.fitted(dataset="drifted")["result"])


def test_first_data_set_of_probabilities_is_refused(service: Service) -> None:
    service.model()
    answer = service.upload(npz(*_fresh("softmax")))
    assert "sums to 1" in answer.json()["warnings"][0]
    assert not service.fitted()["result"]["promoted"]


def test_grpc_has_the_warnings_and_force(ready: Service, rpc: Rpc) -> None:
    ready.upload(npz(*_fresh("scaled")), "wrong")
    request = pb.CreateCalibratorRequest(model="digits", dataset="wrong", force=True)
    job = rpc.calibrators.create_calibrator(request)
    ready.work()
    assert rpc.jobs.get_job(pb.GetJobRequest(id=job.id)).result["promoted"]
    rows = pb.Matrix(rows=1, classes=4, values=[0.1, 0.2, 0.3, 0.4])
    answer = rpc.calibration.calibrate(pb.CalibrateRequest(model="digits", matrix=rows))
    assert "sums to 1" in answer.warnings[0]


def test_calibrate_and_observations_warn(ready: Service, data: Data) -> None:
    probabilities = scipy.special.softmax(data[0][:50], axis=1)
    answer = ready.calibrate(probabilities)
    assert "sums to 1" in answer.json()["warnings"][0]
    assert "sums to 1" in answer.headers["recalib-warning"]
    assert "warnings" not in ready.calibrate(data[0][:1]).json()
    assert "warnings" not in ready.calibrate(probabilities, input="probabilities").json()
    url = "/v1/models/digits/observations"
    body = {"labels": data[1][:50].tolist(), "times": [0.0] * 50}
    scaled = ready.client.post(url, json=body | {"logits": (5 * data[0][:50]).tolist()}).json()
    assert "times that of the model's earlier data sets" in scaled["warnings"][0]
    same = ready.client.post(url, json=body | {"logits": data[0][:50].tolist()}).json()
    assert "warnings" not in same


def test_live_traffic_is_history(ready: Service, data: Data) -> None:
    """A few rows of each interval are counted; drifted traffic makes drifted data sets usual."""
    logits, labels = draw(600, 4, 9.0, seed=11)
    drifted = npz(3 * logits, labels)
    traffic = ready.client.app.state.recalib.calibrators.traffic  # type: ignore[attr-defined]
    ready.calibrate(3 * logits[:50])
    assert flush(ready.registry, traffic)
    ready.calibrate(3 * logits[50:100])
    assert flush(ready.registry, traffic)
    with ready.registry.reading() as tx:
        history = tx.logit_scales.history(tx.models.get("digits"))
    assert sorted(scale.rows for scale in history) == [100, 600]
    assert "only with" not in str(ready.upload(drifted, "drifted").json()["warnings"])
