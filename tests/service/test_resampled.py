"""Fits on a server for classifiers whose training was rebalanced."""

from __future__ import annotations

from typing import Any

import grpc
import numpy as np
import pytest

import recalib
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from tests.service.conftest import Service
from tests.service.stubs import Rpc, refused, violations
from tests.service.test_bad_input import check
from tests.service.test_grpc_workflow import fitted as fitted_by_rpc

pytestmark = pytest.mark.sqlite_only

WEIGHTS = [1.0, 2.0, 1.0, 4.0]
LOGITS = np.array([[0.0, 1.5, -2.0, 3.0], [4.0, 0.0, 0.25, -1.0]], np.float32)


@pytest.mark.filterwarnings("ignore::recalib.errors.RecalibWarning")
@pytest.mark.parametrize("map", ["vector", pytest.param("auto", marks=pytest.mark.slow)])
def test_fit_is_that_of_the_library(ready: Service, data: Any, map: str) -> None:
    job = ready.fitted(map=map, resampled={"class_weight": WEIGHTS}, promote=True)
    assert job["state"] == "succeeded", job
    expected = recalib.fit(*data, map, resampled={"class_weight": WEIGHTS})
    answer = ready.calibrate(LOGITS).json()
    assert answer["calibrator"]["map"] == "stack"
    np.testing.assert_allclose(answer["probabilities"], expected.predict(LOGITS), atol=1e-5)


def test_rpc_has_the_weights(ready: Service, rpc: Rpc) -> None:
    weights = {"class_weight": "balanced"}
    fitted_by_rpc(rpc, ready, resampled=weights, promote=pb.PROMOTE_ALWAYS)
    card = ready.client.get("/v1/models/digits/calibrators/2").json()["card"]
    assert len(card["options"]["class_weight"]) == 4


@pytest.mark.parametrize(
    ("options", "field", "text"),
    [
        ({"resampled": {"rate": [1, 1, 1, 0.5]}}, "resampled.class_weight", "required"),
        ({"resampled": {"class_weight": [1, 2]}}, "resampled.class_weight", "4 positive numbers"),
        ({"resampled": {"class_weight": [1, 2, 0, 1]}}, "resampled.class_weight", "4 positive"),
        (
            {"resampled": {"class_weight": WEIGHTS}, "objective": "brier"},
            "resampled",
            "a map by nll",
        ),
    ],
)
def test_impossible_fits_are_refused(
    ready: Service, options: dict[str, Any], field: str, text: str
) -> None:
    answer = ready.ask_fit(**options)
    check(answer, 422, field)
    assert text in answer.text


def test_rpc_names_the_field(ready: Service, rpc: Rpc) -> None:
    request = pb.CreateCalibratorRequest(model="digits", dataset="validation")
    request.resampled.update({"class_weight": [1, 2]})
    error = refused(grpc.StatusCode.INVALID_ARGUMENT, rpc.calibrators.create_calibrator, request)
    assert "4 positive numbers" in violations(error)["resampled.class_weight"]
