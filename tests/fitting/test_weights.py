"""Weights of rows: 0 is no row, counts are repeated rows, surveys have an effective size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from recalib.core.arrays import check_weights, drop_rows_without_weight
from recalib.errors import InputError
from recalib.files import LabelledData
from recalib.fitting.comparison import compare
from recalib.fitting.fit import fit
from recalib.maps import MAPS
from recalib.maps.labels import LABEL_MAPS
from recalib.objectives import OBJECTIVES
from tests.fitting.conftest import draw

#: Every map, and every objective that has one minimum or is searched over all of its range.
FITS: list[Any] = [(name, {}) for name in MAPS] + [
    ("isotonic", {"target": "one_vs_rest"}),
    ("histogram_binning", {"target": "one_vs_rest"}),
    ("histogram_binning", {"binning": "equal_width"}),
    *((name, {"task": "multilabel"}) for name in LABEL_MAPS),
    *(("temperature", {"objective": objective}) for objective in OBJECTIVES),
]
#: The same objectives of a map with several parameters.
FITS += [
    pytest.param("class_temperature", {"objective": objective}, marks=pytest.mark.slow)
    for objective in OBJECTIVES
    if not OBJECTIVES[objective].top_label_only
]


def _rows(rows: int, task: str = "multiclass", **options: Any) -> tuple[np.ndarray, np.ndarray]:
    logits, labels = draw(rows, 4, 2.5)
    return logits, np.eye(4, dtype=np.int64)[labels] if task == "multilabel" else labels


@pytest.mark.parametrize(("name", "options"), FITS, ids=str)
def test_counts_equal_repeated_rows(name: str, options: dict[str, Any]) -> None:
    """Penalties and smoothing too, which depend on the number of rows."""
    logits, labels = _rows(150, **options)
    times = np.random.default_rng(5).integers(0, 4, 150)
    repeated = np.repeat(np.arange(150), times)
    by_counts = fit(logits, labels, name, weights=times, weight_kind="counts", **options)
    plain = fit(logits[repeated], labels[repeated], name, **options)
    np.testing.assert_allclose(by_counts.predict(logits), plain.predict(logits), rtol=0, atol=1e-8)
    assert by_counts.card.fit.objective == pytest.approx(plain.card.fit.objective, rel=1e-8)


def test_bounds_of_the_temperature_see_counts() -> None:
    """Labels that the logits do not predict take the temperature to its bound."""
    random = np.random.default_rng(0)
    logits = random.normal(size=(150, 4)) * random.gamma(1.0, 3.0, (150, 1))
    labels, times = logits.argmin(axis=1), random.integers(1, 5, 150)
    repeated = np.repeat(np.arange(150), times)
    by_counts = fit(logits, labels, weights=times, weight_kind="counts")
    plain = fit(logits[repeated], labels[repeated])
    assert by_counts.card.fit.bounds_reached == plain.card.fit.bounds_reached != ()
    assert by_counts.parameters["temperature"] == plain.parameters["temperature"]


@pytest.mark.parametrize(("name", "options"), FITS, ids=str)
def test_rows_of_weight_0_change_nothing(name: str, options: dict[str, Any]) -> None:
    """Not the sums, the number of rows, the scale of the logits or the confidences in the card."""
    rng = np.random.default_rng(3)
    logits, labels = _rows(500, **options)
    weights = rng.random(500) * (rng.random(500) < 0.3)
    used = weights > 0
    logits[~used] *= 20
    with_zeros = fit(logits, labels, name, weights=weights, **options)
    without = fit(logits[used], labels[used], name, weights=weights[used], **options)
    np.testing.assert_allclose(
        with_zeros.predict(logits), without.predict(logits), rtol=0, atol=1e-8
    )
    assert with_zeros.card.data == without.card.data
    assert with_zeros.card.confidences == without.card.confidences
    assert with_zeros.card.fit.warnings == without.card.fit.warnings


def test_rows_of_weight_0_change_no_comparison() -> None:
    """Folds, groups, scores and the calibration error of the validation rows."""
    rng = np.random.default_rng(3)
    logits, labels = draw(180, 3, 2.0)
    weights = rng.random(180) * (rng.random(180) < 0.5)
    used, groups = weights > 0, rng.integers(0, 60, 180)
    with_zeros = fit(logits, labels, "auto", weights=weights, groups=groups).card
    without = fit(
        logits[used], labels[used], "auto", weights=weights[used], groups=groups[used]
    ).card
    assert with_zeros.choice is not None
    assert without.choice is not None
    assert with_zeros.choice.reason == without.choice.reason
    pairs = [("temperature", "nll"), ("vector", "nll")]
    all_rows = compare(LabelledData(logits, labels), None, pairs, sample_weight=weights)
    some = compare(
        LabelledData(logits[used], labels[used]), None, pairs, sample_weight=weights[used]
    )
    assert all_rows.choice.reason == some.choice.reason
    assert all_rows.recommended.card.calibration_error == some.recommended.card.calibration_error


def test_penalties_see_the_effective_number_of_survey_rows() -> None:
    """Kish: 300 rows of which few have most of the weight count as 30 or so."""
    logits, labels = draw(300, 4, 2.5)
    weights = np.random.default_rng(1).lognormal(0, 1.5, 300)
    size = weights.sum() ** 2 / (weights**2).sum()
    assert 10 < size < 100
    as_counts = weights * size / weights.sum()
    for name in ("structured_matrix", "dirichlet", "isotonic", "spline", "beta"):
        survey = fit(logits, labels, name, weights=1e-9 * weights)
        counts = fit(logits, labels, name, weights=as_counts, weight_kind="counts")
        np.testing.assert_allclose(
            survey.predict(logits), counts.predict(logits), rtol=0, atol=1e-8, err_msg=name
        )


def test_effective_number_of_rows_is_the_sum_of_checked_weights() -> None:
    assert check_weights(np.full(5, 3.0), rows=5) is None
    assert check_weights(np.full(5, 1.0), rows=5, kind="counts") is None
    np.testing.assert_array_equal(check_weights([3, 1], rows=2, kind="counts"), [3, 1])
    np.testing.assert_allclose(check_weights([3, 1], rows=2), np.array([3, 1]) * 4 / 10)
    weights, values, nothing = drop_rows_without_weight(np.array([1.0, 0, 1]), np.arange(3), None)
    assert weights is None
    assert nothing is None
    np.testing.assert_array_equal(values, [0, 2])


def test_equal_weights_do_not_change_the_fit() -> None:
    logits, labels = draw(200, 3, 2.0)
    assert (
        fit(logits, labels, weights=np.full(200, 7.0)).parameters["temperature"]
        == fit(logits, labels).parameters["temperature"]
    )


@pytest.mark.parametrize(
    ("weights", "found"),
    [
        ([1.0, 2.0], "shape"),
        (np.ones((200, 1)), "shape"),
        (np.full(200, -1.0), "-1"),
        (np.full(200, np.nan), "nan"),
        (np.full(200, np.inf), "inf"),
        (np.zeros(200), "zeros"),
        (np.full(200, "a"), "dtype"),
    ],
)
def test_invalid_weights_are_rejected(weights: object, found: str) -> None:
    logits, labels = draw(200, 3, 2.0)
    with pytest.raises(InputError, match=f"weights.*{found}"):
        fit(logits, labels, weights=weights)


def test_an_unknown_kind_of_weights_is_rejected() -> None:
    logits, labels = draw(20, 3, 2.0)
    with pytest.raises(InputError, match="weight_kind: found 'frequency'; accepted: survey or"):
        fit(logits, labels, weight_kind="frequency")  # type: ignore[arg-type]


def test_enormous_weights_do_not_overflow() -> None:
    logits, labels = draw(200, 3, 2.0)
    weights = np.linspace(1, 2, 200)
    np.testing.assert_allclose(
        fit(logits, labels, weights=weights * 1e307).parameters["temperature"],
        fit(logits, labels, weights=weights).parameters["temperature"],
        rtol=1e-9,
    )


def test_what_monitoring_reads_from_the_card_sees_weights() -> None:
    """Half of the rows have random labels, and almost no weight."""
    logits, labels = draw(4000, 3, 2.0)
    labels[:2000] = np.random.default_rng(1).integers(0, 3, 2000)
    weights = np.where(np.arange(4000) < 2000, 1e-3, 1.0)
    weighted = fit(logits, labels, weights=weights, measure=True)
    plain = fit(logits[2000:], labels[2000:], measure=True)
    error, expected = weighted.card.calibration_error, plain.card.calibration_error
    assert error is not None
    assert expected is not None
    assert error.value == pytest.approx(expected.value, abs=0.005)
    assert (error.low, error.high) == pytest.approx((expected.low, expected.high), abs=0.005)
    histogram, p = weighted.card.confidences, weighted.predict_float64(logits).max(axis=1)
    assert histogram is not None
    effective = weights * weights.sum() / (weights @ weights)
    counts, _ = np.histogram(p, [0.0, *histogram.edges, 1.0], weights=effective)
    np.testing.assert_allclose(histogram.counts, counts, rtol=0, atol=0.51)
