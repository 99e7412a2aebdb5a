"""Metrics for a trainer of transformers, and calibrated pipelines, without the package.

`tests/clients/test_transformers.py` tests them with the package.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import recalib
import recalib.transformers
from recalib.errors import InputError
from recalib.transformers import CalibratedPipeline, compute_metrics
from tests.fitting.conftest import draw

LOGITS, LABELS = draw(200, 3, 2.0)
NAMES = ("cat", "dog", "emu")
FITTED = recalib.fit(LOGITS, LABELS, "vector", class_labels=NAMES)


class Pipeline:
    """Returns scores as pipelines of transformers do, for rows of `LOGITS`."""

    def __init__(self, names: tuple[str, ...] = NAMES) -> None:
        self.model = SimpleNamespace(config=SimpleNamespace(id2label=dict(enumerate(names))))

    def __call__(self, inputs: Any, *, top_k: int, function_to_apply: str) -> Any:
        if isinstance(inputs, int):
            return self.scores(inputs, top_k, function_to_apply)
        answers = (self.scores(row, top_k, function_to_apply) for row in inputs)
        return list(answers) if isinstance(inputs, list) else answers

    def scores(self, row: int, top_k: int, function_to_apply: str) -> list[dict[str, Any]]:
        z = LOGITS[row]
        values = z if function_to_apply == "none" else np.exp(z) / np.exp(z).sum()
        order = np.argsort(-values)[:top_k]
        return [{"label": NAMES[k], "score": float(values[k])} for k in order]


def test_metrics_of_a_prediction() -> None:
    """From an object as the trainer passes it, a tuple, and outputs with hidden states."""
    function = compute_metrics(["nll", "ece"])
    expected = recalib.evaluate(LABELS, logits=LOGITS, metrics=["nll", "ece"])
    hidden = (LOGITS, np.zeros((200, 8)))
    for prediction in (
        SimpleNamespace(predictions=LOGITS, label_ids=LABELS),
        SimpleNamespace(predictions=hidden, label_ids=LABELS),
        (LOGITS, LABELS),
    ):
        assert function(prediction) == expected


def test_ignored_labels_are_left_out() -> None:
    labels = np.where(np.arange(200) % 4 == 0, -100, LABELS).reshape(20, 10)
    used = labels.reshape(-1) != -100
    expected = recalib.evaluate(LABELS[used], logits=LOGITS[used], metrics=["nll"])
    assert compute_metrics(["nll"])((LOGITS.reshape(20, 10, 3), labels)) == expected


def test_invalid_metrics_and_predictions_are_rejected() -> None:
    with pytest.raises(InputError, match="did you mean ece"):
        compute_metrics(["eec"])
    with pytest.raises(InputError, match="199 labels"):
        compute_metrics()((LOGITS, LABELS[1:]))


def test_pipeline_returns_calibrated_scores() -> None:
    classify = CalibratedPipeline(Pipeline(), FITTED)
    expected = FITTED.predict(LOGITS)
    everything = classify([0, 1, 2], top_k=None)
    for row, answer in enumerate(everything):
        scores = {entry["label"]: entry["score"] for entry in answer}
        np.testing.assert_allclose([scores[name] for name in NAMES], expected[row], rtol=1e-12)
        assert [entry["score"] for entry in answer] == sorted(scores.values(), reverse=True)
    assert classify([0, 1, 2]) == [answer[:1] for answer in everything]
    assert classify(1, top_k=2) == everything[1][:2]
    assert list(classify(iter([0, 1]))) == [answer[:1] for answer in everything[:2]]
    assert classify([]) == []


def test_pipeline_gives_probabilities_to_a_calibrator_of_probabilities() -> None:
    probabilities = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
    calibrator = recalib.fit(probabilities, LABELS, "vector", input="probabilities")
    (answer,) = CalibratedPipeline(Pipeline(), calibrator)([5])
    best = calibrator.predict(probabilities[5:6])[0]
    assert answer[0]["label"] == NAMES[int(best.argmax())]
    assert answer[0]["score"] == pytest.approx(best.max(), rel=1e-12)


def test_pipeline_of_other_classes_is_rejected() -> None:
    with pytest.raises(InputError, match="found 3 classes; accepted: 2 classes"):
        CalibratedPipeline(Pipeline(NAMES[:2]), FITTED)
    with pytest.raises(InputError, match="found classes in the order cat, dog, emu"):
        CalibratedPipeline(Pipeline(NAMES[::-1]), FITTED)
