"""A short run of the load script, and tests of its checks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import load_requests
from benchmarks.load import Champions, rise_mib
from recalib.calibrator import Calibrator
from recalib.fitting.fit import fit
from tests.fitting.conftest import draw

_ROOT = Path(__file__).parents[2]
_ROWS = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)


@pytest.mark.slow
def test_mixed_traffic_passes_all_checks() -> None:
    """Every kind of request occurs, and every check holds.

    On a busy machine, promotions may lag. In eight seconds, the processes that read uploads still
    start, 70 MiB each and more with pyarrow: a leak shows in the script's own ten minutes.
    """
    limits = ["--lag", "8", "--rise", "400"]
    process = subprocess.run(
        [sys.executable, "-m", "benchmarks.load", "--seconds", "8", "--json", *limits],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    report = json.loads(process.stdout)
    assert report["problems"] == {}
    kinds = {kind for kind in report["requests"] if not kind.startswith("wrong")}
    expected = {"promote", "upload", "upload again", "upload another", "fit", "metrics", "readyz"}
    assert kinds >= expected | set(load_requests.FORMS)
    refused = [
        requests for kind, requests in report["requests"].items() if kind.startswith("wrong")
    ]
    assert sum(requests["count"] for requests in refused) > 5
    assert report["memory_mib"] > 50


@pytest.fixture(scope="module")
def champions() -> Champions:
    """Version 1 from second 10, version 2 from second 20, each requested 0.5 s earlier."""
    champions = Champions(lag=1)
    data = draw(300, 4, 3.0)
    champions.versions = {
        1: fit(*data, map="identity"),
        2: fit(*data, map="temperature"),
    }
    champions.promotions = [(9.5, 10.0, 1), (19.5, 20.0, 2)]
    return champions


@pytest.mark.parametrize(
    ("asked", "answered", "allowed"),
    [
        (12, 12.1, {1}),
        (19.4, 19.6, {1, 2}),  # asked for, though not answered yet
        (20.9, 21.0, {1, 2}),
        (21.1, 21.2, {2}),
        (15, 30, {1, 2}),
    ],
)
def test_versions_allowed_at_a_time(
    champions: Champions, asked: float, answered: float, allowed: set[int]
) -> None:
    assert champions.allowed(asked, answered) == allowed


def test_answer_of_the_previous_version_is_detected(champions: Champions) -> None:
    old: Calibrator = champions.versions[1]
    late = champions.problem(_ROWS, old.predict(_ROWS), 1, 22, 22.1)
    assert late == "version 1 answered; [2] might have"
    unnamed = champions.problem(_ROWS, old.predict(_ROWS), None, 22, 22.1)
    assert unnamed == "not the probabilities of any version allowed"
    assert champions.problem(_ROWS, old.predict(_ROWS), None, 20.5, 20.6) == ""


def test_mixed_versions_in_an_answer_are_detected(champions: Champions) -> None:
    by_version = [champions.versions[version].predict(_ROWS) for version in (1, 2)]
    mixed = np.concatenate([by_version[0][:2], by_version[1][2:]])
    assert champions.problem(_ROWS, mixed, 2, 22, 22.1) == "not the probabilities of 2"
    assert champions.problem(_ROWS, mixed[:3], 2, 22, 22.1) == "not the probabilities of 2"
    assert champions.problem(_ROWS, by_version[1].reshape(-1), 2, 22, 22.1) == ""


def test_only_a_growing_memory_leak_is_detected() -> None:
    """One sample a second for 100 seconds, the first 30 for warm-up."""
    at = np.arange(101.0)
    warming = np.where(at < 30, 100 + at * 5, 250)
    assert rise_mib(list(zip(at, warming, strict=True))) == pytest.approx(0, abs=1e-6)
    leaking = warming + at * 0.5
    assert rise_mib(list(zip(at, leaking, strict=True))) == pytest.approx(35, rel=1e-6)
    assert rise_mib([]) == 0
