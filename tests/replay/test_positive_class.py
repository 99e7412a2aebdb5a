"""Two classes: P(y = 1) is monitored if a log has it, in any of its forms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import recalib
from recalib.drift.target import (
    monitored_probabilities,
    pairs_of_rows,
    target_of,
    values_of_predicted_class,
)
from recalib.errors import InputError
from recalib.fitting.fit import fit
from recalib.replay import ReplayOptions, replay
from recalib.replay.model_log import ModelLog, ModelLogOptions
from tests.replay.logs import START, write

_ROWS = 4_000
_COHORT = 86_400.0


def shifted(rows: int = _ROWS, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return times, P(y = 1) and y, for which every P(y = 1) is too high.

    At the confidence c, the predicted class is right with probability c − .6 (1 − c) where it is 1,
    and c + .6 (1 − c) where it is 0. Both are equally frequent, so accuracy is exactly c.
    """
    rng = np.random.default_rng(seed)
    p = 1 / (1 + np.exp(-rng.normal(0, 1.5, rows)))
    truth = p - 0.6 * np.minimum(p, 1 - p)
    time = START + np.sort(rng.random(rows)) * 10 * 86_400
    return time, p, (rng.random(rows) < truth).astype(np.int64)


def both(p: np.ndarray) -> np.ndarray:
    return np.stack([1 - p, p], axis=1)


def test_error_of_the_positive_class_that_the_confidence_hides_is_found():
    time, p, y = shifted()
    options: dict[str, Any] = {"time": time, "cohort": _COHORT}
    confidence = recalib.monitor(np.maximum(p, 1 - p), (p > 0.5) == y, **options)
    assert (confidence.target, confidence.state) == ("top_label", "fresh")
    result = recalib.monitor(probabilities=both(p), label=y, **options)
    assert (result.target, result.state) == ("positive_class", "stale")
    assert result.to_dict()["target"] == "positive_class"
    assert result.windows[-1]["confidence"] == pytest.approx(p.mean(), abs=0.02)
    assert result.windows[-1]["accuracy"] == pytest.approx(y.mean(), abs=0.02)
    reason = result.events[-1].status.reason
    assert reason.startswith("the frequency of class 1 is not within 2.0% of P(y = 1)")


def test_calibrated_probabilities_are_fresh():
    time, p, _ = shifted()
    y = (np.random.default_rng(1).random(_ROWS) < p).astype(np.int64)
    result = recalib.monitor(probabilities=both(p), label=y, time=time, cohort=_COHORT)
    assert (result.target, result.state) == ("positive_class", "fresh")
    assert result.events[-1].status.reason.startswith("ECE of P(y = 1) ")


def test_correct_and_label_say_the_same():
    """Of two classes, and of three, for which `correct` is derived too."""
    time, p, y = shifted(2_000)
    for matrix in (both(p), np.stack([p / 2, p / 2, 1 - p], axis=1)):
        labels = 2 * y if matrix.shape[1] == 3 else y
        options: dict[str, Any] = {"probabilities": matrix, "time": time, "cohort": 86_400.0}
        derived = recalib.monitor(label=labels, **options)
        given = recalib.monitor(correct=matrix.argmax(axis=1) == labels, **options)
        assert derived.to_dict() == given.to_dict()


def test_one_column_and_two_are_the_same(tmp_path: Path):
    """P(y = 1) as (N,), (N, 1) and (N, 2), and as numbers and lists in a file."""
    time, p, y = shifted(2_000)
    p = p.astype(np.float32)
    forms = [both(p), p, p[:, None]]
    options: dict[str, Any] = {"label": y, "time": time, "cohort": 86_400.0}
    expected, *others = (recalib.monitor(probabilities=form, **options) for form in forms)
    assert expected.target == "positive_class"
    for other in others:
        assert other.to_dict() == expected.to_dict()
    for number, column in enumerate((p, list(p[:, None]), list(both(p)))):
        path = tmp_path / f"{number}.parquet"
        write(path, {"time": time, "probabilities": column, "label": y})
        result = replay(path, ReplayOptions(cohort=86_400.0))
        assert result.to_dict() == expected.to_dict()


@pytest.mark.parametrize("value", [1.5, np.nan, -0.1])
def test_invalid_probabilities_of_one_column_are_refused(value: float):
    time, p, y = shifted(20)
    p[3] = value
    with pytest.raises(InputError) as excinfo:
        recalib.monitor(probabilities=p, label=y, time=time)
    assert excinfo.value.field.startswith("probabilities[3]")


def test_unlabelled_rows_count_as_traffic():
    time, p, y = shifted(2_000)
    label = np.where(np.arange(2_000) % 2, y, np.nan)
    result = recalib.monitor(probabilities=both(p), label=label, time=time, cohort=86_400.0)
    assert result.labelled == 1_000
    assert result.windows[-1]["coverage"] == pytest.approx(0.5, abs=0.05)


def test_segments_are_searched_by_the_positive_class():
    time, p, y = shifted()
    segment = np.where(np.arange(_ROWS) % 2, "even", "odd")
    result = recalib.monitor(
        probabilities=both(p),
        label=y,
        time=time,
        cohort=86_400.0,
        segment_columns={"side": segment},
    )
    assert result.segment_search is not None
    assert result.segment_search.gap == pytest.approx(np.mean(y - p))
    assert result.segment_search.exceeding == 2


def test_card_with_confidences_is_no_reference_of_the_positive_class(tmp_path: Path):
    time, p, y = shifted(2_000)
    logits = np.stack([np.zeros(2_000), np.log(p / (1 - p))], axis=1)
    card = fit(logits, y).card
    assert card.confidences is not None
    histogram = msgspec.structs.replace(card.confidences, target="top_label")
    log = write(tmp_path / "a.parquet", {"time": time, "probabilities": list(both(p)), "label": y})
    options = ReplayOptions(cohort=86_400.0)
    earlier = replay(log, options, card=msgspec.structs.replace(card, confidences=histogram))
    assert (earlier.target, earlier.reference_from) == ("positive_class", "log")
    histogram = msgspec.structs.replace(histogram, target="positive_class")
    later = replay(log, options, card=msgspec.structs.replace(card, confidences=histogram))
    assert (later.target, later.reference_from) == ("positive_class", "calibrator")
    assert later.state == earlier.state


def test_log_of_confidences_cannot_be_replayed_as_the_positive_class(tmp_path: Path):
    time, p, y = shifted(2_000)
    columns = {"time": time, "confidence": np.maximum(p, 1 - p), "correct": (p > 0.5) == y}
    path = write(tmp_path / "a.parquet", columns)
    options = ModelLogOptions(2, 86_400.0, 3_600.0, target="positive_class")
    with pytest.raises(InputError) as excinfo, ModelLog(path, options) as log:
        log.survey()
    assert excinfo.value.field == "probabilities"


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_pairs_of_the_predicted_class_become_those_of_class_1(dtype: type):
    """Extremes too: 0, 1, and ½, where class 0 is predicted."""
    p = np.array([0.0, 1e-9, 0.3, 0.5, 0.7, 1.0], dtype)
    matrix = both(p)
    predicted, y = matrix.argmax(axis=1), np.array([0, 1, 0, 1, 0, 1])
    target = target_of(2)
    monitored, outcomes = pairs_of_rows(matrix, y)
    np.testing.assert_array_equal(monitored, p.astype(np.float64))
    np.testing.assert_array_equal(outcomes, y)
    confidence = monitored_probabilities(matrix, "top_label")
    derived = values_of_predicted_class(confidence, predicted, target)
    np.testing.assert_allclose(derived, monitored, atol=1e-7)
    np.testing.assert_array_equal(values_of_predicted_class(predicted == y, predicted, target), y)
    unknown = np.array([np.nan, np.nan])
    assert np.isnan(values_of_predicted_class(unknown, np.array([0, 1]), target)).all()
    assert target_of(3) == "top_label"
