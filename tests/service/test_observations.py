"""Observations: predictions of other systems, monitored like served ones, counted once."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from typing import Any

import grpc
import numpy as np
import pytest
from sqlalchemy import update

from recalib.calibrator import Calibrator
from recalib.core.group_numbers import group_number
from recalib.core.prediction_ids import summarise_predictions
from recalib.drift.calibration_sums import left_closed_bins
from recalib.drift.reference_histogram import reference_edges
from recalib.registry import Model, MonitorRow, monitoring_tables
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from service.serving.logit_sampling import write_captures
from tests.fitting.conftest import draw
from tests.registry.scenes import labels_between
from tests.service.conftest import Service
from tests.service.stubs import Rpc, refused, violations
from tests.service.test_labels import ids, outcomes
from tests.training.watched import WATCHING, Stream, a_champion
from training.logit_samples import read_labelled_sample
from training.monitoring_job import watch

pytestmark = pytest.mark.sqlite_only

OBSERVATIONS = "/v1/models/resnet/observations"


@pytest.fixture
def model(service: Service) -> Model:
    """A model with a champion of temperature 3, a segment, and capture of all logits."""
    return a_champion(service.registry, replace(WATCHING, capture=1.0, segments=("eu",)))


def batch(rows: int = 6, *, ago: float = 60.0, **more: Any) -> dict[str, Any]:
    logits, labels = draw(rows, 4, 3.0, seed=5)
    times = (time.time() - ago + np.arange(rows) / 100).tolist()
    logits = logits.astype(np.float32)
    return {"logits": logits.tolist(), "labels": labels.tolist(), "times": times, **more}


def post(service: Service, body: dict[str, Any], **more: Any) -> list[tuple[str, str]]:
    answer = service.client.post(OBSERVATIONS, json=body, **more)
    assert answer.status_code == 200, answer.text
    result = answer.json()
    items = [(item["status"], item.get("reason", "")) for item in result["items"]]
    assert result["counts"] == {
        name: [item[0] for item in items].count(name) for name in result["counts"]
    }
    return items


def stored(service: Service, model: Model) -> tuple[list[Any], int]:
    with service.registry.reading() as tx:
        rows = labels_between(tx, model, 1, 0, 1e11)
        return rows, sum(count.predictions for count in tx.traffic.between(model, 1, 0, 1e11))


@pytest.mark.both_databases
def test_observations_are_stored_like_served_predictions(service: Service, model: Model) -> None:
    """With both confidences, in the buckets and bins of their times and segment."""
    sent = batch(segment="eu")
    assert {status for status, _ in post(service, sent)} == {"accepted"}
    rows, counted = stored(service, model)
    assert counted == 6
    logits = np.array(sent["logits"], np.float32)
    with service.registry.reading() as tx:
        champion = Calibrator.from_bytes(tx.calibrators.parameters(model, 1))
        traffic = tx.traffic.between(model, 1, 0, 1e11)
    summary = summarise_predictions(logits, champion.predict_float32(logits))
    assert [row.predicted_at for row in rows] == pytest.approx(sent["times"])
    assert [row.confidence for row in rows] == pytest.approx(summary.confidences)
    assert [row.raw_confidence for row in rows] == pytest.approx(summary.raw_confidences)
    assert [(row.predicted, row.label) for row in rows] == list(
        zip(summary.predicted, sent["labels"], strict=True)
    )
    assert {(item.segment, item.started_at % WATCHING.cohort_seconds) for item in traffic} == {
        (1, 0)
    }


def test_observations_of_two_classes_are_counted_by_the_positive_class(service: Service) -> None:
    model = a_champion(service.registry, WATCHING, classes=2)
    logits, labels = draw(40, 2, 3.0, seed=5)
    times = (time.time() - 60 + np.arange(40) / 100).tolist()
    logits = logits.astype(np.float32)
    body = {"logits": logits.tolist(), "labels": labels.tolist(), "times": times}
    assert {status for status, _ in post(service, body)} == {"accepted"}
    with service.registry.reading() as tx:
        champion = Calibrator.from_bytes(tx.calibrators.parameters(model, 1))
        traffic = tx.traffic.between(model, 1, 0, 1e11)
    p = champion.predict_float32(logits)[:, 1]
    assert sum(count.confidence_sum for count in traffic) == pytest.approx(p.sum())
    bins = np.bincount(left_closed_bins(reference_edges(champion.card), p))
    counted = np.bincount([c.bin for c in traffic], [c.predictions for c in traffic])
    assert counted.tolist() == bins.tolist()


def test_observations_are_counted_by_watched_class(service: Service, model: Model) -> None:
    """With the class that the calibrator predicts; a repeat is not counted again."""
    watching = replace(model.monitoring, classes=("1", "3"))
    with service.registry.transaction() as tx:
        tx.models.set_monitoring("resnet", watching)
    sent = batch(40)
    for _ in range(2):
        post(service, sent)
    rows, _ = stored(service, model)
    expected = Counter(row.predicted for row in rows if row.predicted in (1, 3))
    with service.registry.reading() as tx:
        counts = tx.class_traffic.between(model, 1, 0, 1e11)
    assert len(expected) == 2
    assert {count.predicted: count.predictions for count in counts} == expected


@pytest.mark.both_databases
def test_repeated_observations_are_counted_once(service: Service, model: Model, rpc: Rpc) -> None:
    """A repeated batch, a part over gRPC, and twice in one batch; a different label conflicts."""
    sent = batch()
    post(service, sent)
    assert {status for status, _ in post(service, sent)} == {"duplicate"}
    part = np.array(sent["logits"][:2], np.float32)
    request = pb.AddObservationsRequest(
        model="resnet",
        logits=pb.Matrix(rows=2, classes=4, datatype=pb.DATATYPE_FP32, raw=part.tobytes()),
        labels=[sent["labels"][0], (sent["labels"][1] + 1) % 4],
        times=sent["times"][:2],
    )
    answer = rpc.labels.add_observations(request)
    assert [item.status for item in answer.items] == [
        pb.LABEL_STATUS_DUPLICATE, pb.LABEL_STATUS_CONFLICT,
    ]  # fmt: skip
    assert (answer.counts.duplicate, answer.counts.conflict) == (1, 1)
    twice = batch(2, ago=30.0)
    doubled = {name: [*column, *column] for name, column in twice.items()}
    statuses = [status for status, _ in post(service, doubled)]
    assert statuses == ["accepted", "accepted", "duplicate", "duplicate"]
    rows, counted = stored(service, model)
    assert len(rows) == counted == 8
    other = {**batch(2, ago=30.0, segment="eu"), "times": twice["times"]}
    assert [status for status, _ in post(service, other)] == ["accepted", "accepted"]
    # The logits of each new row are stored once.
    captures = service.client.app.state.recalib.calibrators.traffic.captures  # type: ignore[attr-defined]
    # Files are written only after a while, for predictions of any age.
    assert write_captures(service.registry, captures, 20.0) == 0
    assert write_captures(service.registry, captures, 0.0) == 1
    sample = read_labelled_sample(service.registry, model, 1, 0, time.time() + 60)
    assert (len(sample), sample.sampled) == (10, 10)


def test_observations_are_monitored_in_their_cohort(service: Service, model: Model) -> None:
    """An overconfident stream of observations becomes stale, like served predictions."""
    report = watched(service, model, copies=1)
    assert report["state"] == "stale"
    assert (report["evidence"]["n"], report["evidence"]["coverage"]) == (900, 1.0)


def test_copies_of_an_observation_in_a_group_count_once(service: Service, model: Model) -> None:
    evidence = watched(service, model, copies=3, groups=[f"{row // 3}" for row in range(900)])[
        "evidence"
    ]
    assert (evidence["n"], evidence["units"], evidence["labels"]) == (900, 300, 300)


def watched(service: Service, model: Model, *, copies: int, **more: Any) -> dict[str, Any]:
    """Return the monitoring after 900 observations of an overconfident stream, in copies."""
    logits, labels = (
        np.repeat(part, copies, axis=0) for part in draw(900 // copies, 4, 9.0, seed=2)
    )
    now = time.time()
    times = (now - 100 + np.arange(900) / 90).tolist()  # before they mature
    sent = {"logits": logits.astype(np.float32).tolist(), "labels": labels.tolist(), **more}
    statuses = {status for status, _ in post(service, {**sent, "times": times})}
    assert statuses == {"accepted"}
    with service.registry.transaction() as tx:  # as if two minutes had passed
        declared = replace(model.monitoring, maturity_seconds=1.0, cohort_seconds=1.0)
        tx.models.set_monitoring("resnet", replace(declared, segments=("eu",)))
        table = monitoring_tables.labels
        tx.connection.execute(update(table).values(labelled_at=table.c.predicted_at + 0.5))
        model = tx.models.get("resnet")
    watch(service.registry, model)
    report: dict[str, Any] = service.client.get("/v1/models/resnet/monitoring").json()
    return report


@pytest.mark.parametrize("seconds", [7.0, 2.5])
def test_short_cohorts_count_their_own_traffic(service: Service, seconds: float) -> None:
    """Of cohorts shorter than a bucket of traffic, none has predictions of another."""
    model = a_champion(service.registry, replace(WATCHING, cohort_seconds=seconds))
    logits, labels = draw(600, 4, 3.0, seed=2)
    times = (time.time() - 50 + np.arange(600) / 15).tolist()
    sent = {"logits": logits.astype(np.float32).tolist(), "labels": labels.tolist()}
    assert {status for status, _ in post(service, {**sent, "times": times})} == {"accepted"}
    with service.registry.transaction() as tx:  # as if two minutes had passed
        declared = replace(model.monitoring, maturity_seconds=1.0)
        tx.models.set_monitoring("resnet", declared)
        table = monitoring_tables.labels
        tx.connection.execute(update(table).values(labelled_at=table.c.predicted_at + 0.5))
    watch(service.registry, model)
    report = service.client.get("/v1/models/resnet/monitoring").json()
    windows = [window["measured"] for window in report["windows"]]
    assert len(windows) > 5
    assert {window["labelled"] - window["traffic"] for window in windows} == {0}
    assert {window["coverage"] for window in windows} == {1.0}


def test_invalid_observations_do_not_block_valid_ones(service: Service, model: Model) -> None:
    """Labels of unknown or masked classes, future times, and rows of closed cohorts."""
    sent = batch(7)
    sent["logits"][1][2] = None
    sent["labels"][1] = 2
    sent["labels"][2] = 4
    sent["labels"][3] = "cat"
    sent["times"][4] = time.time() + 4_000
    sent["times"][5] = time.time() - 500
    sent["times"][6] = -1e9
    with service.registry.transaction() as tx:  # as after a shorter maturity, or a fast clock
        read = MonitorRow(1, 1, 1, {}, time.time() - 30, {}, {}, {}, 0, 0.0)
        tx.monitors.save(model, read)
    past = post(service, batch(2, ago=90.0))
    assert [status for status, _ in past] == ["expired", "expired"]
    assert "read already" in past[0][1]
    sent["times"] = [
        predicted_at + 55 if row < 5 else predicted_at
        for row, predicted_at in enumerate(sent["times"])
    ]
    results = post(service, sent)
    assert [status for status, _ in results] == [
        "accepted", "invalid", "invalid", "invalid", "invalid", "expired", "expired",
    ]  # fmt: skip
    for (_, reason), word in zip(
        results, ("", "masked", "0 to 3", "without names", "clock", "replay", "replay"), strict=True
    ):
        assert word in reason
    assert stored(service, model)[1] == 1


def test_observations_recover_from_a_clock_set_back(service: Service, model: Model) -> None:
    """Until the old time is reached, new rows fall into assessed time: rejected, or late.

    No accepted row is skipped or assessed twice; afterwards all rows are accepted again.
    """

    def set_back(seconds: float) -> None:
        with service.registry.transaction() as tx:
            for table, names in (
                (monitoring_tables.labels, ("predicted_at", "labelled_at")),
                (monitoring_tables.traffic, ("started_at",)),
                (monitoring_tables.monitors, ("through", "assessed_at")),
            ):
                values = {name: table.c[name] + int(seconds) for name in names}
                tx.connection.execute(update(table).values(**values))

    def read() -> tuple[int, int]:
        watch(service.registry, model)
        with service.registry.reading() as tx:
            row = tx.monitors.find(model, 1)
        assert row is not None
        return sum(row.totals["labelled"]), row.late

    Stream(service.registry, model).send(300, ago=400)
    assert read() == (300, 0)
    set_back(3_600)
    results = post(service, batch())
    assert {status for status, _ in results} == {"expired"}
    assert "the clock was set back" in results[0][1]
    items = [(prediction_id, 0) for prediction_id in ids(service, 4, model="resnet", age=10.0)]
    assert outcomes(service, *items, model="resnet") == ["accepted"] * 4
    assert read() == (300, 4)
    set_back(-3_600)
    assert {status for status, _ in post(service, batch())} == {"accepted"}
    assert read() == (300, 4)


def test_groups_of_observations_are_stored(service: Service, model: Model, rpc: Rpc) -> None:
    """Over both protocols; a group is the same in each, and "" is none."""
    names = ["a", "a", "", "b", "", ""]
    sent = batch(groups=names)
    assert {status for status, _ in post(service, sent)} == {"accepted"}
    part = np.array(sent["logits"][:1], np.float32)
    request = pb.AddObservationsRequest(
        model="resnet",
        logits=pb.Matrix(rows=1, classes=4, datatype=pb.DATATYPE_FP32, raw=part.tobytes()),
        labels=sent["labels"][:1],
        times=[time.time()],
        groups=["b"],
    )
    assert rpc.labels.add_observations(request).counts.accepted == 1
    rows, _ = stored(service, model)
    assert [row.group_number for row in rows] == [group_number(name) for name in [*names, "b"]]
    with service.registry.reading() as tx:
        columns = tx.labels.columns(model, 1, 0, 1e11)
    assert columns.group.tolist() == [row.group_number for row in rows]


SENSELESS: list[tuple[dict[str, Any], str]] = [
    ({"labels": [0]}, "labels"),
    ({"times": [0.0] * 9}, "times"),
    ({"groups": ["a"] * 9}, "groups"),
    ({"groups": [1] * 6}, "groups[0]"),
    ({"logits": []}, "logits"),
    ({"logits": [[0.0, 1.0]] * 6}, "logits"),
    ({"logits": [[0.0] * 4] * 5 + [[0.0]]}, "logits[5]"),
    ({"logits": [[None] * 4] * 6}, "logits[0]"),
    ({"times": ["now"] * 6}, "times[0]"),
    ({"id": 7}, "id"),
]


def test_invalid_batches_are_rejected_by_field(service: Service, model: Model) -> None:
    for changes, field in SENSELESS:
        answer = service.client.post(OBSERVATIONS, json={**batch(), **changes})
        assert answer.status_code == 422, changes
        assert field in answer.text, changes
    assert stored(service, model) == ([], 0)


def test_grpc_rejects_invalid_observations(service: Service, model: Model, rpc: Rpc) -> None:
    """Times that are not numbers, labels in both forms, and an unknown version."""
    matrix = pb.Matrix(rows=1, classes=4, values=[1, 0, 0, 0])

    def ask(code: grpc.StatusCode, **more: Any) -> Any:
        message = {"model": "resnet", "logits": matrix, "labels": [0], "times": [1.0], **more}
        return refused(code, rpc.labels.add_observations, pb.AddObservationsRequest(**message))

    invalid = grpc.StatusCode.INVALID_ARGUMENT
    assert "times[0]" in violations(ask(invalid, times=[float("nan")]))
    assert "labels" in violations(ask(invalid, label_names=["a"]))
    assert "matrix" in violations(ask(invalid, logits=pb.Matrix()))
    large = np.array([[0, 4e38, 0, 0]])  # infinite in float32
    raw = pb.Matrix(rows=1, classes=4, datatype=pb.DATATYPE_FP64, raw=large.tobytes())
    assert "logits[0][1]" in violations(ask(invalid, logits=raw))
    ask(grpc.StatusCode.NOT_FOUND, calibrator="9")


def test_observations_accept_class_names_and_a_version(service: Service) -> None:
    """As for labels; a version other than the champion is counted separately."""
    a_champion(service.registry)
    service.model("named")
    answer = service.client.post(
        "/v1/models/named/observations", json={"logits": [[0, 1]], "labels": [0], "times": [0]}
    )
    assert (answer.status_code, "champion" in answer.text) == (409, True)
    sent = batch(3)
    assert post(service, sent, params={"calibrator": "1"})[0][0] == "accepted"
    assert post(service, sent)[0][0] == "duplicate"
