"""Versions with segments: publication, answers over REST, gRPC and V2, monitoring and refusals."""

from __future__ import annotations

import base64
import io
import time
import warnings
from functools import cache
from typing import Any

import grpc
import msgspec
import numpy as np
import pytest

import recalib
from recalib import Calibrator
from recalib.calibrator.segments import OFFSETS
from recalib.errors import InputError, RecalibWarning
from service.calibrators.parameter_file import check_parameter_file
from service.serving.logit_sampling import write_captures
from tests.files.examples import write_npz
from tests.fitting.conftest import draw
from tests.registry.scenes import labels_between
from tests.service.conftest import NPY, Service, npy
from tests.service.stubs import Rpc, refused, violations
from tests.service.test_bad_input import check
from tests.service.test_batches import parts
from tests.service.test_evaluations import run
from tests.service.test_grpc_inference import question as v2_question
from tests.service.test_grpc_inference import tensor as v2_tensor
from tests.service.test_grpc_inference import values
from tests.service.test_grpc_workflow import array, question
from tests.service.test_inference import tensor
from training.logit_samples import brier_scores, read_labelled_sample

pytestmark = pytest.mark.sqlite_only

LOGITS = np.array([[0.0, 2.0, -1.0, 0.5], [0.4, 0.0, 0.25, -1.0]], np.float32)
URL = "/v1/models/digits/calibrate"


@cache
def by_country() -> Calibrator:
    """Half of the rows, of FR, have another bias."""
    logits, labels = draw(1_000, 4, 3.0, seed=9)
    country = np.where(np.arange(1_000) % 2, "FR", "DE")
    moved = np.where((country == "FR") & (labels == 0), 1, labels)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecalibWarning)  # segments move the classes
        common = recalib.fit(logits, moved)
    fitted = recalib.fit_segments(common, logits, moved, {"country": country})
    assert fitted.card.segments is not None
    assert fitted.card.segments.form == "vector"
    return fitted


def publish(service: Service, calibrator: Calibrator, **more: Any) -> dict[str, Any]:
    """Publish a calibrator; return the finished job."""
    content = base64.b64encode(calibrator.to_bytes()).decode()
    body = {"parameters": content, **more}
    answer = service.client.post("/v1/models/digits/calibrators", json=body)
    assert answer.status_code == 202, answer.text
    service.work()
    job: dict[str, Any] = service.client.get(f"/v1/jobs/{answer.json()['id']}").json()
    assert job["state"] == "succeeded", job
    return job


@pytest.fixture
def served(ready: Service) -> Service:
    """Version 2, the champion, has the segments DE and FR; the model declares FR."""
    settings = {"segments": ["FR"], "capture": 1.0}
    url = "/v1/models/digits/monitoring/settings"
    assert ready.client.put(url, json=settings).status_code == 200
    assert publish(ready, by_country(), promote=True)["result"]["version"] == 2
    return ready


def expected(segment: str | None, logits: np.ndarray = LOGITS) -> np.ndarray:
    names = None if segment is None else [segment] * len(logits)
    answer: np.ndarray = by_country().predict(logits.astype(np.float64), names)
    return answer


@pytest.mark.both_databases
def test_a_segment_has_its_offsets_and_others_have_the_common_map(
    served: Service, rpc: Rpc
) -> None:
    """Also one that the model does not declare, and more rows than are joined with others."""
    many = np.tile(LOGITS, (20, 1))
    assert np.abs(expected("FR") - expected(None)).max() > 0.02
    for segment, named in {"FR": "FR", "DE": "DE", "IT": None, "": None}.items():
        for logits in (LOGITS, LOGITS[:1], many):
            answer = served.calibrate(logits, segment=segment).json()["probabilities"]
            np.testing.assert_allclose(answer, expected(named, logits), atol=1e-6)
        headers = NPY | {"Accept": "application/json"}
        params = {"segment": segment}
        binary = served.client.post(URL, content=npy(LOGITS), headers=headers, params=params)
        np.testing.assert_allclose(binary.json()["probabilities"], expected(named), atol=1e-6)
        reply = rpc.calibration.calibrate(question(LOGITS, segment=segment))
        np.testing.assert_allclose(array(reply), expected(named), atol=1e-6)
        body = {"inputs": [tensor(LOGITS.tolist(), shape=[2, 4])], "parameters": params}
        v2 = served.client.post("/v2/models/digits/infer", json=body).json()["outputs"][0]["data"]
        np.testing.assert_allclose(np.reshape(v2, (2, 4)), expected(named), atol=1e-6)
        rows = v2_question(v2_tensor(LOGITS, shape=[2, 4]))
        rows.parameters["segment"].string_param = segment
        flat = values(rpc.v2.model_infer(rows))
        np.testing.assert_allclose(np.reshape(flat, (2, 4)), expected(named), atol=1e-6)
    np.testing.assert_allclose(
        served.calibrate(LOGITS).json()["probabilities"], expected(None), atol=1e-6
    )


@pytest.mark.both_databases
def test_labels_and_observations_have_the_confidence_of_the_segment(served: Service) -> None:
    ids = served.calibrate(LOGITS, segment="FR").json()["prediction_ids"]
    labels = [{"prediction_id": id, "label": 1} for id in ids]
    url = "/v1/models/digits/labels"
    assert served.client.post(url, json=labels).status_code == 200
    body = {"logits": LOGITS.tolist(), "labels": [1, 1], "times": [time.time() - 60] * 2}
    url = "/v1/models/digits/observations"
    assert served.client.post(url, json=body | {"segment": "FR"}).status_code == 200
    with served.registry.reading() as tx:
        stored = labels_between(tx, tx.models.get("digits"), 2, 0, 1e11)
    assert [row.segment for row in stored] == [1] * 4
    confidences = np.repeat(expected("FR").max(axis=1), 2)
    found = np.sort([row.confidence for row in stored])
    np.testing.assert_allclose(found, np.sort(confidences), atol=1e-6)


def test_kept_logits_have_the_answers_that_were_given(served: Service) -> None:
    """Those of FR, which the model declares; ids do not have DE."""
    app: Any = served.client.app
    for segment in ("FR", "", "DE"):
        ids = served.calibrate(LOGITS, segment=segment).json()["prediction_ids"]
        labels = [{"prediction_id": id, "label": 1} for id in ids]
        assert served.client.post("/v1/models/digits/labels", json=labels).status_code == 200
    assert write_captures(served.registry, app.state.recalib.calibrators.traffic.captures, 0.0) == 1
    with served.registry.reading() as tx:
        model = tx.models.get("digits")
    sample = read_labelled_sample(served.registry, model, 2, 0, 1e11)
    assert sample.segments.tolist() == ["FR", "FR", "", "", "", ""]
    given = by_country().predict(sample.logits.astype(np.float64), sample.segments)
    np.testing.assert_allclose(sample.answers(by_country()), given, atol=1e-12)
    assert np.abs(given - by_country().predict(sample.logits)).max() > 0.02
    # Alerts compare an earlier champion by the same offsets, though it has not given the answers.
    scores = ((given - np.eye(4)[sample.labels]) ** 2).sum(axis=1)
    np.testing.assert_allclose(brier_scores(by_country(), sample), scores, atol=1e-12)


def test_what_has_no_segments_is_refused(served: Service, rpc: Rpc) -> None:
    found = "version 2 of model 'digits', with segments"
    check(served.calibrate(LOGITS, intervals="true"), 422, "intervals", found)
    error = refused(
        grpc.StatusCode.INVALID_ARGUMENT,
        rpc.calibration.calibrate,
        question(LOGITS, intervals=True),
    )
    assert found in violations(error)["intervals"]
    answer = served.client.post("/v1/models/digits/batches", json={"dataset": "validation"})
    check(answer, 422, "version", "version 2, with segments")
    error = refused(
        grpc.StatusCode.INVALID_ARGUMENT,
        rpc.batches.create_batch,
        parts(write_npz(LOGITS, None)),
    )
    assert "version 2, with segments" in violations(error)["version"]
    answer = served.client.get("/v1/models/digits/calibrators/2/onnx")
    check(answer, 422, "calibrator", "one with segments")
    content = served.client.get("/v1/models/digits/calibrators/2/parameters").content
    assert Calibrator.from_bytes(content).parameters.keys() == {"temperature", OFFSETS}


def test_v2_offers_no_intervals_of_a_version_with_segments(ready: Service) -> None:
    """Intervals are of the common map of Venn-Abers."""
    logits, labels = draw(1_000, 4, 3.0, seed=9)
    common = recalib.fit(logits, labels, map="venn_abers")
    country = np.where(np.arange(1_000) % 2, "FR", "DE")
    publish(ready, common)
    publish(ready, recalib.fit_segments(common, logits, labels, country))
    offered = [
        {item["name"] for item in ready.client.get(url).json()["outputs"]}
        for url in ("/v2/models/digits/versions/2", "/v2/models/digits/versions/3")
    ]
    assert offered[0] - offered[1] == {"intervals"}
    body = {"inputs": [tensor(LOGITS.tolist(), shape=[2, 4])], "outputs": [{"name": "intervals"}]}
    answer = ready.client.post("/v2/models/digits/versions/3/infer", json=body)
    assert (answer.status_code, "with segments" in answer.text) == (400, True)


def test_file_with_two_columns_or_offsets_that_overflow_is_refused() -> None:
    logits, labels = draw(1_000, 4, 3.0, seed=9)
    country = np.where(np.arange(1_000) % 2, "FR", "DE")
    columns = {"country": country, "large": logits.max(axis=1) > 2}
    both = recalib.fit_segments(by_country().common, logits, labels, columns)
    with pytest.raises(InputError, match="found segments of 2 columns; accepted: of one column"):
        check_parameter_file(both.to_bytes(), 4, None)
    offsets = by_country().parameters[OFFSETS] + 1e3
    large = Calibrator({**by_country().parameters, OFFSETS: offsets}, by_country().card)
    with pytest.raises(InputError, match="parameters of temperature that overflow"):
        check_parameter_file(large.to_bytes(), 4, None)


def test_champion_with_segments_is_not_replaced_by_one_without_unless_requested(
    served: Service,
) -> None:
    job = served.fitted(map="vector")
    assert not job["result"]["promoted"]
    assert "the champion has segments, and this version has none" in job["result"]["reason"]
    answer = served.client.post("/v1/models/digits/monitoring/refit")
    assert answer.status_code == 202, answer.text
    served.work()
    job = served.client.get(f"/v1/jobs/{answer.json()['id']}").json()
    assert (job["result"]["candidate"], job["state"]) == (False, "succeeded")
    assert "version 2 has segments, which a refit does not fit" in job["result"]["reason"]
    assert served.fitted(map="vector", promote=True)["result"]["promoted"]


@pytest.mark.slow
def test_evaluation_takes_the_column_of_the_fit_or_warns(served: Service) -> None:
    logits, labels = draw(400, 4, 3.0, seed=8)
    country = np.where(np.arange(400) % 3 == 0, "FR", "DE")
    file = io.BytesIO()
    np.savez(file, logits=logits, labels=labels, country=country)
    assert served.upload(file.getvalue(), name="later").status_code == 201
    request = {"dataset": "later", "versions": [2]}
    (with_column,) = run(served, **request, segments=["country"])["results"]
    p = by_country().predict(logits, country)
    metric = recalib.evaluate(labels, p, metrics=["nll"])["nll"]
    assert with_column["metrics"]["nll"]["value"] == pytest.approx(metric, abs=1e-6)
    without = run(served, **request)
    p = by_country().predict(logits)
    metric = recalib.evaluate(labels, p, metrics=["nll"])["nll"]
    assert without["results"][0]["metrics"]["nll"]["value"] == pytest.approx(metric, abs=1e-6)
    assert "Version 2 is measured by its common map" in " ".join(without["warnings"])

    # A column of a fit without names has any name.
    summary = by_country().card.segments
    assert summary is not None
    unnamed = msgspec.structs.replace(
        summary,
        columns=("segment",),
        segments=tuple(msgspec.structs.replace(s, column="segment") for s in summary.segments),
    )
    card = msgspec.structs.replace(by_country().card, segments=unnamed)
    publish(served, Calibrator(by_country().parameters, card))
    request = {"dataset": "later", "versions": [3], "segments": ["country"]}
    of_unnamed = run(served, **request)
    assert of_unnamed["results"][0]["metrics"] == with_column["metrics"]
    assert not any("common map" in text for text in of_unnamed["warnings"])
