"""Comparisons with peers on the same rows, and missing libraries."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special

from benchmarks import apply, calls, fitting, peers
from benchmarks.peers import Fitted, peers_of
from benchmarks.timing import Goal, interleaved
from recalib.maps import MAPS


def test_objective_is_likelihood_plus_penalty() -> None:
    logits = np.random.default_rng(0).normal(size=(50, 4))
    labels = np.arange(50) % 4
    fitted = Fitted(lambda: scipy.special.softmax(logits, axis=1), lambda: 0.25)
    logs = scipy.special.log_softmax(logits, axis=1)
    expected = 0.25 - np.mean([logs[i, label] for i, label in enumerate(labels)])
    assert fitted.objective(labels) == pytest.approx(expected, rel=1e-12)


def test_scikit_learn_reaches_the_same_optimum() -> None:
    """The goals are its time divided by ours, and the difference of the objectives."""
    data = fitting.rows_like(400, 5)
    here = {"scikit-learn": peers.PEERS["scikit-learn"][1]["temperature"]}
    ratio, distance = fitting.against("temperature", calls._ours("temperature"), here, data, 1, 1)
    assert "scikit-learn" in ratio.what
    assert abs(distance.ratio) < 1e-4


def test_missing_library_is_named_and_skipped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(peers, "install", lambda listed: None)
    here = {"scikit-learn": peers.PEERS["scikit-learn"]}
    missing_library = ("no_such_module", here["scikit-learn"][1])
    monkeypatch.setattr(peers, "PEERS", {"nobody's": missing_library, **here})
    assert list(peers_of("temperature")) == ["scikit-learn"]
    output = capsys.readouterr().out
    assert output.startswith("nobody's: not installed (ModuleNotFoundError")


def test_labels_follow_slopes_and_intercepts() -> None:
    """Rows are drawn in parts of one distribution, and depend on the seed only."""
    logits, labels = fitting.rows_like(3_000, 1_000)
    assert np.array_equal(labels, fitting.rows_like(3_000, 1_000)[1])
    hits = (logits.argmax(axis=1) == labels).mean()
    expected = scipy.special.softmax(logits / 2, axis=1).max(axis=1).mean()
    assert hits == pytest.approx(expected, abs=4 * np.sqrt(expected / 3_000))


def test_every_name_is_a_map() -> None:
    targets = {"histogram_binning one_vs_rest", "isotonic one_vs_rest"}
    assert set(apply._FLOORS) - targets <= set(MAPS)
    assert set(calls._SIZES) <= set(MAPS)
    assert {name for _, fits in peers.PEERS.values() for name in fits} <= set(MAPS)


@pytest.mark.parametrize("at_most", [True, False])
def test_goals_report_whether_they_are_met(at_most: bool) -> None:
    over = Goal("this over that", 3.0, 2.0, at_most)
    assert over.met != at_most
    assert ("MISSED" in str(over)) == at_most


def test_contestants_take_turns() -> None:
    order: list[str] = []
    clock = iter(range(100))
    seconds = interleaved(
        {"a": lambda: order.append("a"), "b": lambda: order.append("b")}, 2, lambda: next(clock)
    )
    assert order == ["a", "b", "a", "b"]
    assert seconds == {"a": [1, 1], "b": [1, 1]}
