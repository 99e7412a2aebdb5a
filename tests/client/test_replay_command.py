"""`recalib replay --into`, and replays by the client."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recalib.calibrator import Calibrator
from recalib.client import Client, InvalidRequestError, ResourceConflictError
from recalib.errors import UnsupportedError
from tests.cli.conftest import cli
from tests.cli.running import LABELS, LOGITS, Cli
from tests.client.either import Either
from tests.end_to_end.programs import Server

__all__ = ["cli"]

_PAGE = Path(__file__).parents[2] / "docs" / "replay.md"
_HOUR = 3_600.0
_SETTINGS: dict[str, Any] = {
    "cohort_seconds": _HOUR,
    "maturity_seconds": 60,
    "least_labels": 100,
    "window_labels": 500,
    "refit": "manual",
}


def a_model(client: Client, name: str, folder: Path) -> Path:
    """Make a model with a champion; return a log of its predictions, which drifts, of 2020."""
    client.create_model(name, 4, monitoring=_SETTINGS)
    client.upload_dataset(name, "val", LOGITS, LABELS, progress=False)
    client.wait(client.fit(name, "val", promote=True), progress=False)
    client.download_calibrator(name, folder / "c.calib")
    calibrator = Calibrator.load(folder / "c.calib")
    random = np.random.default_rng(0)
    confidence = np.tile(calibrator.predict(LOGITS).max(axis=1), 10)
    rows = len(confidence)
    time = datetime(2020, 1, 1, tzinfo=UTC).timestamp() + np.arange(rows) * 24 * _HOUR / rows
    drifted = np.arange(rows) > rows / 2
    content = {
        "time": time,
        "confidence": confidence,
        "correct": random.random(rows) < np.where(drifted, 0.5 * confidence, confidence),
    }
    pq.write_table(pa.table(content), folder / "log.parquet")
    return folder / "log.parquet"


@pytest.mark.slow
def test_command_shows_what_it_has_loaded(cli: Cli, server: Server) -> None:
    with Client(server.url) as client:
        a_model(client, "past", cli.folder)
    there = ("--server", server.url)
    result = cli("replay", "log.parquet", "--into", "past", *there, "--to-now")
    assert (result.status, result.err) == (0, "")
    assert "past, version 1: replayed events" in result.out
    assert "23 cohorts of predictions until" in result.out
    assert "now stale; recalib monitoring past" in result.out
    result = cli("monitoring", "past", *there, "--history", "20")
    assert "stale* " in result.out
    assert result.out.endswith("\n* replayed from a log\n")
    entries = cli("monitoring", "past", *there, "--history", "20", "--json").json
    assert [entry["replayed"] for entry in entries] == [True] * 20
    result = cli("monitoring", "past", *there)
    assert "are replayed from a log" in result.out
    for options, message in (
        (("--into", "past", *there), "version 1 of 'past' is monitored until"),
        (("--into", "past"), "--server: found none, with --into"),
        (("--into", "past", *there, "--alpha", "0.1"), "--alpha: found used with --into"),
        (("--to-now",), "--to-now: found used without --into"),
    ):
        result = cli("replay", "log.parquet", *options)
        assert result.status != 0
        assert result.err.startswith(f"error: {message}")
    assert cli("replay", "*.parquet", "--into", "past", *there).err.startswith("error: log: found")


@pytest.mark.slow
def test_client_replays_a_log(
    client: Either, server: Server, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Each kind of client; a log of 2020 leaves a state and no history."""
    name = f"past-{abs(hash(request.node.name)) % 10**6}"
    with Client(server.url) as owner:
        log = a_model(owner, name, tmp_path)
        owner.create_model(f"{name}-days", 4, monitoring={**_SETTINGS, "maturity_seconds": 1e6})
        owner.upload_dataset(f"{name}-days", "val", LOGITS, LABELS, progress=False)
        owner.wait(owner.fit(f"{name}-days", "val", promote=True), progress=False)
    with pytest.raises(InvalidRequestError, match="maturity_seconds"):
        client.replay(f"{name}-days", log, progress=False)
    with pytest.raises(UnsupportedError, match=r"log: found a name ending in '\.txt'"):
        client.replay(name, tmp_path / "log.txt")
    fractions: list[float] = []
    job = client.replay(name, log, version=1, progress=lambda share, text: fractions.append(share))
    assert fractions[-1] == 1
    result = client.wait(job, progress=False).result
    assert (result["state"], result["cohorts"], result["history"]) == ("stale", 23, 0)
    assert list(client.list_monitoring_history(name)) == []
    report = client.get_monitoring(name)
    assert report.replayed_through == datetime(2020, 1, 1, 23, tzinfo=UTC)
    newest, *_ = (event for event in report.events if event.replayed)
    assert (newest.kind, newest.at.year) == ("stale", 2020)
    with pytest.raises(ResourceConflictError, match="publish the calibrator again"):
        client.replay(name, log, progress=False)


@pytest.mark.slow
def test_documented_example_runs(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", _PAGE.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    with Client(server.url) as client:
        a_model(client, "resnet-past", tmp_path)
        names: dict[str, Any] = {"client": client}
        exec(example.replace('"resnet"', '"resnet-past"'), names)  # noqa: S102
    assert names["job"].result["rows"] == 10 * len(LOGITS)
