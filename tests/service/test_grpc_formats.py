"""Options of gRPC answers; the tests have the names of the REST tests."""

from __future__ import annotations

from typing import Any

import grpc
import numpy as np
import pytest

from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from tests.service.conftest import Service, npz
from tests.service.stubs import Rpc, refused, violations
from tests.service.test_formats import LOGITS
from tests.service.test_grpc_workflow import array, matrix, question

pytestmark = pytest.mark.sqlite_only


def likeliest(answer: pb.CalibrateResponse) -> tuple[Any, Any]:
    """Return the classes and the probabilities, each of shape (N, k)."""
    assert not answer.HasField("probabilities")
    top = answer.top_k.probabilities
    flat = np.frombuffer(top.raw, "<f4") if top.raw else np.array(top.values, np.float32)
    shape = top.rows, top.classes
    return np.array(answer.top_k.classes).reshape(shape), flat.reshape(shape)


@pytest.mark.parametrize("raw", [True, False])
def test_top_k_returns_the_most_likely_classes(
    service: Service, rpc: Rpc, data: Any, raw: bool
) -> None:
    """Indices, labels and probabilities of the most likely classes; in streams as well."""
    names = ["cat", "dog", "owl", "yak"]
    service.model(classes=names)
    service.upload(npz(*data))
    service.fitted()
    logits = matrix(LOGITS, raw)
    all_probabilities = array(rpc.calibration.calibrate(question(LOGITS)))
    answer = rpc.calibration.calibrate(question(LOGITS, matrix=logits, top_k=3, ids=1))
    order = np.argsort(-all_probabilities, axis=1, kind="stable")[:, :3]
    classes, probabilities = likeliest(answer)
    np.testing.assert_array_equal(classes, order)
    expected = np.take_along_axis(all_probabilities, order, axis=1)
    np.testing.assert_array_equal(probabilities, expected)
    assert list(answer.top_k.labels) == [names[k] for k in order.reshape(-1)]
    assert bool(answer.top_k.probabilities.raw) is raw
    assert (answer.calibrator.version, len(answer.prediction_ids)) == (1, len(LOGITS))

    pieces = [question(LOGITS, top_k=1), pb.CalibrateRequest(matrix=logits)]
    first, second = rpc.calibration.calibrate_stream(iter(pieces))
    np.testing.assert_array_equal(likeliest(first)[0], order[:, :1])
    np.testing.assert_array_equal(array(second), all_probabilities)
    assert not second.HasField("top_k")


def test_top_k_works_without_class_labels(ready: Service, rpc: Rpc) -> None:
    answer = rpc.calibration.calibrate(question(LOGITS, top_k=4))
    assert not answer.top_k.labels
    assert likeliest(answer)[0].shape == (len(LOGITS), 4)


@pytest.mark.parametrize("k", [-1, 5, 2**31 - 1])
def test_top_k_outside_its_range_is_rejected(ready: Service, rpc: Rpc, k: int) -> None:
    bad = question(LOGITS, top_k=k)
    error = refused(grpc.StatusCode.INVALID_ARGUMENT, rpc.calibration.calibrate, bad)
    assert str(k) in violations(error)["top_k"]
