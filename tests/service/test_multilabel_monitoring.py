"""Monitoring of multilabel models: ids, observations, one drawn label of each row, states."""

from __future__ import annotations

import base64
import io
import math
import time
from dataclasses import replace
from typing import Any

import grpc
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import update

import recalib
from recalib import Calibrator
from recalib.registry import Model, monitoring_tables
from recalib.registry.job_kinds import REFIT
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from service.serving.logit_sampling import write_captures
from tests.registry.scenes import labels_between
from tests.service.conftest import Service
from tests.service.stubs import Rpc, refused, violations
from tests.service.test_bad_input import check
from tests.service.test_grpc_workflow import question
from tests.service.test_uploaded_calibrators import upload_json
from training.logit_samples import read_labelled_sample
from training.monitoring_job import watch
from training.shadow_comparison import compare

pytestmark = pytest.mark.sqlite_only

NAMES = ["red", "round", "ripe"]
URL = "/v1/models/tagger"


def draw(rows: int, seed: int, sharpness: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Log-odds and labels (N, 3) that occur together; above 1 the log-odds are too large."""
    rng = np.random.default_rng(seed)
    z = rng.normal(0, 2, (rows, 3)).astype(np.float32)
    labels = rng.random((rows, 1)) < 1 / (1 + np.exp(-z))
    return z * np.float32(sharpness), labels


@pytest.fixture
def champion(service: Service) -> Calibrator:
    """The champion of the multilabel model `tagger`, the identity."""
    body = {"name": "tagger", "classes": NAMES, "task": "multilabel"}
    assert service.client.post("/v1/models", json=body).status_code == 201
    fitted = recalib.fit(*draw(300, 0), "identity", task="multilabel")
    service.client.post(f"{URL}/calibrators", json=upload_json(fitted, promote=True))
    service.work()
    return fitted


def body(rows: int = 20, *, ago: float = 60.0, sharpness: float = 1.0) -> dict[str, Any]:
    logits, labels = draw(rows, 5, sharpness)
    times = (time.time() - ago + np.arange(rows) / 1000).tolist()
    present = [np.flatnonzero(row).tolist() for row in labels]
    return {"logits": logits.tolist(), "labels": present, "times": times}


def statuses(service: Service, sent: dict[str, Any]) -> list[str]:
    answer = service.client.post(f"{URL}/observations", json=sent)
    assert answer.status_code == 200, answer.text
    return [item["status"] for item in answer.json()["items"]]


def model_of(service: Service) -> Model:
    with service.registry.reading() as tx:
        return tx.models.get("tagger")


@pytest.mark.both_databases
def test_row_is_stored_with_one_drawn_label(
    service: Service, champion: Calibrator, rpc: Rpc
) -> None:
    """With the label's probability and whether it is there; a repeat over gRPC is a duplicate."""
    sent = body()
    assert set(statuses(service, sent)) == {"accepted"}
    with service.registry.reading() as tx:
        model = tx.models.get("tagger")
        rows = labels_between(tx, model, 1, 0, 1e11)
        counted = sum(count.predictions for count in tx.traffic.between(model, 1, 0, 1e11))
    assert len(rows) == counted == 20
    assert {row.predicted for row in rows} == {0, 1, 2}
    logits = np.array(sent["logits"], np.float32)
    drawn = np.array([row.predicted for row in rows])
    expected = champion.predict(logits)[np.arange(20), drawn]
    assert [row.confidence for row in rows] == pytest.approx(expected.tolist())
    present = [k in labels for k, labels in zip(drawn, sent["labels"], strict=True)]
    assert [row.label == row.predicted for row in rows] == present
    assert 0 < sum(present) < 20

    matrix = pb.Matrix(rows=20, classes=3, datatype=pb.DATATYPE_FP32, raw=logits.tobytes())
    sets = [pb.LabelSet(names=[NAMES[k] for k in labels]) for labels in sent["labels"]]
    sets[0] = pb.LabelSet(indices={0, 1, 2} - set(sent["labels"][0]))
    request = pb.AddObservationsRequest(
        model="tagger", logits=matrix, label_sets=sets, times=sent["times"]
    )
    answer = rpc.labels.add_observations(request)
    assert (answer.counts.conflict, answer.counts.duplicate) == (1, 19)
    request.labels.append(1)
    error = refused(grpc.StatusCode.INVALID_ARGUMENT, rpc.labels.add_observations, request)
    assert "labels" in violations(error)


def served(service: Service, rows: int, **query: Any) -> tuple[np.ndarray, list[Any], list[str]]:
    """Calibrate rows; return their probabilities, the labels that each has, and their ids."""
    logits, labels = draw(rows, 6)
    probabilities, ids = ask(service, logits, **query)
    return probabilities, [np.flatnonzero(row).tolist() for row in labels], ids


def ask(service: Service, logits: np.ndarray, **query: Any) -> tuple[np.ndarray, list[str]]:
    """Calibrate rows, 50 in a request; return their probabilities and ids."""
    probabilities, ids = [], []
    for start in range(0, len(logits), 50):
        part = logits[start : start + 50]
        answer = service.calibrate(part, model="tagger", **{"ids": 1, **query})
        assert answer.status_code == 200, answer.text
        probabilities += answer.json()["probabilities"]
        ids += answer.json()["prediction_ids"]
    return np.array(probabilities), ids


def sent(service: Service, ids: list[str], labels: list[Any]) -> list[dict[str, str]]:
    """Send labels by id; return the outcomes."""
    pairs = zip(ids, labels, strict=True)
    late = [{"prediction_id": id, "label": label} for id, label in pairs]
    answer = service.client.post(f"{URL}/labels", json=late)
    assert answer.status_code == 200, answer.text
    items: list[dict[str, str]] = answer.json()["items"]
    return items


@pytest.mark.both_databases
def test_id_of_a_served_row_draws_a_label(service: Service, champion: Calibrator, rpc: Rpc) -> None:
    """It holds the label's probability; the labels of the row arrive later, over REST or gRPC."""
    probabilities, labels, ids = served(service, 45)
    items = sent(service, ids[:30], labels[:30])
    assert {item["status"] for item in items} == {"accepted"}
    late = [
        pb.LateLabel(prediction_id=id, set=pb.LabelSet(names=[NAMES[k] for k in row]))
        for id, row in zip(ids, labels, strict=True)
    ]
    request = pb.AddLabelsRequest(model="tagger", labels=late)
    counts = rpc.labels.add_labels(request).counts
    assert (counts.accepted, counts.duplicate) == (15, 30)
    with service.registry.reading() as tx:
        rows = labels_between(tx, tx.models.get("tagger"), 1, 0, 1e11)
    of_digest = {base64.urlsafe_b64decode(id)[-16:]: row for row, id in enumerate(ids)}
    assert {row.predicted for row in rows} == {0, 1, 2}
    for row in rows:
        number = of_digest[row.digest]
        assert row.confidence == pytest.approx(probabilities[number, row.predicted])
        assert row.raw_confidence == pytest.approx(row.confidence, abs=1e-6)  # of the identity
        assert (row.label == row.predicted) == (row.predicted in labels[number])
    other = [sorted({0, 1, 2} - set(row)) for row in labels]
    conflict = sent(service, ids[:1], other[:1])[0]
    assert conflict["status"] == "conflict"
    assert "other labels" in conflict["reason"]


def test_drawn_labels_are_uniform_and_depend_on_no_value(
    service: Service, champion: Calibrator
) -> None:
    """Equal rows draw different labels. The counts are within six standard deviations."""
    _, ids = ask(service, np.zeros((600, 3), np.float32))
    drawn = [int.from_bytes(base64.urlsafe_b64decode(id)[42:46], "little") for id in ids]
    counts = np.bincount(drawn, minlength=3)
    assert np.abs(counts - 200).max() < 6 * math.sqrt(600 * 2 / 9)


def test_rows_with_ids_are_counted_by_their_drawn_label(
    service: Service, champion: Calibrator
) -> None:
    """By segment, and by label if it is watched; so the coverage of their labels is known."""
    settings = {"segments": ["eu"], "classes": ["ripe"]}
    assert service.client.put(f"{URL}/monitoring/settings", json=settings).status_code == 200
    state = service.client.app.state.recalib
    state.calibrators.traffic.declare({model_of(service).id: model_of(service).monitoring})
    for rows in (5, 50):
        _, labels, ids = served(service, rows, segment="eu")
        counts = state.calibrators.traffic.take()
        assert sum(count.predictions for count in counts.traffic) == rows
        assert {count.segment for count in counts.traffic} == {1}
        assert {item["status"] for item in sent(service, ids, labels)} == {"accepted"}
        with service.registry.reading() as tx:
            stored = labels_between(tx, tx.models.get("tagger"), 1, 0, 1e11)
        newest = {base64.urlsafe_b64decode(id)[-16:] for id in ids}
        confidences = [row.confidence for row in stored if row.digest in newest]
        total = sum(count.confidence_sum for count in counts.traffic)
        assert total == pytest.approx(sum(confidences), rel=1e-6)
        ripe = sum(row.predicted == 2 for row in stored if row.digest in newest)
        assert sum(count.predictions for count in counts.classes) == ripe
        assert {count.predicted for count in counts.classes} <= {2}


def test_share_of_rows_gets_ids_over_every_interface(
    service: Service, champion: Calibrator, rpc: Rpc
) -> None:
    _, _, ids = served(service, 100, ids=0.5)
    assert 0 < sum(id is not None for id in ids) < 100
    logits, _ = draw(4, 1)
    tensor = {"name": "logits", "shape": [4, 3], "datatype": "FP32", "data": logits.tolist()}
    outputs = {"inputs": [tensor], "outputs": [{"name": "prediction_ids"}]}
    v2 = service.client.post("/v2/models/tagger/infer", json=outputs).json()["outputs"][0]["data"]
    grpc_ids = rpc.calibration.calibrate(question(logits, model="tagger", ids=1)).prediction_ids
    assert len({*v2, *grpc_ids}) == 8
    items = sent(service, [*v2, *grpc_ids], [[0]] * 8)
    assert {item["status"] for item in items} == {"accepted"}


def test_labels_of_ids_that_are_not_lists_are_invalid(
    service: Service, champion: Calibrator
) -> None:
    _, _, ids = served(service, 7)
    items = sent(service, ids, [1, "red", [3], [0, 0], ["green"], [0, 1, 2, 0], []])
    assert [item["status"] for item in items] == ["invalid"] * 6 + ["accepted"]
    assert "send a list of the row's labels" in items[0]["reason"]
    assert "a label twice" in items[3]["reason"]
    assert items[5]["reason"] == "found 4 labels, but the model has 3"
    service.model()
    answer = service.client.post(
        "/v1/models/digits/labels", json=[{"prediction_id": ids[0], "label": [1]}]
    )
    assert answer.json()["items"][0]["status"] == "invalid"


def test_invalid_labels_are_rejected_row_by_row(service: Service, champion: Calibrator) -> None:
    sent = body(6)
    sent["labels"] = [1, ["green"], [3], [0, 1, 0], ["red", 2], []]
    answer = service.client.post(f"{URL}/observations", json=sent).json()
    assert [item["status"] for item in answer["items"]] == ["invalid"] * 4 + ["accepted"] * 2
    reasons = [item.get("reason", "") for item in answer["items"]]
    assert "send a list of the row's labels" in reasons[0]
    assert "none of the model's class labels" in reasons[1]
    assert "the model's classes are 0 to 2" in reasons[2]
    assert "a label twice" in reasons[3]
    refusal = service.client.post(f"{URL}/observations", json={**body(1), "counted": True})
    check(refusal, 422, "counted", "true")


@pytest.mark.parametrize("sharpness", [1.0, 3.0])
def test_replayed_log_leaves_the_states_of_its_labels(
    service: Service, champion: Calibrator, sharpness: float
) -> None:
    """Each row counts for the label that it draws, also for the watched labels."""
    spans = {"cohort_seconds": 300, "maturity_seconds": 60}
    configure(service, classes=["red", "ripe"], objective=0.3, **spans)
    rows = 1_500
    logits, labels = draw(rows, 8, sharpness)
    columns = {
        "time": time.time() - 7_200 + np.arange(rows) * (6_600 / rows),
        "probabilities": list(champion.predict(logits)),
        "labels": list(labels),
    }
    log = io.BytesIO()
    pq.write_table(pa.table(columns), log)
    place, kind = f"{URL}/monitoring/replays", {"Content-Type": "application/octet-stream"}
    answer = service.client.post(place, content=log.getvalue(), headers=kind)
    assert answer.status_code == 202, answer.text
    service.work()
    result = service.client.get(f"/v1/jobs/{answer.json()['id']}").json()["result"]
    assert (result["rows"], result["state"]) == (rows, "fresh" if sharpness == 1 else "stale")
    report = service.client.get(f"{URL}/monitoring").json()
    assert (report["state"], report["replayed_through"] is None) == (result["state"], False)
    assert report["classes"]["watched"] == 2
    drawn = result["labelled"] - result["immature"]
    assert 0.28 * drawn < report["classes"]["labels"] < 0.4 * drawn  # a third for each label
    other = pa.table({"time": columns["time"], "confidence": np.full(rows, 0.5)})
    log = io.BytesIO()
    pq.write_table(other, log)
    refusal = service.client.post(place, content=log.getvalue(), headers=kind)
    check(refusal, 422, "probabilities", "confidence")


@pytest.mark.both_databases
def test_labels_that_are_too_sure_make_the_version_stale(
    service: Service, champion: Calibrator
) -> None:
    """With watched labels; a calibrated stream of the same size does not."""
    configure(service, classes=["all"])
    for sharpness, state in ((1.0, "unverified"), (4.0, "stale")):
        ago = 600.0 if sharpness == 1 else 300.0
        assert set(statuses(service, body(700, ago=ago, sharpness=sharpness))) == {"accepted"}
        model = mature(service)
        watch(service.registry, model)
        report = service.client.get(f"{URL}/monitoring").json()
        assert (
            report["state"] in ("fresh", state)
            if state == "unverified"
            else report["state"] == state
        )
        configure(service, classes=["all"])
    assert report["classes"]["watched"] == 3
    assert report["classes"]["rejected"]
    assert report["candidate"] is None


def configure(service: Service, **settings: Any) -> None:
    settings = {"least_labels": 100, "maturity_seconds": 3600, "cohort_seconds": 1, **settings}
    answer = service.client.put(f"{URL}/monitoring/settings", json=settings)
    assert answer.status_code == 200, answer.text


def mature(service: Service) -> Model:
    """Let labels have arrived at once, and cohorts mature after a second; return the model."""
    with service.registry.transaction() as tx:
        table = monitoring_tables.labels
        tx.connection.execute(update(table).values(labelled_at=table.c.predicted_at + 0.5))
        monitoring = tx.models.get("tagger").monitoring
        short = replace(monitoring, maturity_seconds=1.0)
        return tx.models.set_monitoring("tagger", short)


def write_logits(service: Service) -> None:
    captures = service.client.app.state.recalib.calibrators.traffic.captures
    assert write_captures(service.registry, captures, 0.0) == 1


@pytest.mark.both_databases
def test_captured_rows_have_all_their_labels(service: Service, champion: Calibrator) -> None:
    """Those of served rows and of observations; rows that were labelled before it have none."""
    _, labels, ids = served(service, 10)
    sent(service, ids, labels)
    configure(service, capture=1.0)
    state = service.client.app.state.recalib
    state.calibrators.traffic.declare({model_of(service).id: model_of(service).monitoring})
    logits, truth = draw(30, 8)
    _, ids = ask(service, logits)
    sent(service, ids, [np.flatnonzero(row).tolist() for row in truth])
    observed = body(20)
    assert set(statuses(service, observed)) == {"accepted"}
    write_logits(service)
    expected = {
        row.tobytes(): set(np.flatnonzero(has)) for row, has in zip(logits, truth, strict=True)
    }
    for values, present in zip(observed["logits"], observed["labels"], strict=True):
        expected[np.array(values, np.float32).tobytes()] = set(present)
    sample = read_labelled_sample(service.registry, model_of(service), 1, 0, 1e11)
    assert (len(sample), sample.sampled, sample.labels.shape) == (50, 50, (50, 3))
    rows = zip(sample.logits, sample.labels, strict=True)
    assert {row.tobytes(): set(np.flatnonzero(has)) for row, has in rows} == expected


def test_only_captured_rows_keep_all_their_labels(service: Service, champion: Calibrator) -> None:
    """The digest of a row decides both; the share is within six standard deviations."""
    configure(service, capture=0.5)
    observed = body(200)
    assert set(statuses(service, observed)) == {"accepted"}
    write_logits(service)
    model = model_of(service)
    sample = read_labelled_sample(service.registry, model, 1, 0, 1e11)
    assert len(sample) == sample.sampled
    assert abs(len(sample) - 100) < 6 * math.sqrt(50)
    with service.registry.reading() as tx:
        assert len(tx.labels.by_digest(model, 1, 0, 1e11, 1e11)) == len(sample)
        assert len(labels_between(tx, model, 1, 0, 1e11)) == 200


def test_lower_capture_leaves_out_rows_that_are_labelled_later(
    service: Service, champion: Calibrator
) -> None:
    """Their logits are kept; only rows in the smaller share get a list of labels, and count."""
    configure(service, capture=1.0)
    state = service.client.app.state.recalib
    state.calibrators.traffic.declare({model_of(service).id: model_of(service).monitoring})
    labels, ids = [], []
    for seed in (8, 9):
        logits, truth = draw(100, seed)
        ids.append(ask(service, logits)[1])
        labels.append([np.flatnonzero(row).tolist() for row in truth])
    write_logits(service)
    sent(service, ids[0], labels[0])
    configure(service, capture=0.3)
    sent(service, ids[1], labels[1])
    model = model_of(service)
    sample = read_labelled_sample(service.registry, model, 1, 0, 1e11)
    assert sample.sampled == 200
    assert abs(len(sample) - 130) < 6 * math.sqrt(21)  # 100, and 30 of the later 100
    configure(service, capture=0.0)
    assert len(read_labelled_sample(service.registry, model_of(service), 1, 0, 1e11)) == len(sample)
    with service.registry.reading() as tx:  # monitoring counts all of them
        assert len(labels_between(tx, model, 1, 0, 1e11)) == 200


def test_stale_version_is_refitted_to_all_labels_and_replaced(
    service: Service, champion: Calibrator
) -> None:
    """On request or automatically; the candidate is promoted by the mean Brier score of labels."""
    configure(service, capture=1.0, classes=["all"])
    assert set(statuses(service, body(700, ago=300, sharpness=4.0))) == {"accepted"}
    write_logits(service)
    model = mature(service)
    watch(service.registry, model)
    report = service.client.get(f"{URL}/monitoring").json()
    assert (report["state"], report["classes"]["watched"]) == ("stale", 3)
    # Captured rows do not count for other labels than the drawn ones.
    assert sum(item["labelled"] for item in report["classes"]["windows"]) == 700
    assert service.client.post(f"{URL}/monitoring/refit").status_code == 202
    with service.registry.reading() as tx:  # the monitor had requested the same refit
        (job,) = tx.jobs.page(None, "queued", None, 10, kind=REFIT)
    assert job.payload["reason"] == "the calibrator is stale"
    service.work()
    result = service.client.get(f"/v1/jobs/{job.id}").json()["result"]
    assert (result["candidate"], result["map"]) == (True, "platt"), result
    card = service.client.get(f"{URL}/calibrators/2").json()["card"]
    assert (card["task"], card["labels"]) == ("multilabel", NAMES)
    assert 200 < card["data"]["rows"] <= 700  # from the onset, which the drawn labels decide
    with service.registry.reading() as tx:
        fitted = Calibrator.from_bytes(tx.calibrators.parameters(model, 2))
    # The log-odds were four times too large. Six standard errors are 0.1.
    np.testing.assert_allclose(fitted.parameters["slope"], 0.25, atol=0.1)

    configure(service, capture=1.0, classes=["all"])
    assert set(statuses(service, body(700, ago=200, sharpness=4.0))) == {"accepted"}
    write_logits(service)
    with service.registry.transaction() as tx:  # as if these rows were later than the fit
        started = tx.candidates.latest(model)
        assert started is not None
        step = replace(started, turn=started.turn + 1, through=time.time() - 250)
        tx.candidates.save(model, step)
    assert compare(service.registry, mature(service)) == "promoted"
    with service.registry.reading() as tx:
        assert tx.aliases.get(model, "champion").version == 2


def test_refit_without_captured_logits_says_so(service: Service, champion: Calibrator) -> None:
    assert set(statuses(service, body(200, ago=300))) == {"accepted"}
    mature(service)
    job = service.client.post(f"{URL}/monitoring/refit").json()
    service.work()
    result = service.client.get(f"/v1/jobs/{job['id']}").json()["result"]
    assert result["candidate"] is False
    assert "declare a `capture` rate" in result["reason"]
