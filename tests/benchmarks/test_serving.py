"""The serving benchmark: requests, checks, report, and the end of all servers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import scipy.special

from benchmarks.serving import measuring, missing, wire
from benchmarks.serving.champions import prepare
from benchmarks.serving.contestants import (
    BARE,
    BINARY,
    CONTESTANTS,
    ENDPOINT,
    JSON,
    NO_LIMITS,
    OURS,
    SMALL,
    installed,
)
from benchmarks.serving.measuring import CASES, Trial, batches, measure, wrong
from benchmarks.serving.processes import running, until
from benchmarks.serving.report import as_json, goals, over, show

pytestmark = pytest.mark.slow

_ROOT = Path(__file__).parents[2]
_LOGITS = np.random.default_rng(1).normal(size=(3, 5)).astype(np.float32)


def _trials(rate: float) -> list[Trial]:
    return [Trial(rate * machine, 1, 2, 1e6 / rate, 50) for machine in (1, 3, 2)]


def test_every_contestant_sends_valid_requests() -> None:
    for name, contestant in CONTESTANTS.items():
        requests = contestant.requests(batches())
        assert set(requests) == set(CASES) - ({BINARY} if name == "MLServer" else set())


@pytest.mark.parametrize("field", ["probabilities", None])
def test_rows_round_trip_as_json(field: str | None) -> None:
    request = wire.rows("/", _LOGITS, answers=field)
    assert np.array_equal(np.array(json.loads(request.body)["logits"], np.float32), _LOGITS)
    rows = _LOGITS.tolist()
    answer = json.dumps(rows if field is None else {field: rows}).encode()
    assert np.array_equal(request.numbers(({}, answer)).astype(np.float32), _LOGITS)


def test_tensors_follow_the_protocol() -> None:
    """Our parser reads the requests that the peers receive."""
    from service.inference.tensors import parse

    plain, binary = wire.tensor("/", _LOGITS), wire.tensor_bytes("/", _LOGITS)
    assert np.array_equal(parse(plain.body, None).batch.values, _LOGITS)
    length = binary.headers["Inference-Header-Content-Length"]
    question = parse(binary.body, length)
    assert question.outputs == {"probabilities": True}
    assert np.array_equal(question.batch.values, _LOGITS)


def test_wrong_answer_is_rejected() -> None:
    right = scipy.special.softmax(_LOGITS.astype(np.float64) / 2, axis=1)
    assert wrong(right.astype(np.float32).reshape(-1), _LOGITS, {5: 2.0}) == ""
    assert "off by" in wrong(right, _LOGITS, {5: 2.001})
    assert "14 numbers, not 15" in wrong(right.reshape(-1)[:-1], _LOGITS, {5: 2.0})


def test_ratios_compare_the_same_round() -> None:
    """A machine that is faster for one round does not change the ratios."""
    ours = [Trial(rate, 1, 1, 1, 1) for rate in (200, 600, 100)]
    theirs = [Trial(rate, 1, 1, 1, 1) for rate in (100, 300, 50)]
    assert over(ours, theirs, "requests_per_second") == 2


def test_goals() -> None:
    """Ours at 100 requests a second; the best model server is the fastest one."""
    measured = {
        SMALL: {
            OURS: _trials(100),
            BARE: _trials(150),
            ENDPOINT: _trials(50),
            "LitServe": _trials(20),
            "BentoML": _trials(25),
        },
        JSON: {OURS: _trials(100), ENDPOINT: _trials(80)},
        BINARY: {OURS: _trials(100), BARE: _trials(160)},
    }
    goals_by_name = {
        goal.what.partition(" under ")[2] + goal.what[:3]: goal for goal in goals(measured, 1)
    }
    assert {what: (round(goal.ratio, 3), goal.met) for what, goal in goals_by_name.items()} == {
        "the best model server (BentoML)1x1": (4.0, True),
        "FastAPI with pydantic1x1": (2.0, False),
        "FastAPI with pydantic32x": (1.25, False),
        "a bare ASGI handler32x": (0.625, False),
    }


def test_cost_of_limits_is_a_difference_with_an_interval() -> None:
    """The machine is slower in the last round."""
    ours = [Trial(1, 1, 1, cpu, 1) for cpu in (104, 105, 210)]
    others = [Trial(1, 1, 1, cpu, 1) for cpu in (100, 100, 200)]
    (goal,) = goals({SMALL: {OURS: ours, NO_LIMITS: others}}, 1)
    assert (goal.ratio, goal.limit, goal.met) == (1.05, 1.05, True)
    assert goal.detail == "; 100 us without, difference +5.0 us (95% interval +4.0 to +10.0)"


def test_table_and_json_are_complete(capsys: pytest.CaptureFixture[str]) -> None:
    measured = {SMALL: {OURS: _trials(100), BARE: _trials(200)}}
    show(measured, 2)
    printed = capsys.readouterr().out
    assert "1x10 JSON, 2 workers" in printed
    assert "50.0%" in printed
    assert "10,000" in printed
    plain = json.loads(json.dumps(as_json({2: measured}, [])))
    assert len(plain["workers"]["2"][SMALL][OURS]) == 3


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_servers_are_verified_and_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ours, the bare handlers, FastAPI's as it is here, and one of another temperature."""
    monkeypatch.setattr(measuring, "installed", lambda packages: installed(""))
    hot = {"TEMPERATURES": '{"10": 1, "1000": 1}'}
    monkeypatch.setitem(CONTESTANTS, "hot", replace(CONTESTANTS[ENDPOINT], environment=hot))
    home, temperatures = prepare(tmp_path)
    assert temperatures == {10: pytest.approx(2, rel=0.15), 1000: pytest.approx(2, rel=0.15)}
    names = [OURS, BARE, "bare, and the work", ENDPOINT]
    folder = tmp_path / "measured"
    measured = measure([*names, "hot"], home, temperatures, folder, workers=1, rounds=1, seconds=1)
    assert "hot: left out: hot, 1x10 JSON: probabilities are off" in capsys.readouterr().err
    assert {case: list(trials) for case, trials in measured.items()} == dict.fromkeys(CASES, names)
    for trials in measured.values():
        for (trial,) in trials.values():
            assert trial.requests_per_second > 0
            assert 0 < trial.p50_ms <= trial.p99_ms
            assert trial.cpu_microseconds > 0
            assert trial.resident_mib > 10
    assert not _with_folder(folder)


def test_failing_peer_does_not_affect_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its round is missing; without our own result there is no comparison."""

    def failing(*_: object) -> None:
        raise RuntimeError("no answer")

    monkeypatch.setattr(measuring, "_trial", failing)
    server: Any = None
    assert measuring._turn("KServe", server, SMALL, 1, 16) == []
    assert "KServe, 1x10 JSON: one round left out: no answer" in capsys.readouterr().err
    with pytest.raises(RuntimeError):
        measuring._turn(OURS, server, SMALL, 1, 16)


_FORKS = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
time.sleep(600)
"""


def test_all_processes_end_with_the_context(tmp_path: Path) -> None:
    """Including those whose parent is killed."""
    with running([sys.executable, "-c", _FORKS], tmp_path, {}) as tree:
        until(lambda: len(tree.processes()) == 2, tree, "the child")
        started = tree.processes()
        assert tree.resident_bytes() > 2**20
    assert not any(_is_alive(process) for process in started)


@pytest.mark.parametrize("stop_signal", [signal.SIGINT, signal.SIGTERM])
def test_servers_end_when_the_benchmark_is_stopped(
    tmp_path: Path, stop_signal: signal.Signals
) -> None:
    mark = {"TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "benchmarks.serving", "--against", BARE, "--rounds", "1"]
    if missing():
        pytest.skip(missing())
    process = subprocess.Popen(
        command,
        cwd=_ROOT,
        env={**os.environ, **mark},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    below = psutil.Process(process.pid)
    deadline = time.monotonic() + 120
    while not (started := below.children(recursive=True)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(stop_signal)
    assert process.wait(120) != 0
    assert not any(_is_alive(child) for child in started)
    assert list(tmp_path.iterdir()) == []


def test_server_that_fails_to_start_reports_the_reason(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit('no such luck')"]
    with (
        running(command, tmp_path, {}) as tree,
        pytest.raises(RuntimeError, match="no such luck"),
    ):
        until(lambda: False, tree, "it")


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _with_folder(folder: Path) -> list[int]:
    """Return the processes that run in a folder."""
    results = []
    for process in psutil.process_iter():
        try:
            if Path(process.cwd()).is_relative_to(folder):
                results.append(process.pid)
        except (psutil.Error, OSError):
            continue
    return results
