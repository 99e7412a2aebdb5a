"""Models of two classes: which predictions a fit may change, and the thresholds in its result."""

from __future__ import annotations

from typing import Any

import grpc
import numpy as np
import pytest

from recalib.registry import tables
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from tests.service.conftest import Service, npz
from tests.service.stubs import Rpc, refused
from tests.service.test_grpc_workflow import fitted, pieces

pytestmark = pytest.mark.sqlite_only

MODEL = "/v1/models/churn"


def shifted(rows: int = 300) -> bytes:
    """Return scores whose log-odds are 2 too high, and labels: a threshold must move."""
    rng = np.random.default_rng(0)
    odds = rng.normal(size=rows) * 2
    labels = (rng.random(rows) < 1 / (1 + np.exp(2 - odds))).astype(np.int64)
    return npz(np.stack((-odds / 2, odds / 2), axis=1), labels)


def check_result(result: Any, policy: str) -> None:
    """Check what the result of a fit says of a model with this policy."""
    half, equal = (result["thresholds"][name] for name in ("half", "equal"))
    assert half["threshold"] == 0.5
    assert [winner["predictions"] for winner in result["winners"] if winner["chosen"]] == [policy]
    if policy == "keep":
        assert equal["threshold"] == 0.5
        return
    # 2 too high in the log-odds: what was ½ is about 1 / (1 + e²).
    assert equal["threshold"] == pytest.approx(0.119, abs=0.06)
    assert equal["recall"] > half["recall"]
    assert equal["precision"] < half["precision"]


def test_model_decides_which_predictions_fits_change(service: Service) -> None:
    """The option of a fit wins; a model of before keeps the predicted class."""
    client = service.client
    created = client.post("/v1/models", json={"name": "churn", "classes": 2})
    assert created.json()["predictions"] == "may_change"
    assert service.upload(shifted(), model="churn").status_code == 201
    fit = {"model": "churn", "map": "auto", "promote": True}
    job = service.fitted(**fit)
    assert job["state"] == "succeeded", job["error"]
    check_result(job["result"], "may_change")
    check_result(service.fitted(**fit, options={"preserve_accuracy": True})["result"], "keep")
    answer = client.patch(MODEL, json={"predictions": "keep_order"})
    assert answer.json()["predictions"] == client.get(MODEL).json()["predictions"] == "keep_order"
    check_result(service.fitted(**fit)["result"], "keep_order")
    with service.registry.transaction() as tx:
        tx.connection.execute(tables.models.update().values(predictions=None))
    assert client.get(MODEL).json()["predictions"] is None
    check_result(service.fitted(**fit)["result"], "keep")


def test_policy_that_the_model_cannot_have_is_rejected(service: Service) -> None:
    body: dict[str, Any] = {"name": "m", "classes": 3, "predictions": "keep_order"}
    for extra in ({}, {"task": "multilabel", "predictions": "keep"}):
        answer = service.client.post("/v1/models", json=body | extra)
        (error,) = answer.json()["errors"]
        assert (answer.status_code, error["field"]) == (422, "predictions")
    multilabel = {"name": "m", "classes": 3, "task": "multilabel"}
    assert service.client.post("/v1/models", json=multilabel).json()["predictions"] is None
    answer = service.client.patch("/v1/models/m", json={"predictions": "may_change"})
    assert answer.status_code == 422


def test_model_decides_which_predictions_fits_change_over_grpc(service: Service, rpc: Rpc) -> None:
    create = pb.CreateModelRequest(name="churn", classes=2, predictions=pb.PREDICTION_POLICY_KEEP)
    assert rpc.models.create_model(create).predictions == pb.PREDICTION_POLICY_KEEP
    assert rpc.datasets.upload_dataset(pieces(shifted(), model="churn")).created
    fit: dict[str, Any] = {"model": "churn", "map": "auto", "promote": pb.PROMOTE_ALWAYS}
    check_result(fitted(rpc, service, **fit).result, "keep")
    change = pb.UpdateModelRequest(model="churn", predictions=pb.PREDICTION_POLICY_MAY_CHANGE)
    assert rpc.models.update_model(change).HasField("predictions")
    check_result(fitted(rpc, service, **fit).result, "may_change")
    assert not rpc.models.update_model(
        pb.UpdateModelRequest(model="churn", description="of May")
    ).predictions  # it stays: MAY_CHANGE is 0


def test_policy_that_the_model_cannot_have_is_rejected_over_grpc(rpc: Rpc) -> None:
    order = pb.PREDICTION_POLICY_KEEP_ORDER
    for extra in ({}, {"task": pb.TASK_MULTILABEL}):
        create = pb.CreateModelRequest(name="m", classes=3, predictions=order, **extra)
        refused(grpc.StatusCode.INVALID_ARGUMENT, rpc.models.create_model, create)
    unset = pb.CreateModelRequest(name="m", classes=3, task=pb.TASK_MULTILABEL)
    assert not rpc.models.create_model(unset).HasField("predictions")
    change = pb.UpdateModelRequest(model="m", predictions=order)
    refused(grpc.StatusCode.INVALID_ARGUMENT, rpc.models.update_model, change)
