"""Batches by the client."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from recalib.client import (
    Client,
    InvalidRequestError,
    InvalidResponseError,
    ResourceNotFoundError,
)
from recalib.errors import InputError
from tests.cli.running import LABELS, LOGITS
from tests.client.either import Either
from tests.client.flaky import BATCH, Flaky, says
from tests.end_to_end.programs import Server

_PAGE = Path(__file__).parents[2] / "docs" / "batches.md"


@pytest.fixture(scope="module")
def model(server: Server) -> str:
    """A model with a champion, and the data set `val`."""
    with Client(server.url) as client:
        client.create_model("resnet-batches", 4)
        client.upload_dataset("resnet-batches", "val", LOGITS, LABELS, progress=False)
        client.wait(client.fit("resnet-batches", "val", promote=True), progress=False)
    return "resnet-batches"


@pytest.mark.slow
def test_client_sends_arrays_and_downloads(client: Either, model: str, tmp_path: Path) -> None:
    """The example of docs/batches.md, and errors."""
    fractions: list[float] = []
    job = client.create_batch(
        model, LOGITS, format="npz", progress=lambda share, text: fractions.append(share)
    )
    assert fractions[-1] == 1
    job = client.wait(job, progress=False)
    target = tmp_path / "p.npz"
    batch = client.download_batch(model, job, target, progress=False)
    assert (batch.rows, batch.state, batch.dataset) == (300, "succeeded", None)
    assert np.load(target)["probabilities"].shape == LOGITS.shape
    assert batch == client.get_batch(model, job.id)
    assert job.id in [item.id for item in client.list_batches(model)]
    with pytest.raises(InputError, match=r"a name that ends in \.npz"):
        client.download_batch(model, job, tmp_path / "p.parquet", progress=False)
    with pytest.raises(ResourceNotFoundError):
        client.create_batch(model, dataset="none")
    for request in ({"dataset": "val"}, {"data": LOGITS}):
        with pytest.raises(InvalidRequestError, match="without thresholds of prediction sets"):
            client.create_batch(model, **request, sets=True, progress=False)
        with pytest.raises(InvalidRequestError, match="without a threshold of rejection"):
            client.create_batch(model, **request, accepted=True, progress=False)


@pytest.mark.slow
def test_documented_example_runs(
    server: Server, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", _PAGE.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    with Client(server.url) as client:
        exec(example.replace("resnet", model), {"client": client, "logits": LOGITS})  # noqa: S102
    assert np.load("probabilities.npz")["probabilities"].shape == LOGITS.shape


def test_other_bytes_are_not_saved(flaky: Flaky, tmp_path: Path) -> None:
    flaky.will(says(200, BATCH), says(200, b"other"))
    target = tmp_path / "p.npz"
    with Client(flaky.url) as client, pytest.raises(InvalidResponseError, match="other bytes"):
        client.download_batch("m", "j", target, progress=False)
    assert not target.exists()
