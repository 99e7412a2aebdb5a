"""Sums of traffic that another program has counted."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import grpc
import numpy as np
import pytest

from recalib.calibrator import Calibrator
from recalib.core.time_buckets import bucket_start
from recalib.drift.reference_histogram import reference_edges
from recalib.registry import Model
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from service.labels.schemas import TrafficSums
from tests.service.conftest import Service
from tests.service.stubs import Rpc, refused
from tests.training.watched import WATCHING, a_champion

pytestmark = pytest.mark.sqlite_only

_TRAFFIC = "/v1/models/resnet/traffic"


@pytest.fixture
def model(service: Service) -> Model:
    return a_champion(service.registry, replace(WATCHING, segments=("eu",)))


def _bucket(service: Service, model: Model, *, ago: float = 60.0) -> dict[str, Any]:
    """Ten predictions in the middle of each bin."""
    with service.registry.reading() as tx:
        champion = Calibrator.from_bytes(tx.calibrators.parameters(model, 1))
    edges = np.array([0.0, *reference_edges(champion.card), 1.0])
    sums = (5 * (edges[:-1] + edges[1:])).tolist()
    return {
        "started_at": time.time() - ago,
        "predictions": [10] * len(sums),
        "confidence_sums": sums,
    }


def _stored(service: Service, model: Model) -> list[Any]:
    with service.registry.reading() as tx:
        return tx.traffic.between(model, 1, 0, 1e11)


@pytest.mark.both_databases
def test_sums_are_counted_once_by_segment(service: Service, model: Model, rpc: Rpc) -> None:
    """A repeated request with the same key, over either protocol, counts once."""
    bucket = _bucket(service, model)
    body = {"buckets": [bucket, bucket], "segment": "eu"}
    count = 20 * len(bucket["predictions"])
    for _ in range(2):
        answer = service.client.post(_TRAFFIC, json=body, headers={"Idempotency-Key": "a"})
        assert answer.json() == {"accepted": count, "expired": 0}
    request = pb.AddTrafficRequest(
        model="resnet", segment="eu", buckets=[pb.TrafficBucket(**bucket)] * 2
    )
    response = rpc.labels.add_traffic(request, metadata=[("idempotency-key", "a")])
    assert response == pb.AddTrafficResponse(accepted=count)
    rows = _stored(service, model)
    start = bucket_start(bucket["started_at"], 300, WATCHING.cohort_seconds)
    assert {row.started_at for row in rows} == {start}
    assert [(row.segment, row.predictions, row.confidence_count) for row in rows] == [
        (1, 20, 20)
    ] * len(rows)
    expected = [2 * value for value in bucket["confidence_sums"]]
    assert [row.confidence_sum for row in rows] == pytest.approx(expected)


def test_late_sums_are_not_counted(service: Service, model: Model) -> None:
    late = _bucket(service, model, ago=WATCHING.maturity_seconds + 3600)
    answer = service.client.post(_TRAFFIC, json={"buckets": [late] * 200})
    assert answer.json() == {"accepted": 0, "expired": 200 * sum(late["predictions"])}
    assert _stored(service, model) == []


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("predictions", {"predictions": [1]}),
        ("confidence_sums", {"confidence_sums": [0.5]}),
        ("confidence_sums[0]", {"predictions": "one less"}),
        ("started_at", {"started_at": time.time() + 1e6}),
    ],
)
def test_sums_of_other_bins_are_rejected(
    service: Service, model: Model, rpc: Rpc, field: str, change: dict[str, Any]
) -> None:
    """The number of bins, the mean confidence of a bin, and the time are checked."""
    bucket = _bucket(service, model)
    if change == {"predictions": "one less"}:
        change = {"predictions": [0, *bucket["predictions"][1:]]}
    bucket |= change
    answer = service.client.post(_TRAFFIC, json={"buckets": [bucket]})
    assert answer.status_code == 422
    assert f"buckets[0].{field}" in answer.text
    request = pb.AddTrafficRequest(model="resnet", buckets=[pb.TrafficBucket(**bucket)])
    refused(grpc.StatusCode.INVALID_ARGUMENT, rpc.labels.add_traffic, request)
    assert _stored(service, model) == []


def test_labels_of_counted_predictions_add_no_traffic(service: Service, model: Model) -> None:
    body = {"logits": [[1.0, 2.0, 0.0, 0.0]], "labels": [1], "times": [time.time() - 60]}
    path = "/v1/models/resnet/observations"
    answer = service.client.post(path, json={**body, "counted": True})
    assert answer.json()["counts"]["accepted"] == 1
    assert _stored(service, model) == []


def test_sums_of_another_target_are_rejected(service: Service, rpc: Rpc) -> None:
    """Sums of confidences are no sums of P(y = 1), and cannot be told from them by their values."""
    model = a_champion(service.registry, WATCHING, classes=2)
    bucket = _bucket(service, model)
    for target in ({}, {"target": "top_label"}):
        answer = service.client.post(_TRAFFIC, json={"buckets": [bucket], **target})
        assert answer.status_code == 422
        assert "positive_class" in answer.text
    request = pb.AddTrafficRequest(model="resnet", buckets=[pb.TrafficBucket(**bucket)])
    refused(grpc.StatusCode.INVALID_ARGUMENT, rpc.labels.add_traffic, request)
    assert _stored(service, model) == []
    body = {"buckets": [bucket], "target": "positive_class"}
    count = sum(bucket["predictions"])
    header = {"Idempotency-Key": "b"}
    assert service.client.post(_TRAFFIC, json=body, headers=header).json()["accepted"] == count
    request.target = "positive_class"
    rpc.labels.add_traffic(request, metadata=[("idempotency-key", "b")])
    assert sum(row.predictions for row in _stored(service, model)) == count


def test_positive_class_is_no_target_of_more_classes(service: Service, model: Model) -> None:
    body = {"buckets": [_bucket(service, model)], "target": "positive_class"}
    answer = service.client.post(_TRAFFIC, json=body)
    assert answer.status_code == 422
    assert "top_label" in answer.text


def test_default_target_keeps_the_fingerprint_of_a_request() -> None:
    """Requests that earlier versions have stored are recognised."""
    assert TrafficSums(buckets=[]).model_dump() == {"buckets": [], "segment": ""}
    sums = TrafficSums(buckets=[], target="positive_class")
    assert sums.model_dump()["target"] == "positive_class"
