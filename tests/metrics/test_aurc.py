"""The area under the risk-coverage curve: ties, the usual sum, the best order."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from recalib.metrics.aurc import _Curve
from recalib.metrics.confidence_groups import ConfidenceGroups
from tests.metrics.rows import measure, rows

rights = st.lists(st.booleans(), min_size=1, max_size=60)


def ladder(rows: int) -> np.ndarray:
    """Distinct confidences, highest first."""
    return np.linspace(0.99, 0.51, rows)


def test_equals_numerical_integral() -> None:
    """Integrated by scipy, over risk as a function of coverage."""
    errors = np.array([0, 1, 0, 0, 1, 1])

    def risk(coverage: float) -> float:
        share = np.clip(coverage * 6 - np.arange(6), 0, 1)
        return float(share @ errors / share.sum())

    corners = np.arange(1, 6) / 6
    expected = scipy.integrate.quad(risk, 1e-12, 1, points=corners, epsabs=1e-11)[0]
    assert measure("aurc", ladder(6), errors == 0).value == pytest.approx(expected, abs=1e-9)


@given(rights)
def test_usual_sum_differs_by_less_than_one_row(right: list[bool]) -> None:
    """Geifman et al.: the mean over k of the share of errors among the k most confident rows."""
    errors = 1 - np.array(right, float)
    usual = np.mean(np.cumsum(errors) / np.arange(1, len(errors) + 1))
    assert abs(measure("aurc", ladder(len(right)), right).value - usual) < 1 / len(right)


@given(rights)
def test_tied_confidences_give_the_overall_risk(right: list[bool]) -> None:
    """At any coverage, the expected risk is the overall error rate."""
    result = measure("aurc", [0.8] * len(right), right).value
    assert result == pytest.approx(1 - np.mean(right), abs=1e-12)


@given(st.lists(st.booleans(), min_size=2, max_size=6))
def test_ties_equal_the_mean_over_orders(right: list[bool]) -> None:
    """The mean over all cyclic orders, where each row has each place equally often."""
    tied = measure("aurc", [0.8] * len(right), right).value
    broken = [
        measure("aurc", ladder(len(right)), np.roll(right, shift)).value
        for shift in range(len(right))
    ]
    assert tied == pytest.approx(np.mean(broken), abs=1e-12)


@given(rights)
def test_best_order_has_zero_excess_and_worst_has_maximal_excess(right: list[bool]) -> None:
    """The worst, errors first: r(1 − ln r) of area."""
    best, worst = sorted(right, reverse=True), sorted(right)
    r = 1 - np.mean(right)
    assert measure("e_aurc", ladder(len(right)), best).value == pytest.approx(0, abs=1e-12)
    most = r * (1 - math.log(r)) if r > 0 else 0
    assert measure("aurc", ladder(len(right)), worst).value == pytest.approx(most, abs=1e-12)
    excess = measure("e_aurc", ladder(len(right)), right).value
    assert 0 <= excess <= measure("e_aurc", ladder(len(right)), worst).value + 1e-12


def test_best_area_matches_published_formula() -> None:
    """Geifman et al.: r + (1 − r) ln(1 − r), about r²/2 for few errors."""
    right = np.arange(1000) < 900
    expected = 0.1 + 0.9 * math.log(0.9)
    assert measure("aurc", ladder(1000), right).value == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", ["aurc", "e_aurc"])
@pytest.mark.parametrize("tied", [False, True])
def test_influences_match_finite_differences(name: str, tied: bool) -> None:
    """The interval's variance is the jackknife's: of 200 rows, each left out once."""
    rng = np.random.default_rng(0)
    p = rng.uniform(0.5, 1, 200)
    p = np.round(p, 1) + 0.01 if tied else p
    right = rng.random(200) < p
    predictions = rows(p, right)
    curve = _Curve.of(ConfidenceGroups.from_rows(predictions.ties, predictions.correct))
    values = [measure(name, np.delete(p, i), np.delete(right, i)).value for i in range(200)]
    left_out = -199 * (np.array(values) - np.mean(values))
    order = np.argsort(-p, kind="stable")
    errors = (~right).astype(int)[order]
    influences = curve.influences()[errors, np.unique(-p[order], return_inverse=True)[1]]
    if name == "e_aurc":
        influences = influences + np.log1p(-errors.mean()) * (errors - errors.mean())
    assert influences.mean() == pytest.approx(0, abs=1 / 100)
    # The derivative at the highest confidence is infinite.
    np.testing.assert_allclose(influences[3:], left_out[order][3:], atol=0.05)
    assert influences.std() == pytest.approx(left_out.std(), rel=0.05)


def test_interval_of_all_correct_rows_allows_errors() -> None:
    """Five errors in N at most, of mean weight: χ² of one degree, 97.5%."""
    result = measure("aurc", ladder(1000), np.ones(1000, bool), 0.95)
    assert result.value == result.low == 0
    assert result.high == pytest.approx(scipy.stats.chi2(1).ppf(0.975) / 1000, rel=1e-9)


@pytest.mark.parametrize(("name", "expected"), [("aurc", 0.3), ("e_aurc", -0.7 * math.log(0.7))])
def test_interval_covers_the_true_value(name: str, expected: float) -> None:
    """Uninformative confidences: 95% of 400 draws, less three standard errors."""
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(400):
        result = measure(name, ladder(300), rng.random(300) < 0.7, 0.95)
        covered += result.low <= expected <= result.high
    assert covered / 400 >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / 400)
