"""Constants such as −1e9 that stand for classes that are not possible."""

from __future__ import annotations

from functools import reduce
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.naive_bayes import GaussianNB

from recalib.calibrator import Calibrator
from recalib.core.masks import LowLogits, find_mask
from recalib.errors import InputError
from recalib.fitting.fit import fit
from recalib.fitting.newton import fit_temperature
from recalib.maps import MAPS
from recalib.scale.fit import fit as fit_files

CONSTANTS = [-1e3, -9999.0, -1e4, -1e9, *(float(np.finfo(kind).min) for kind in "efd")]


def draw(value: float, rows: int = 300, classes: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Return logits of true temperature 2 with a fifth of the cells at `value`, and labels."""
    random = np.random.default_rng(0)
    z = 3 * random.normal(size=(rows, classes))
    y = (z / 2 + random.gumbel(size=z.shape)).argmax(axis=1)
    mask = (random.random(z.shape) < 0.2) & (np.arange(classes) != y[:, None])
    return np.where(mask, value, z), y


@pytest.mark.parametrize("value", CONSTANTS)
def test_a_constant_gives_the_fit_of_masked_classes(value: float) -> None:
    masked, labels = draw(-np.inf)
    expected = fit(masked, labels, "vector")
    logits, _ = draw(value)
    fitted = fit(logits, labels, "vector")
    assert fitted.predict(logits) == pytest.approx(expected.predict(masked), abs=1e-6)
    assert fitted.card.mask is not None
    assert fitted.card.mask.value == value
    assert [text for text in fitted.card.fit.warnings if "write -inf" in text]


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_logits_whose_squares_leave_the_range_are_refused(scale: float) -> None:
    logits, labels = draw(0.0)
    with pytest.raises(InputError, match="logits: found a largest absolute value of"):
        fit(scale * logits, labels)


@pytest.mark.parametrize("scale", [1e-90, 1e90])
@pytest.mark.parametrize("name", ["temperature", "vector", "structured_matrix", "spline"])
def test_the_unit_of_logits_changes_no_prediction(name: str, scale: float) -> None:
    logits, labels = draw(0.0)
    scaled = fit(scale * logits, labels, name).predict_float64(scale * logits)
    assert scaled == pytest.approx(fit(logits, labels, name).predict_float64(logits), abs=1e-5)


def test_other_constants_are_masks_too() -> None:
    """Two in the fit, and a third in predictions."""
    masked, labels = draw(-np.inf)
    logits = np.where(np.isneginf(masked), np.where(labels[:, None] % 2, -1e9, -1e4), masked)
    expected, fitted = fit(masked, labels, "dirichlet"), fit(logits, labels, "dirichlet")
    served = np.where(np.isneginf(masked), -1e5, masked)
    assert fitted.predict(served) == pytest.approx(expected.predict(masked), abs=1e-6)


@pytest.mark.parametrize("name", MAPS)
def test_every_map_applies_the_rule_in_every_form(name: str) -> None:
    masked, labels = draw(-np.inf, rows=120)
    logits, _ = draw(-1e9, rows=120)
    fitted = Calibrator.from_bytes(fit(logits, labels, name).to_bytes())
    expected = fit(masked, labels, name).predict(masked)
    assert fitted.predict(logits) == pytest.approx(expected, abs=1e-6)
    narrow = logits.astype(np.float32)
    feed = {"logits": narrow}
    for result in (
        fitted.predict(narrow[:20]),  # in NumPy
        fitted.session.run(None, feed)[0][:20],
        fitted.to_torch()(torch.from_numpy(narrow))[:20].numpy(),
    ):
        assert result[masked[:20] == -np.inf].max() == 0
        if name != "venn_abers":  # jumps at the rows of a fit in float64
            assert result == pytest.approx(expected[:20], abs=1e-5)


def test_one_cell_of_a_usual_mask_is_one() -> None:
    logits, labels = draw(0.0, rows=2_000)
    expected = fit_temperature(logits, labels).temperature
    logits[7, (labels[7] + 1) % 5] = -1e9
    fitted = fit(logits, labels)
    assert float(fitted.parameters["temperature"]) == pytest.approx(expected, rel=1e-2)


def test_a_row_of_masks_only_is_a_row_of_equal_logits() -> None:
    fitted = fit(*draw(-1e9))
    assert fitted.predict(np.full((1, 5), -1e9)) == pytest.approx(0.2)


def test_naive_bayes_has_no_masks() -> None:
    # Standard deviations near 0 give log-probabilities far below −1e4, of true classes too.
    x, y = load_digits(return_X_y=True)
    model = GaussianNB().fit(x[::2], y[::2])
    logits = model.predict_log_proba(x)
    assert logits.min() < -1e4
    assert fit(logits, y).card.mask is None
    joint = model.predict_joint_log_proba(x)
    assert fit(joint, y).card.mask is None


@pytest.mark.parametrize(
    ("value", "count", "top", "label"),
    [
        pytest.param(-1e4, 9, 0.0, -1e4, id="a label has it"),
        pytest.param(-1e4, 9, 2e3, -5.0, id="the gap is narrow"),
        pytest.param(-12345.6, 1, 0.0, -5.0, id="an unusual number, once"),
        pytest.param(-745.0, 9, 0.0, -5.0, id="the logarithm of the least float64"),
    ],
)
def test_other_low_logits_are_no_masks(value: float, count: int, top: float, label: float) -> None:
    assert find_mask(LowLogits(-1e4, 9, -5.0, 0.0, -5.0)) is not None
    assert find_mask(LowLogits(value, count, -5.0, top, label)) is None


def test_logits_in_parts_are_those_of_all_rows() -> None:
    logits, labels = draw(-1e9, rows=30)
    logits[:10] = np.maximum(logits[:10], -20)  # no mask in a part
    parts = [LowLogits.of(logits[i : i + 5], labels[i : i + 5]) for i in range(0, 30, 5)]
    assert reduce(LowLogits.merge, parts) == LowLogits.of(logits, labels)


@pytest.mark.parametrize("name", ["temperature", "vector", "isotonic"])
def test_files_give_the_fit_of_arrays(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recalib.scale.row_sample._SAMPLE_ROWS", 100)
    logits, labels = draw(-1e9)
    for part in (slice(0, 100), slice(100, 300)):
        np.savez(tmp_path / f"{part.start}.npz", logits=logits[part], labels=labels[part])
    fitted = fit_files(tmp_path, name)
    expected = fit(logits, labels, name)
    assert fitted.card.mask == expected.card.mask
    assert fitted.predict(logits) == pytest.approx(expected.predict(logits), abs=1e-6)


def test_outliers_that_are_no_masks_move_no_bound() -> None:
    logits, labels = draw(0.0, rows=2_000)
    expected = fit_temperature(logits, labels)
    logits[7, labels[7]] = 1e9
    logits[8, (labels[8] + 1) % 5] = -2.5e8
    found = fit_temperature(logits, labels)
    assert not found.end
    assert found.temperature == pytest.approx(expected.temperature, rel=1e-2)
    separable = fit_temperature(logits, logits.argmax(axis=1))
    assert separable.end == "lower"
    assert separable.temperature < 0.1
