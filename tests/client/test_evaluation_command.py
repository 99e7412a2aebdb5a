"""`recalib evaluation`, and evaluations by the client."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from recalib.client import Client, MissingError
from tests.cli.conftest import cli
from tests.cli.running import LABELS, LOGITS, Cli
from tests.client.either import Either
from tests.end_to_end.programs import Server

__all__ = ["cli"]

pytestmark = pytest.mark.slow

_PAGE = Path(__file__).parents[2] / "docs" / "evaluations.md"


def test_command_prints_metrics_and_saves_the_page(
    cli: Cli, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The example of docs/evaluations.md runs too."""
    with Client(server.url) as client:
        client.create_model("resnet", 4)
        client.upload_dataset("resnet", "test", LOGITS, LABELS, progress=False)
        client.wait(client.fit("resnet", "test", promote=True), progress=False)
    there = ("--server", server.url, "--model", "resnet", "--dataset", "test")
    result = cli("evaluation", *there, "-o", "page.html")
    assert result.status == 0, result.err
    assert "Version 1 was fitted on 300 of these 300 rows" in result.err
    assert "version 1 against identity: NLL -" in result.out
    assert (cli.folder / "page.html").read_text().startswith("<!DOCTYPE html>")
    result = cli("evaluation", *there, "--versions", "1", "--json")
    assert [item["version"] for item in result.json["results"]] == ["1"]
    result = cli("evaluation", *there, "--versions", "1,7")
    assert (result.status, result.out) == (2, "")
    assert result.err.startswith(
        "error: version '7' does not exist; versions[1]: the newest of resnet is 1"
    )

    examples = re.findall(r"```python\n(.*?)```", _PAGE.read_text(), re.DOTALL)
    monkeypatch.chdir(cli.folder)
    with Client(server.url) as client:
        exec("".join(examples), {"client": client})  # noqa: S102
    assert (cli.folder / "report.html").stat().st_size > 10_000


def test_client_returns_typed_results(client: Either, name: str) -> None:
    client.create_model(name, 4)
    client.upload_dataset(name, "val", LOGITS, LABELS, progress=False)
    job = client.wait(client.evaluate(name, "val", ["identity"]), progress=False)
    evaluation = client.get_evaluation(name, job)
    assert (evaluation.state, evaluation.rows) == ("succeeded", 300)
    estimate = evaluation.results[0].metrics["ece"]
    assert estimate.low <= estimate.value <= estimate.high
    assert evaluation.pictures[0].specification["$schema"]
    assert [item.id for item in client.list_evaluations(name)] == [job.id]
    with pytest.raises(MissingError):
        client.get_evaluation(name, "none")
