"""`recalib train --server`: a worker trains, and the client downloads the result."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from recalib.client import Client, ResourceNotFoundError
from tests.cli.conftest import cli
from tests.cli.running import Cli
from tests.cli.test_train import write_data, write_recipe
from tests.client.either import Either
from tests.end_to_end.programs import Programs, Server

__all__ = ["cli"]


@pytest.fixture
def data(shared_programs: Programs) -> Path:
    """The worker's data folder."""
    folder = shared_programs.home / "training-data"
    folder.mkdir(exist_ok=True)
    write_data(folder)
    return folder


@pytest.mark.slow
def test_server_trains_and_serves_the_result(
    cli: Cli, server: Server, data: Path, name: str
) -> None:
    """Files as from a local run; the model's champion is fitted to the run's logits."""
    with Client(server.url) as client:
        client.create_model(name, 3)
    recipe = write_recipe(cli.folder, calibrate={"model": name, "promote": True})
    output = cli("train", recipe, "--server", server.url, "-o", "out", "--json").json
    assert output["calibrator"]["version"] == 1
    there = json.loads((cli.folder / "out" / "result.json").read_text())
    assert {k: output[k] for k in there} == there
    write_data(cli.folder)
    cli("train", write_recipe(cli.folder), "-o", "here")
    with np.load("out/test.npz") as remote, np.load("here/test.npz") as local:
        np.testing.assert_allclose(remote["logits"], local["logits"], rtol=1e-5, atol=1e-6)
        with Client(server.url) as client:
            p = client.calibrate(name, remote["logits"])
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-5)


def test_training_run_with_each_client(client: Either, data: Path, tmp_path: Path) -> None:
    """Files that do not exist raise a missing error."""
    recipe = {"data": {"source": "arrays"}, "model": {"name": "linear"}}
    job = client.train(recipe)
    with pytest.raises(ResourceNotFoundError, match="weights"):
        client.download_run_file(job, "weights.safetensors", tmp_path / "w")
    assert not (tmp_path / "w").exists()
    client.cancel_job(job)


def test_local_options_are_rejected_with_a_server(cli: Cli, server: Server) -> None:
    recipe = write_recipe(cli.folder)
    result = cli("train", recipe, "--server", server.url, "--data", ".")
    assert (result.status, result.out) == (2, "")
    assert result.err.startswith("error: data: found .")
    result = cli("train", write_recipe(cli.folder, tune={"beta": [1]}), "--server", server.url)
    assert result.err.startswith("error: tune: found a table; accepted: none")
