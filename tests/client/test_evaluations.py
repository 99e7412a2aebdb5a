"""Evaluations by the client."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from recalib.client import Client, InvalidRequestError, ResourceNotFoundError
from tests.cli.running import LABELS, LOGITS
from tests.client.either import Either
from tests.end_to_end.programs import Server

pytestmark = pytest.mark.slow

_PAGE = Path(__file__).parents[2] / "docs" / "evaluations.md"


def test_documented_example_runs(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Client(server.url) as client:
        client.create_model("resnet", 4)
        client.upload_dataset("resnet", "test", LOGITS, LABELS, progress=False)
        client.wait(client.fit("resnet", "test", promote=True), progress=False)
    examples = re.findall(r"```python\n(.*?)```", _PAGE.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    with Client(server.url) as client:
        exec("".join(examples), {"client": client})  # noqa: S102
    assert (tmp_path / "report.html").stat().st_size > 10_000


def test_client_returns_typed_results(client: Either, name: str, tmp_path: Path) -> None:
    client.create_model(name, 4)
    client.upload_dataset(name, "val", LOGITS, LABELS, progress=False)
    job = client.wait(client.evaluate(name, "val", ["identity"]), progress=False)
    evaluation = client.get_evaluation(name, job)
    assert (evaluation.state, evaluation.rows) == ("succeeded", 300)
    estimate = evaluation.results[0].metrics["ece"]
    assert estimate.low <= estimate.value <= estimate.high
    assert evaluation.pictures[0].specification["$schema"]
    assert [item.id for item in client.list_evaluations(name)] == [job.id]
    sites = tmp_path / "sites.npz"
    np.savez(sites, logits=LOGITS, labels=LABELS, site=np.repeat(["a", "b"], [100, 200]))
    client.upload_dataset(name, "sites", sites, progress=False)
    job = client.wait(
        client.evaluate(name, "sites", ["identity"], segments=["site"]), progress=False
    )
    first, second = client.get_evaluation(name, job).results[0].segments
    assert (first.segment, first.rows, second.rows) == ("site=a", 100, 200)
    assert second.metrics["ece"].low <= second.metrics["ece"].value
    with pytest.raises(InvalidRequestError, match="segments: found no column sight"):
        client.evaluate(name, "sites", ["identity"], segments=["sight"])
    with pytest.raises(ResourceNotFoundError):
        client.get_evaluation(name, "none")
