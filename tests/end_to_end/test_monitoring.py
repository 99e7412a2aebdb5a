"""Monitoring with real processes: traffic counts, and a calibrator that drifts."""

from __future__ import annotations

import os
import re
import subprocess
import time
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from recalib.metrics.evaluate import evaluate
from recalib.registry import Registry
from tests.end_to_end.programs import (
    Programs,
    Server,
    probabilities_of,
    recalib_command,
    until,
)
from tests.fitting.conftest import draw
from tests.service.conftest import NPZ, npz

pytestmark = pytest.mark.slow


def counted(programs: Programs, database_url: str) -> int:
    """Return the number of stored prediction counts."""
    registry = Registry(database_url, (programs.home / "blobs").as_uri())
    with registry.reading() as tx:
        model = tx.models.get("digits")
        rows = tx.traffic.between(model, 1, 0, 1e11)
    registry.close()
    return sum(row.predictions for row in rows)


# On SQLite: `tests/faults/test_killed_server.py`.
@pytest.mark.parametrize("empty_database_url", ["postgresql"], indirect=True)
def test_traffic_counts_of_processes_add_up_and_survive_kill(
    programs: Programs, empty_database_url: str
) -> None:
    """A kill loses at most the counts since the last flush, and no label."""
    rows, labels = draw(500, 4, 3.0)
    settings = {"database_url": empty_database_url, "flush_seconds": 0.2}
    with programs.serve("--workers", 2, **settings) as server:
        server.model()
        server.upload(rows, labels)
        server.finished(server.ask_fit(promote=True))
        for _ in range(20):
            # A connection for each request, so that both processes serve some.
            server.client.headers["Connection"] = "close"
            ids = server.calibrate(rows[:10])["prediction_ids"]
        until(lambda: counted(programs, empty_database_url) == 200, "all traffic")
        server.calibrate(rows[:7])
        items = [{"prediction_id": prediction_id, "label": 0} for prediction_id in ids]
        server.ask("POST", "/v1/models/digits/labels", json=items)
        server.kill()
    until(lambda: not programs.alive(), "the children to end")
    counts = counted(programs, empty_database_url)
    assert counts in (200, 207)
    slow = {"database_url": empty_database_url, "flush_seconds": 3600}
    with programs.serve("--job-workers", 0, **slow) as again:
        items = [{"prediction_id": prediction_id, "label": 0} for prediction_id in ids]
        answer = again.ask("POST", "/v1/models/digits/labels", json=items)
        assert answer["counts"]["duplicate"] == len(ids)
        again.calibrate(rows[:30])
        assert counted(programs, empty_database_url) == counts
        assert again.stop() == 0
    # A stopped server flushes everything.
    assert counted(programs, empty_database_url) == counts + 30


#: Seconds instead of hours, so that the test takes a minute.
_SETTINGS: dict[str, object] = {
    "flush_seconds": 0.2,
    "bucket_seconds": 1,
    "monitor_seconds": 0.2,
    "capture_seconds": 0.2,
    "refresh_seconds": 0.2,
}
_WATCHED = {
    "cohort_seconds": 1,
    "maturity_seconds": 2,
    "objective": 0.12,
    "tolerance": 0.005 if "RECALIB_TESTS_SCENARIO" in os.environ else 0.02,
    "least_labels": 300,
    "window_labels": 1_500,
    "capture": 1.0,
}


_KINDS = ("stale", "refitted", "promoted")


class Traffic:
    """Send rows from a distribution that can change, and their labels half a second later."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.temperature = 3.0
        self._late: list[tuple[float, list[dict[str, Any]]]] = []
        self._seed = 0

    def send(self, rows: int = 60) -> NDArray[np.float32]:
        """Send rows and the labels that are due; return the probabilities."""
        self._seed += 1
        logits, labels = draw(rows, 4, self.temperature, seed=self._seed)
        answer = self.server.calibrate(logits)
        pairs = zip(answer["prediction_ids"], labels.tolist(), strict=True)
        items = [{"prediction_id": prediction_id, "label": label} for prediction_id, label in pairs]
        self._late.append((time.monotonic() + 0.5, items))
        while self._late and self._late[0][0] <= time.monotonic():
            _, items_due = self._late.pop(0)
            self.server.ask("POST", "/v1/models/digits/labels", json=items_due)
        return probabilities_of(answer)

    def until(self, *kinds: str) -> list[dict[str, Any]]:
        """Send until the audit trail has these entries in order; return the trail."""

        def look() -> list[dict[str, Any]]:
            for _ in range(4):
                self.send()
            story: list[dict[str, Any]] = self.report()["events"][::-1]
            rest = iter([event["kind"] for event in story])
            return story if all(kind in rest for kind in kinds) else []

        return until(look, f"{kinds}")

    def report(self) -> dict[str, Any]:
        body: dict[str, Any] = self.server.ask("GET", "/v1/models/digits/monitoring")
        return body


@pytest.mark.parametrize("empty_database_url", ["sqlite"], indirect=True)
def test_drift_is_detected_and_repaired_automatically(
    programs: Programs, empty_database_url: str
) -> None:
    """Drift makes a calibrator stale; a refit is compared in shadow, promoted, and is fresh."""
    rows, labels = draw(3_000, 4, 3.0)
    with programs.serve(database_url=empty_database_url, **_SETTINGS) as server:
        body = {"name": "digits", "classes": 4, "monitoring": _WATCHED}
        server.ask("POST", "/v1/models", json=body)
        server.upload(rows, labels)
        server.finished(server.ask_fit(promote=True))
        traffic = Traffic(server)
        traffic.until("fresh")
        traffic.temperature = 9.0
        story = traffic.until("fresh", *_KINDS, "fresh")
        before, _ = _errors(server, traffic, calibrator=1)
        after, _ = _errors(server, traffic)
        assert after < before / 2
        if "RECALIB_TESTS_SCENARIO" in os.environ:
            # The first candidate may be fitted on predictions from before the drift as well. It
            # then fails the comparison, and another follows.
            until(lambda: _is_as_good_as_perfect(server, traffic), "a calibrated drifted stream")

        history = server.ask("GET", "/v1/models/digits/aliases/champion/history")["items"]
        assert [(change["actor"], change["to_version"]) for change in history][-2] == ("monitor", 2)
        events = {kind: next(event for event in story if event["kind"] == kind) for kind in _KINDS}
        assert events["promoted"]["evidence"]["mean_difference"] > 0
        stale = events["stale"]
        assert (stale["version"], stale["actor"]) == (1, "monitor")
        assert stale["evidence"]["log_evidence"] > 0
        assert "version 1 is stale" in server.log()
        assert "Candidate" in server.log()
        assert server.stop() == 0


def test_operator_needs_two_commands(programs: Programs, empty_database_url: str) -> None:
    """`recalib monitoring` prints the command that repairs a drift: an earlier version is right."""
    watched = _WATCHED | {"refit": "manual"}
    with programs.serve(database_url=empty_database_url, **_SETTINGS) as server:
        server.ask(
            "POST", "/v1/models", json={"name": "digits", "classes": 4, "monitoring": watched}
        )
        for version, temperature in enumerate((9.0, 3.0), start=1):
            name = f"{temperature:g}"
            content = npz(*draw(3_000, 4, temperature))
            path = f"/v1/models/digits/datasets/{name}"
            server.ask("PUT", path, content=content, headers=NPZ)
            server.finished(server.ask_fit(dataset=name, map="temperature", promote=False))
            server.promote(version)
        traffic = Traffic(server)
        traffic.until("fresh")
        traffic.temperature = 9.0
        traffic.until("stale")

        def run(*words: str) -> str:
            command = recalib_command(*words[1:])
            environment = programs.environment(server=server.url, columns="200")
            done = subprocess.run(command, env=environment, check=True, capture_output=True)
            return done.stdout.decode()

        before, _ = _errors(server, traffic)
        text = run("recalib", "monitoring", "digits")
        assert "too sure by" in text
        (command,) = re.findall(r"^next: (.*)", text, re.M)
        run(*command.split())
        after, _ = _errors(server, traffic)
        assert after < before / 2


def _is_as_good_as_perfect(server: Server, traffic: Traffic) -> bool:
    """Return whether ECE on the drifted stream is below the 95th percentile of its floor."""
    for _ in range(10):
        traffic.send()
    errors, floor = _errors(server, traffic)
    return traffic.report()["state"] == "fresh" and errors < floor


def _errors(server: Server, traffic: Traffic, **query: Any) -> tuple[float, float]:
    """Return ECE on 1,500 drifted rows, and the 95th percentile of its noise floor."""
    logits, truth = draw(1_500, 4, traffic.temperature, seed=10_000)
    parts = [server.calibrate(part, ids=0, **query) for part in np.split(logits, 5)]
    answered = np.concatenate([probabilities_of(part) for part in parts])
    draws = np.random.default_rng(0)
    ends = np.cumsum(answered.astype(np.float64), axis=1)

    def ece(labels: NDArray[Any]) -> float:
        ece = evaluate(labels, probabilities=answered, metrics=["ece"])["ece"]
        return float(ece.value)

    floor = [
        ece((draws.random((len(answered), 1)) > ends).sum(axis=1).clip(max=3)) for _ in range(100)
    ]
    return ece(truth), float(np.quantile(floor, 0.95))
