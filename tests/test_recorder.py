"""What a training loop records: values of `recalib.evaluate`, rows, a calibrator; bad use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import recalib
from recalib.errors import InputError, RecalibWarning
from recalib.files import read
from recalib.recorder import CalibrationRecorder
from tests.fitting.conftest import draw

LOGITS, LABELS = draw(200, 3, 2.0)


def record(recorder: CalibrationRecorder, **position: float) -> dict[str, float]:
    """Record `LOGITS` in four batches of tensors."""
    for logits, labels in zip(np.split(LOGITS, 4), np.split(LABELS, 4), strict=True):
        recorder.update(torch.tensor(logits, requires_grad=True), torch.tensor(labels))
    values = recorder.compute()
    recorder.save(**position)
    return values


def test_values_are_those_of_evaluate_with_intervals(tmp_path: Path) -> None:
    values = record(CalibrationRecorder(tmp_path / "run"), epoch=1, step=4)
    expected = recalib.evaluate(LABELS, logits=LOGITS, intervals=True)
    assert values["ece"] == expected["ece"].value
    assert (values["ece_low"], values["ece_high"]) == (expected["ece"].low, expected["ece"].high)
    line = (tmp_path / "run" / "metrics.jsonl").read_text()
    assert json.loads(line) == {"epoch": 1, "step": 4, **values}


def test_files_are_those_that_fit_reads(tmp_path: Path) -> None:
    recorder = CalibrationRecorder(tmp_path)
    record(recorder)
    data = read(tmp_path / "validation.npz")
    np.testing.assert_array_equal(data.logits, LOGITS)
    calibrator = recorder.fit(class_labels=("a", "b", "c"))
    saved = recalib.load(tmp_path / "calibrator.calib")
    assert saved.card.labels == ("a", "b", "c")
    expected = recalib.fit(LOGITS, LABELS).predict(LOGITS)
    for other in (calibrator, saved):
        np.testing.assert_array_equal(other.predict(LOGITS), expected)


def test_rows_that_do_not_count_are_left_out() -> None:
    """In pixels (N, K, H, W), and in a batch of padding only."""
    recorder = CalibrationRecorder(metrics=["nll"])
    labels = np.where(np.arange(200) % 4 == 0, -100, LABELS)
    pixels = LOGITS.reshape(10, 4, 5, 3).transpose(0, 3, 1, 2)
    recorder.update(pixels, labels.reshape(10, 4, 5))
    recorder.update(LOGITS[:5], np.full(5, -100))
    used = labels != -100
    expected = recalib.evaluate(LABELS[used], logits=LOGITS[used], metrics=["nll"])
    assert recorder.compute()["nll"] == pytest.approx(expected["nll"], rel=1e-12)


@pytest.mark.parametrize("column", [LOGITS[:, 0], LOGITS[:, :1]])
def test_one_column_is_class_1_of_2(column: Any) -> None:
    recorder = CalibrationRecorder()
    recorder.update(column, LABELS % 2)
    expected = recalib.evaluate(LABELS % 2, logits=column, metrics=["binary_ece", "roc_auc"])
    values = recorder.compute()
    assert {name: values[name] for name in expected} == dict(expected)


def test_a_calibrator_is_only_of_the_weights_of_its_rows() -> None:
    recorder = CalibrationRecorder()
    record(recorder, step=4)
    with pytest.warns(RecalibWarning, match="step 8, the logits those of step 4"):
        assert recorder.fit_at_end(8) is None
    assert recorder.fit_at_end(4) is not None


def test_a_fit_that_fails_does_not_end_a_training() -> None:
    recorder = CalibrationRecorder()
    record(recorder, step=4)
    with pytest.warns(RecalibWarning, match="no calibrator: class_labels"):
        assert recorder.fit_at_end(4, class_labels=("a",)) is None


def test_invalid_use_is_rejected() -> None:
    with pytest.raises(InputError, match="did you mean ece"):
        CalibrationRecorder(metrics=["eec"])
    with pytest.raises(InputError, match="did you mean temperature"):
        CalibrationRecorder(map="temperatur")
    with pytest.raises(InputError, match="the name of a folder"):
        CalibrationRecorder("calibration.jsonl")
    recorder = CalibrationRecorder()
    with pytest.raises(InputError, match="labels"):
        recorder.update(LOGITS, LABELS[1:])
    with pytest.raises(InputError, match="no batch"):
        recorder.compute()
    with pytest.raises(InputError, match="no evaluation"):
        recorder.fit()
