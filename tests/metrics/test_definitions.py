"""Every metric against its definition and against other libraries."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from numpy.typing import NDArray
from sklearn.calibration import calibration_curve
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss, top_k_accuracy_score

from recalib.metrics import METRICS, Predictions
from recalib.metrics.evaluate import evaluate
from recalib.metrics.marginal_sb_ece import SoftBinnedMarginalError
from tests.metrics.definitions import DEFINITIONS, ELSEWHERE
from tests.metrics.rows import defined
from tests.metrics.strategies import Case, bins, coarse

Drawn = tuple[NDArray[np.float64], NDArray[np.int64]]


@pytest.fixture(scope="module")
def drawn() -> Drawn:
    """3,000 overconfident rows of 7 classes; continuous, so that no value is on an edge."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(3000, 7)) * 3
    labels = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(axis=1)
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True), labels


def value(name: str, drawn: Drawn, bins: int = 15) -> float:
    p, y = drawn
    return evaluate(y, probabilities=p, metrics=[name], bins=bins)[name].value


def test_every_metric_has_a_definition() -> None:
    missing = METRICS.keys() - DEFINITIONS.keys() - ELSEWHERE.keys()
    assert not missing, (
        f"write an independent definition of {sorted(missing)} in tests/metrics/definitions.py, "
        "or name the test file that has one in its table ELSEWHERE"
    )
    assert DEFINITIONS.keys() | ELSEWHERE.keys() == METRICS.keys()
    for file in ELSEWHERE.values():
        assert (Path(__file__).parent / file).is_file()


@given(coarse(), bins)
def test_metrics_match_their_definitions(case: Case, bins: int) -> None:
    """On rows full of ties and of values on edges.

    Both sides are float64 and add at most 150 numbers up to 100: 1e-12 is thousandfold the error.
    """
    p, y = case
    names = defined(p.shape[1], DEFINITIONS)
    result = evaluate(y, probabilities=p, bins=bins, metrics=names)
    for name in names:
        try:
            expected = DEFINITIONS[name](p.tolist(), y.tolist(), bins)
        except ZeroDivisionError:  # of no rows
            assert name not in result
            continue
        assert result[name].value == pytest.approx(expected, rel=1e-12, abs=1e-12), name


@pytest.mark.parametrize("name", defined(7, DEFINITIONS))
@pytest.mark.parametrize("bins", [10, 15])
def test_metrics_of_many_rows_match_their_definitions(name: str, bins: int, drawn: Drawn) -> None:
    p, y = drawn
    expected = DEFINITIONS[name](p.tolist(), y.tolist(), bins)
    assert value(name, drawn, bins) == pytest.approx(expected, rel=1e-11)


def test_accuracy_equals_scikit_learn(drawn: Drawn) -> None:
    p, y = drawn
    assert value("accuracy", drawn) == pytest.approx(accuracy_score(y, p.argmax(axis=1)))


def test_top5_accuracy_equals_scikit_learn(drawn: Drawn) -> None:
    p, y = drawn
    assert value("top5_accuracy", drawn) == pytest.approx(top_k_accuracy_score(y, p, k=5))


def test_entropy_equals_scipy(drawn: Drawn) -> None:
    expected = scipy.stats.entropy(drawn[0], axis=1).mean()
    assert value("mean_entropy", drawn) == pytest.approx(expected, rel=1e-13)


def test_class_loss_deviation_equals_scikit_learn(drawn: Drawn) -> None:
    p, y = drawn
    losses = [log_loss(y[y == k], p[y == k], labels=range(7)) for k in range(7)]
    assert value("classwise_loss_std", drawn) == pytest.approx(np.std(losses), rel=1e-12)


@pytest.mark.parametrize("bins", [10, 15])
def test_classwise_equal_mass_error_equals_scikit_learn(bins: int, drawn: Drawn) -> None:
    """N is a multiple of M, and there are no ties."""
    p, y = drawn
    gaps = []
    for k in range(7):
        frequency, mean = calibration_curve(y == k, p[:, k], n_bins=bins, strategy="quantile")
        gaps.append(np.abs(frequency - mean).mean())
    result = value("classwise_ece_equal_mass", drawn, bins)
    assert result == pytest.approx(np.mean(gaps), rel=1e-12)


def test_marginal_error_equals_torchmetrics_binary_l2(drawn: Drawn) -> None:
    import torch
    from torchmetrics.functional.classification import binary_calibration_error

    p, y = (torch.tensor(array) for array in drawn)
    columns = [
        binary_calibration_error(p[:, k].contiguous(), (y == k).int(), n_bins=15, norm="l2")
        for k in range(7)
    ]
    expected = float((torch.stack(columns) ** 2).mean().sqrt())
    assert value("marginal_ece_l2", drawn) == pytest.approx(expected, rel=1e-12)


def test_soft_bins_are_hard_bins_at_a_low_temperature(drawn: Drawn) -> None:
    rows = Predictions.from_probabilities(*drawn)
    soft = SoftBinnedMarginalError(temperature=1e-10).measure(rows).value
    assert soft == pytest.approx(value("marginal_ece_l2", drawn), rel=1e-11)
    assert SoftBinnedMarginalError(temperature=0.1).measure(rows).value < 0.9 * soft


def test_nll_equals_scikit_learn(drawn: Drawn) -> None:
    p, y = drawn
    assert value("nll", drawn) == pytest.approx(log_loss(y, p), rel=1e-12)


def test_brier_equals_scikit_learn(drawn: Drawn) -> None:
    """Unscaled: scikit-learn's sum over classes is ours."""
    p, y = drawn
    expected = brier_score_loss(y, p, scale_by_half=False, labels=np.arange(7))
    assert value("brier", drawn) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("name", "norm"), [("ece", "l1"), ("ece_l2", "l2"), ("mce", "max")])
@pytest.mark.parametrize("bins", [10, 15])
def test_equal_width_errors_equal_torchmetrics(
    name: str, norm: str, bins: int, drawn: Drawn
) -> None:
    """On continuous values only, and to float32, in which torchmetrics keeps confidences.

    torchmetrics closes bins on the left.
    """
    import torch
    from torchmetrics.functional.classification import multiclass_calibration_error

    p, y = (torch.tensor(array) for array in drawn)
    expected = multiclass_calibration_error(p, y, num_classes=7, n_bins=bins, norm=norm)
    assert value(name, drawn, bins) == pytest.approx(float(expected), rel=1e-5)


def test_classwise_error_equals_mean_torchmetrics_binary_error(drawn: Drawn) -> None:
    """torchmetrics' binary error bins the probability of class 1, as Recalib does."""
    import torch
    from torchmetrics.functional.classification import binary_calibration_error

    p, y = (torch.tensor(array) for array in drawn)
    columns = [
        binary_calibration_error(p[:, k].contiguous(), (y == k).int(), n_bins=15) for k in range(7)
    ]
    expected = float(torch.stack(columns).mean())
    assert value("classwise_ece", drawn) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("name", "power"), [("ece_equal_mass", 1), ("ece_l2_equal_mass", 2)])
@pytest.mark.parametrize("bins", [10, 15])
def test_equal_mass_error_equals_scikit_learn(
    name: str, power: int, bins: int, drawn: Drawn
) -> None:
    """Its quantiles give the same bins if N is a multiple of M and there are no ties."""
    p, y = drawn
    correct = p.argmax(axis=1) == y
    accuracy, confidence = calibration_curve(
        correct, p.max(axis=1), n_bins=bins, strategy="quantile"
    )
    expected = np.mean(np.abs(accuracy - confidence) ** power) ** (1 / power)
    assert value(name, drawn, bins) == pytest.approx(expected, rel=1e-12)
