"""Evaluations over REST and gRPC: request, measurement by a worker, results and page."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import scipy
from google.protobuf.json_format import MessageToDict

from recalib import Calibrator
from recalib.metrics import Predictions
from recalib.metrics.evaluate import evaluate
from recalib.metrics.paired import paired_changes
from recalib.registry.purge import purge
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from tests.files.examples import write_npz
from tests.fitting.conftest import draw
from tests.service.conftest import Service, npz
from tests.service.stubs import Rpc, refused, violations

DIGITS = "/v1/models/digits"
EVALUATIONS = f"{DIGITS}/evaluations"


@pytest.fixture
def compared(ready: Service) -> Service:
    """A service with 400 rows that no version was fitted on, as the data set `later`."""
    logits, labels = draw(400, 4, 3.0, seed=8)
    assert ready.upload(npz(logits, labels), name="later").status_code == 201
    return ready


def run(service: Service, **request: Any) -> dict[str, Any]:
    """Run an evaluation; return it."""
    answer = service.client.post(EVALUATIONS, json=request)
    assert answer.status_code == 202, answer.text
    service.work()
    evaluation: dict[str, Any] = service.client.get(f"{EVALUATIONS}/{answer.json()['id']}").json()
    assert evaluation["state"] == "succeeded", evaluation["error"]
    return evaluation


@pytest.mark.slow
def test_results_equal_those_of_the_library(compared: Service) -> None:
    """Metrics with intervals and floors, and paired changes from the first version."""
    evaluation = run(compared, dataset="later", versions=["identity", "champion"])
    assert evaluation["versions"] == ["identity", "1"]
    assert (evaluation["dataset"], evaluation["rows"]) == ("later", 400)
    assert evaluation["warnings"] == []

    logits, labels = draw(400, 4, 3.0, seed=8)
    champion = Calibrator.from_bytes(
        compared.client.get(f"{DIGITS}/calibrators/1/parameters").content
    )
    probabilities = champion.predict(logits)
    before = evaluate(labels, logits=logits, level=0.95)
    after = evaluate(labels, probabilities=probabilities, level=0.95)
    changes = paired_changes(
        Predictions.from_logits(logits, labels),
        Predictions.from_probabilities(probabilities, labels),
        before,
        after,
    )
    first, second = evaluation["results"]
    assert first["changes"] == {}
    for result, expected in ((first, before), (second, after)):
        assert result["fitted_rows"] == 0
        for name, estimate in expected.items():
            actual = [result["metrics"][name][key] for key in ("value", "low", "high", "floor")]
            assert actual == [estimate.value, estimate.low, estimate.high, estimate.floor], name
    assert second["changes"].keys() == changes.keys()
    for name, change in changes.items():
        assert second["changes"][name] == {
            "value": change.value,
            "low": change.low,
            "high": change.high,
            "verdict": change.verdict,
        }
    assert second["changes"]["nll"]["verdict"] == "better"
    titles = [picture["title"] for picture in evaluation["pictures"]]
    assert titles[0] == "Accuracy by confidence"
    for picture in evaluation["pictures"]:
        assert picture["versions"] == ["identity", "version 1"]
        assert picture["specification"]["$schema"].startswith("https://vega.github.io/schema/")


@pytest.mark.slow
def test_rows_of_the_fit_are_marked(compared: Service) -> None:
    """Rows are recognised one by one: a new data set with old rows is marked too."""
    old, labels = draw(600, 4, 3.0)
    new, new_labels = draw(100, 4, 3.0, seed=9)
    mixed = np.concatenate([old[:50], new]), np.concatenate([labels[:50], new_labels])
    assert compared.upload(npz(*mixed), name="mixed").status_code == 201
    evaluation = run(compared, dataset="validation", versions=[1, "identity"])
    assert [result["fitted_rows"] for result in evaluation["results"]] == [600, 0]
    assert evaluation["warnings"] == [
        "Version 1 was fitted on 600 of these 600 rows: its metrics here are not evidence of how "
        "it does on new rows."
    ]
    page = compared.client.get(f"{EVALUATIONS}/{evaluation['id']}/report").text
    assert evaluation["warnings"][0] in page
    evaluation = run(compared, dataset="mixed", versions=["1"])
    assert evaluation["results"][0]["fitted_rows"] == 50


@pytest.mark.slow
@pytest.mark.sqlite_only
def test_page_runs_no_code_and_loads_nothing(compared: Service) -> None:
    compared.fitted(map="vector", promote=False)
    evaluation = run(compared, dataset="later", versions=[1, 2], baseline="identity")
    assert evaluation["versions"] == ["identity", "1", "2"]
    assert [bool(result["changes"]) for result in evaluation["results"]] == [False, True, True]
    answer = compared.client.get(f"{EVALUATIONS}/{evaluation['id']}/report")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "sandbox" in policy
    assert "unsafe-eval" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "<script" not in answer.text
    assert "Version 1 is better than identity: NLL falls by" in answer.text
    assert "<h2>identity and version 2</h2>" in answer.text


@pytest.mark.slow
def test_evaluations_over_grpc(compared: Service, rpc: Rpc) -> None:
    request = pb.CreateEvaluationRequest(
        model="digits", dataset="later", versions=["champion", "identity"], baseline="identity"
    )
    job = rpc.evaluations.create_evaluation(request)
    assert job.kind == "evaluate"
    get = pb.GetEvaluationRequest(model="digits", id=job.id)
    queued = rpc.evaluations.get_evaluation(get)
    assert (queued.state, queued.HasField("rows")) == (pb.JOB_STATE_QUEUED, False)
    refused(grpc.StatusCode.NOT_FOUND, rpc.evaluations.get_evaluation_report, get)
    compared.work()
    finished = rpc.evaluations.get_evaluation(get)
    expected = compared.client.get(f"{EVALUATIONS}/{job.id}").json()
    assert finished.results[1].changes["nll"].verdict == "better"
    change = finished.results[1].changes["ece"].value
    assert change == expected["results"][1]["changes"]["ece"]["value"]
    specification = MessageToDict(finished.pictures[0].specification)
    assert specification["$schema"] == expected["pictures"][0]["specification"]["$schema"]
    page = b"".join(chunk.data for chunk in rpc.evaluations.get_evaluation_report(get)).decode()
    assert page == compared.client.get(f"{EVALUATIONS}/{job.id}/report").text
    listed = rpc.evaluations.list_evaluations(pb.ListEvaluationsRequest(model="digits"))
    assert [(item.id, len(item.pictures)) for item in listed.items] == [(job.id, 0)]
    error = refused(
        grpc.StatusCode.INVALID_ARGUMENT,
        rpc.evaluations.create_evaluation,
        pb.CreateEvaluationRequest(model="digits", dataset="later", versions=["1", "champion"]),
    )
    assert "versions[1]" in violations(error)


def test_evaluations_are_listed_by_page(compared: Service) -> None:
    """Newest first, of this model only, and no other jobs."""
    ids = [
        compared.client.post(EVALUATIONS, json={"dataset": "later", "versions": [1]}).json()["id"]
        for _ in range(3)
    ]
    first = compared.client.get(f"{EVALUATIONS}?limit=2").json()
    second = compared.client.get(f"{EVALUATIONS}?cursor={first['next_cursor']}").json()
    listed = [item["id"] for item in first["items"] + second["items"]]
    assert listed == ids[::-1]
    assert second["next_cursor"] is None
    compared.model("other")
    assert compared.client.get("/v1/models/other/evaluations").json()["items"] == []
    answer = compared.client.get(f"/v1/models/other/evaluations/{ids[0]}")
    assert answer.status_code == 404
    fit_job = compared.client.get("/v1/jobs?model=digits&job_state=succeeded").json()["items"][0]
    assert compared.client.get(f"{EVALUATIONS}/{fit_job['id']}").status_code == 404


@pytest.mark.sqlite_only
def test_impossible_evaluations_are_rejected_before_a_job_exists(compared: Service) -> None:
    logits, labels = draw(100, 4, 1.0)
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    file = write_npz(probabilities, labels, "probabilities")
    uploaded = compared.upload(file, name="p", params={"input": "probabilities"})
    assert uploaded.status_code == 201, uploaded.text
    assert compared.fitted(map="matrix", promote=False)["state"] == "succeeded"
    cases: list[tuple[str, list[int | str], int, str]] = [
        ("none", [1], 404, "dataset 'none' does not exist"),
        ("later", [1, 7], 404, "version '7' does not exist; versions[1]: the newest of digits is"),
        ("later", ["best"], 404, "version 'best' does not exist"),
        ("later", [], 422, "versions"),
        ("later", [True], 422, "versions.0: found True"),
        ("later", ["champion", 1], 422, "versions[1]: found 1"),
        ("p", [1, 2], 422, "versions[1]: found version 2 on probabilities"),
    ]
    for baseline, versions, message in (
        ("7", [1], "version '7' does not exist; baseline"),
        ("identity", list(range(1, 9)), "version '3' does not exist"),
    ):
        request = {"dataset": "later", "versions": versions, "baseline": baseline}
        assert message in compared.client.post(EVALUATIONS, json=request).text
    for dataset, versions, status, message in cases:
        request = {"dataset": dataset, "versions": versions}
        answer = compared.client.post(EVALUATIONS, json=request)
        assert (answer.status_code, message in answer.text) == (status, True), answer.text
    assert compared.client.get(EVALUATIONS).json()["items"] == []


SITES = np.array(["north", "south", ""])[np.arange(400) % 3]


def with_sites(service: Service, name: str = "sites", **columns: Any) -> None:
    """Upload 400 rows with the column `site`, whose empty texts are no segment."""
    logits, labels = draw(400, 4, 3.0, seed=8)
    file = io.BytesIO()
    np.savez(file, logits=logits, labels=labels, site=SITES, **columns)
    assert service.upload(file.getvalue(), name=name).status_code == 201


@pytest.mark.slow
@pytest.mark.sqlite_only
def test_segments_have_the_metrics_of_the_library(compared: Service, rpc: Rpc) -> None:
    """Over REST and gRPC, with intervals that hold together; lists do not have them."""
    with_sites(compared)
    request = {"dataset": "sites", "versions": ["identity", 1], "segments": ["site"]}
    evaluation = run(compared, **request)
    assert evaluation["segments"] == ["site"]
    logits, labels = draw(400, 4, 3.0, seed=8)
    parameters = compared.client.get(f"{DIGITS}/calibrators/1/parameters").content
    calibrated = Calibrator.from_bytes(parameters).predict(logits)
    for result, p in zip(
        evaluation["results"], (scipy.special.softmax(logits, axis=1), calibrated), strict=True
    ):
        assert [part["segment"] for part in result["segments"]] == ["site=north", "site=south"]
        for part, site in zip(result["segments"], ("north", "south"), strict=True):
            at = site == SITES
            assert part["rows"] == at.sum()
            expected = evaluate(labels[at], probabilities=p[at], level=1 - 0.05 / 2)
            for name in ("accuracy", "mean_confidence", "nll", "ece"):
                for key in ("value", "low", "high", "floor"):
                    number = getattr(expected[name], key)
                    assert part["metrics"][name][key] == pytest.approx(number, abs=1e-12), name
    page = compared.client.get(f"{EVALUATIONS}/{evaluation['id']}/report").text
    table = page.split('<table id="segments-1">')[1].split("</table>")[0]
    floor = evaluation["results"][1]["segments"][0]["metrics"]["ece"]["floor"]
    assert f"{floor:.2%}"[:-1] in table.split("site=north")[1].split("</tr>")[0]
    assert "All 2 intervals of a" in table
    message = rpc.evaluations.get_evaluation(
        pb.GetEvaluationRequest(model="digits", id=evaluation["id"])
    )
    (north, _), part = message.results[1].segments, evaluation["results"][1]["segments"][0]
    assert (north.segment, north.rows) == ("site=north", 134)
    assert north.metrics["ece"].high == part["metrics"]["ece"]["high"]
    listed = compared.client.get(EVALUATIONS).json()["items"]
    assert [item["segments"] for item in listed] == [["site"]]
    assert all(not result["segments"] for result in listed[0]["results"])


@pytest.mark.sqlite_only
def test_columns_that_are_no_segments_are_refused(compared: Service, rpc: Rpc) -> None:
    with_sites(compared, id=np.arange(400), share=np.linspace(0, 1, 400), none=[""] * 400)
    logits, labels = draw(100, 4, 1.0)
    data = {"logits": logits.tolist(), "labels": labels.tolist()}
    assert compared.client.put(f"{DIGITS}/datasets/json", json=data).status_code == 201
    cases: list[tuple[str, list[str], int, str]] = [
        ("sites", ["sight"], 422, "segments: found no column sight; accepted: names among logits,"),
        ("sites", ["site", "site"], 422, "segments: found site, site; accepted: each column once"),
        ("sites", ["id"], 422, "segments: found 400 values of id; accepted: 1 to 200 values"),
        ("sites", ["none"], 422, "segments: found 0 values of none"),
        ("sites", ["share"], 422, "segments: found shape (400,), dtype float64"),
        ("sites", ["logits"], 422, "segments: found shape (400, 4)"),
        ("sites", ["a", "b", "c", "d", "e"], 422, "segments"),
        ("json", ["site"], 415, "found json; accepted: npz, csv, jsonl, parquet or arrow"),
        ("none", ["site"], 404, "dataset 'none' does not exist"),
    ]
    for dataset, names, status, message in cases:
        request = {"dataset": dataset, "versions": [1], "segments": names}
        answer = compared.client.post(EVALUATIONS, json=request)
        assert (answer.status_code, message in answer.text) == (status, True), answer.text
    error = refused(
        grpc.StatusCode.INVALID_ARGUMENT,
        rpc.evaluations.create_evaluation,
        pb.CreateEvaluationRequest(
            model="digits", dataset="sites", versions=["1"], segments=["sight"]
        ),
    )
    assert "segments" in violations(error)
    assert compared.client.get(EVALUATIONS).json()["items"] == []


@pytest.mark.slow
@pytest.mark.sqlite_only
def test_deleted_evaluation_is_hidden_and_erased_later(compared: Service, tmp_path: Path) -> None:
    """Its page is a blob, which a purge removes."""
    evaluation = run(compared, dataset="later", versions=[1])
    path = f"{EVALUATIONS}/{evaluation['id']}"
    assert compared.client.delete(path).status_code == 200
    assert compared.client.get(path).status_code == 404
    assert compared.client.get(EVALUATIONS).json()["items"] == []
    assert compared.client.delete(path).status_code == 404
    events = compared.client.get("/v1/events?limit=1000").json()["items"]
    assert "evaluation.deleted" in [event["type"] for event in events]
    before = sum(file.is_file() for file in (tmp_path / "blobs").rglob("*"))
    assert purge(compared.registry, -60) == 1
    assert sum(file.is_file() for file in (tmp_path / "blobs").rglob("*")) == before - 1
