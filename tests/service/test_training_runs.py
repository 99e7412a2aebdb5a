"""Training runs over REST and gRPC: request, execution by a worker, download."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.json_format import ParseDict
from safetensors.numpy import load

from recalib.recipe import Recipe
from recalib.registry.job_kinds import TRAIN
from recalib.settings import Settings
from service.console.pictures import draw
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from tests.cli.test_train import write_data
from tests.service.conftest import Service
from tests.service.stubs import Rpc
from tests.training.test_training_job import RECIPE
from training.main import handlers
from training.worker import Worker

pytestmark = pytest.mark.sqlite_only

RUNS = "/v1/training-runs"


ALLOWED = "training.models.linear:Linear"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(
        update={"training_imports": f"absent {ALLOWED}", "training_workers": 2}
    )


@pytest.fixture
def trainer(service: Service, settings: Settings, tmp_path: Path) -> Service:
    """A service with a training worker and data in the configured folder."""
    folder = tmp_path / "training-data"
    folder.mkdir()
    write_data(folder)
    configured = settings.model_copy(update={"training_data": str(folder)})
    service.worker = Worker(service.registry, handlers(configured), name="test")
    return service


def test_training_run_returns_its_files(trainer: Service) -> None:
    """202 with the job; the finished job lists its files, which can be downloaded."""
    answer = trainer.client.post(RUNS, json=RECIPE)
    assert answer.status_code == 202
    assert answer.json()["kind"] == TRAIN
    path = f"{RUNS}/{answer.json()['id']}/files/weights.safetensors"
    assert "it is queued" in trainer.client.get(path).json()["detail"]
    trainer.work()
    job = trainer.client.get(f"/v1/jobs/{answer.json()['id']}").json()
    assert job["state"] == "succeeded", job["error"]
    weights = trainer.client.get(path)
    assert load(weights.content)["head.bias"].shape == (3,)
    assert len(weights.content) == job["result"]["files"]["weights.safetensors"]["bytes"]
    recipe = trainer.client.get(f"{RUNS}/{job['id']}/files/recipe.json").json()
    assert Recipe.of(recipe) == Recipe.of(RECIPE)
    assert "it has metrics.jsonl" in trainer.client.get(f"{path}x").json()["detail"]
    _check_pages(trainer, job["id"])


def _check_pages(trainer: Service, run: str) -> None:
    """The console shows the run, a row of numbers for each epoch, and saves its files."""
    get = trainer.client.get
    assert f"/console/training/{run}" in get("/console/training").text
    shown = get(f"/console/training/{run}").text
    records = get(f"{RUNS}/{run}/files/metrics.jsonl").text.splitlines()
    epochs = shown.partition("The numbers")[2].partition("</tbody>")[0].count("<tr><td")
    assert epochs == len(records)
    assert f"{json.loads(records[-1])['test']['nll']:.4f}" in shown
    assert get(f"/console/training/{run}/files/recipe.json").json()["name"] == RECIPE["name"]
    picture = draw(
        "curves", json.dumps({"records": [json.loads(r) for r in records]}).encode(), "dark"
    )
    assert b"<svg" in picture


def test_allowed_function_makes_the_network(trainer: Service) -> None:
    """Server and worker accept a function that their setting lists."""
    job = trainer.client.post(RUNS, json={**RECIPE, "model": {"name": ALLOWED}})
    assert job.status_code == 202, job.text
    trainer.work()
    assert trainer.client.get(f"/v1/jobs/{job.json()['id']}").json()["state"] == "succeeded"


def test_training_run_returns_its_files_over_grpc(trainer: Service, rpc: Rpc) -> None:
    """The same over gRPC; numbers of a Struct are doubles, and 2.0 epochs are 2."""
    request = ParseDict({"recipe": RECIPE}, pb.CreateTrainingRunRequest())
    job = rpc.training_runs.create_training_run(request)
    trainer.work()
    assert rpc.jobs.get_job(pb.GetJobRequest(id=job.id)).state == pb.JOB_STATE_SUCCEEDED
    chunks = rpc.training_runs.get_training_run_file
    file_request = pb.GetTrainingRunFileRequest(id=job.id, name="metrics.jsonl")
    text = b"".join(chunk.data for chunk in chunks(file_request)).decode()
    assert [json.loads(line)["epoch"] for line in io.StringIO(text)] == [1, 2]
    with pytest.raises(grpc.RpcError) as excinfo:
        list(chunks(pb.GetTrainingRunFileRequest(id=job.id, name="shadow")))
    assert excinfo.value.code() == grpc.StatusCode.NOT_FOUND


def test_training_run_publishes_a_champion(trainer: Service) -> None:
    trainer.model("points", classes=3)
    wish = {"model": "points", "promote": True}
    job = trainer.client.post(RUNS, json={**RECIPE, "calibrate": wish}).json()
    assert job["model"] == "points"
    trainer.work()
    finished = trainer.client.get(f"/v1/jobs/{job['id']}").json()
    assert finished["state"] == "succeeded", finished["error"]
    alias = trainer.client.get("/v1/models/points/aliases").json()["items"][0]
    assert (alias["alias"], alias["version"]) == ("champion", 1)


def test_idempotency_key_starts_one_training_run(trainer: Service) -> None:
    key = {"Idempotency-Key": "again"}
    jobs = {trainer.client.post(RUNS, json=RECIPE, headers=key).json()["id"] for _ in range(3)}
    assert len(jobs) == 1


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"epochs": "3"}, "epochs"),
        ({"module": "os"}, "module"),
        ({"loss": {"primary": "os.system"}}, "loss.primary"),
        ({"loss": {"secondary": "sb_ece", "beta": -1}}, "loss.beta"),
        ({"calibrate": {"map": "magic"}}, "map"),
        ({"tune": {"beta": [1]}}, "tune"),
        ({"workers": 3}, "workers"),
        ({"epochs": 1_000_000_000}, "epochs"),
        ({"model": {"name": "a\0b"}}, "model"),
        ({"model": {"name": "os:system"}}, "model.name"),
        (
            {"data": {"source": "dataset", "options": {"factory": "os:system"}}},
            "data.options.factory",
        ),
        ({"data": {"source": "\ud800"}}, "data"),
        ({"data": {"options": json.loads('{"a":' * 30 + "1" + "}" * 30)}}, "data"),
    ],
)
def test_invalid_recipes_are_rejected_before_a_job_exists(
    trainer: Service, more: dict[str, Any], field: str
) -> None:
    answer = trainer.client.post(
        RUNS,
        content=json.dumps({**RECIPE, **more}).encode(),
        headers={"Content-Type": "application/json"},
    )
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["field"] == field
    assert trainer.client.get("/v1/jobs").json()["items"] == []


def test_other_jobs_have_no_files(ready: Service) -> None:
    jobs = ready.client.get("/v1/jobs").json()["items"]
    job = next(job["id"] for job in jobs if job["kind"] == "fit")
    answer = ready.client.get(f"{RUNS}/{job}/files/weights.safetensors")
    assert answer.status_code == 404
    assert "it is a fit job" in answer.json()["detail"]
