"""Probabilities in a log: their largest is the confidence, and they show how classes have moved."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from recalib.core.card import ConfidenceHistogram
from recalib.errors import InputError
from recalib.fitting.fit import fit
from recalib.replay import Replay, ReplayOptions
from recalib.replay import class_shares as module
from recalib.replay import replay as replay_all
from tests.fitting.conftest import draw
from tests.replay.logs import START, write

_BEFORE = np.array([0.5, 0.3, 0.2])
_NOW = np.array([0.1, 0.3, 0.6])


def replay(path: Path, **options: Any) -> Replay:
    """Replay in cohorts of a thousand predictions, which is quicker than by hundreds."""
    return replay_all(path, ReplayOptions(cohort=1_000.0), **options)


def lists(matrix: NDArray[Any]) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(matrix.ravel()), matrix.shape[1])


def log(now: NDArray[Any], noise: float = 1.0, rows: int = 16_000) -> dict[str, Any]:
    """Return a log of a calibrated classifier, whose classes or whose noise change half-way."""
    rng = np.random.default_rng(0)
    late = np.arange(rows) >= rows // 2
    classes = [rng.choice(3, rows, p=shares) for shares in (_BEFORE, now)]
    label = np.where(late, classes[1], classes[0])
    scores = rng.normal(size=(rows, 3)) * np.where(late, noise, 1.0)[:, None]
    scores[np.arange(rows), label] += 1.5
    odds = np.log(_BEFORE) + 1.5 * scores
    p = np.exp(odds - odds.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    time = START + np.arange(rows, dtype=np.float64)
    correct = p.argmax(axis=1) == label
    return {"time": time, "probabilities": lists(p), "correct": correct, "label": label}


@pytest.mark.slow
def test_changed_class_shares_are_estimated_and_confirmed(tmp_path: Path):
    columns = log(_NOW)
    result = replay(write(tmp_path / "a.parquet", columns, row_group_size=3_000))
    shares = result.class_shares
    assert shares is not None
    np.testing.assert_allclose(shares.before, _BEFORE, atol=0.02)
    np.testing.assert_allclose(shares.now, _NOW, atol=0.03)
    assert shares.moved == pytest.approx(0.4, abs=0.03)
    assert shares.moved_by_chance < 0.03
    assert shares.labels == shares.rows == result.windows[-1]["traffic"]
    # What a slow loop gives on the very rows of the window.
    p = np.stack(columns["probabilities"].to_pylist())
    inside = (columns["time"] >= shares.start) & (columns["time"] < shares.end)
    own = rescaled = 0.0
    for row, right in zip(p[inside], columns["correct"][inside], strict=True):
        weighted = row * shares.now / shares.before
        own += (row.max() - right) ** 2 / inside.sum()
        rescaled += (weighted[row.argmax()] / weighted.sum() - right) ** 2 / inside.sum()
    assert (shares.brier, shares.brier_rescaled) == pytest.approx((own, rescaled))
    assert rescaled < own - 0.03
    assert result.to_dict()["class_shares"]["now"] == shares.now
    with mock.patch.object(module, "_MAX_VALUES", 3_000):
        some = replay(tmp_path / "a.parquet").class_shares
    assert some is not None
    assert 500 <= some.rows <= 1_000
    np.testing.assert_allclose(some.now, _NOW, atol=0.06)


def test_rescaling_does_not_help_with_other_drift(tmp_path: Path):
    """Classes occur as before, and the classifier knows less: nothing is gained by shares."""
    result = replay(write(tmp_path / "a.parquet", log(_BEFORE, noise=2.5)))
    shares = result.class_shares
    assert result.state == "stale"
    assert shares is not None
    assert shares.brier is not None
    assert shares.brier_rescaled is not None
    assert shares.brier_rescaled > shares.brier - 0.002


@pytest.mark.parametrize("window", [2_000, 500])
def test_estimated_shares_of_many_classes_vary_by_chance(tmp_path: Path, window: int):
    """Fifty classes without a change: the moved share is about what chance moves."""
    rng = np.random.default_rng(1)
    odds = 3 * rng.normal(size=(8_000, 50))
    p = np.exp(odds) / np.exp(odds).sum(axis=1, keepdims=True)
    columns = {
        "time": START + np.arange(8_000.0),
        "probabilities": lists(p),
        "correct": rng.random(8_000) < p.max(axis=1),
    }
    path = write(tmp_path / "a.parquet", columns)
    options = ReplayOptions(cohort=500.0, window_labels=window)
    shares = replay_all(path, options).class_shares
    assert shares is not None
    assert shares.moved > 0.05
    assert shares.moved < 1.6 * shares.moved_by_chance
    assert shares.moved_by_chance < 1.6 * shares.moved


def test_short_log_has_no_class_shares(tmp_path: Path):
    assert replay(write(tmp_path / "a.parquet", log(_NOW, rows=3_000))).class_shares is None


def test_confidence_is_the_largest_probability(tmp_path: Path):
    """With or without the column, in any order of rows; no probabilities, no shares."""
    columns = log(_NOW, rows=8_000)
    largest = np.stack(columns["probabilities"].to_pylist()).max(axis=1)
    full_result = replay(write(tmp_path / "b.parquet", {**columns, "confidence": largest}))
    shuffled = pa.table(columns).take(np.random.default_rng(0).permutation(8_000))
    pa.parquet.write_table(shuffled, tmp_path / "a.parquet", row_group_size=900)
    assert replay(tmp_path / "a.parquet").to_dict()["windows"] == full_result.to_dict()["windows"]
    plain = {name: column for name, column in columns.items() if name != "probabilities"}
    result = replay(write(tmp_path / "c.parquet", {**plain, "confidence": largest}))
    assert result.class_shares is None
    assert result.to_dict()["windows"] == full_result.to_dict()["windows"]


@pytest.mark.slow
def test_bins_and_comparison_use_the_calibration_set(tmp_path: Path):
    """A log that is unlike the calibration set from its first row on is found by nothing else."""
    card = fit(*draw(3_000, 3, 1.0), map="temperature").card
    path = write(tmp_path / "a.parquet", log(_BEFORE))
    without_card, with_card = replay(path), replay(path, card=card)
    assert card.confidences is not None
    assert (without_card.reference_from, with_card.reference_from) == ("log", "calibrator")
    assert with_card.reference == sum(card.confidences.counts) == 3_000
    sizes = [part.windows[0]["expected"]["calibration_rows"] for part in (without_card, with_card)]
    assert sizes == [None, 3_000]
    assert without_card.windows[0]["psi"] < without_card.windows[0]["psi_threshold"]
    assert with_card.windows[0]["psi"] > with_card.windows[0]["psi_threshold"]
    same = with_confidences(card, np.stack(log(_BEFORE)["probabilities"].to_pylist()))
    (window, *_) = replay(path, card=same).windows
    assert window["psi"] < window["psi_threshold"]


def with_confidences(card: Any, probabilities: NDArray[Any]) -> Any:
    edges = (0.5, 0.7, 0.9)
    counts = np.bincount(np.digitize(probabilities.max(axis=1), edges), minlength=4)
    return msgspec.structs.replace(
        card, confidences=ConfidenceHistogram(edges, tuple(counts.tolist()))
    )


def test_unsuitable_card_is_refused(tmp_path: Path):
    card = fit(*draw(500, 4, 1.0), map="temperature").card
    path = write(tmp_path / "a.parquet", log(_NOW, rows=100))
    with pytest.raises(InputError) as excinfo:
        replay(path, card=card)
    assert (excinfo.value.field, excinfo.value.found) == ("probabilities[0]", "3 classes")
    with pytest.raises(InputError) as excinfo:
        replay(path, card=msgspec.structs.replace(card, confidences=None))
    assert excinfo.value.field == "calibrator"


@pytest.mark.parametrize(
    ("changes", "field", "found"),
    [
        ({"probabilities": [[0.5, 0.5], None]}, "probabilities[1]", "null"),
        ({"probabilities": [None, [0.5, 0.5]]}, "probabilities[0]", "null"),
        ({"probabilities": [[0.5, 0.5], [1.0]]}, "probabilities[1]", "1 classes"),
        ({"probabilities": [[1.5], [1.0]]}, "probabilities[0][1]", "1.5"),
        ({"probabilities": [[0.5, 0.5], [None, 1.0]]}, "probabilities[1]", "null"),
        ({"probabilities": [[0.5, 0.5], [3.0, -2.0]]}, "probabilities[1][0]", "3"),
        ({"probabilities": [[0.5, 0.5], [0.5, 0.9]]}, "probabilities[1]", "a sum of 1.4"),
        ({"probabilities": [1, 0]}, "probabilities", "int64"),
        ({"confidence": [0.5, 0.6]}, "confidence[1]", "0.6"),
        ({"confidence": [0.5, float("nan")]}, "confidence[1]", "NaN"),
    ],
)
def test_invalid_probabilities_are_refused(
    tmp_path: Path, changes: dict[str, Any], field: str, found: str
):
    columns = {"time": [1.0, 2.0], "correct": [True, False]}
    columns |= {"probabilities": [[0.5, 0.5], [0.9, 0.1]], **changes}
    with pytest.raises(InputError) as excinfo:
        replay(write(tmp_path / "a.parquet", columns))
    assert excinfo.value.field == field
    assert found in excinfo.value.found
