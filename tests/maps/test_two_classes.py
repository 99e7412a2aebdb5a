"""Maps of two classes: they correct P(y = 1), keep the order where they say so, and old files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import scipy
import sklearn.isotonic

import recalib
from recalib.calibrator import Calibrator
from recalib.core.card import Card, DataSummary, FitSummary
from recalib.errors import InputError
from recalib.maps import MAPS, Map
from recalib.ops import NumpyOps
from tests.maps.conftest import some_logits, some_parameters

#: Fits of shifted rows warn of what they leave, which is not the subject here.
pytestmark = pytest.mark.filterwarnings("ignore::recalib.errors.RecalibWarning")

#: Maps of which a fit to two classes has log-odds that rise with those of the classifier.
RISING = [name for name, member in MAPS.items() if member().preserves_order]
#: Maps with a free intercept for P(y = 1), by a fit with default options.
WITH_INTERCEPT = (
    "vector", "beta", "isotonic", "venn_abers", "histogram_binning", "spline", "quadratic"
)  # fmt: skip


def shifted_rows(rows: int = 4000, shift: float = 4.0) -> tuple[np.ndarray, ...]:
    """Return log-odds of a classifier trained on rebalanced rows, labels, and true log-odds."""
    rng = np.random.default_rng(5)
    odds = rng.normal(-4, 1.5, rows)
    labels = (rng.random(rows) < scipy.special.expit(odds)).astype(int)
    return odds + shift, labels, odds


def log_odds(the_map: Map, parameters: Mapping[str, np.ndarray], odds: np.ndarray) -> np.ndarray:
    logits = np.stack([-odds / 2, odds / 2], axis=1)
    logs = the_map.log_probabilities(NumpyOps(), logits, parameters)
    return logs[:, 1] - logs[:, 0]


def extreme_parameters(the_map: Map, seed: int, factor: float) -> dict[str, np.ndarray]:
    """Return legal parameters of a fit to two classes; a factor of 10 is extreme."""
    parameters = some_parameters(the_map, 2, seed)
    for name, parameter in the_map.parameters(2).items():
        if parameter.link == "log":
            parameters[name] = parameters[name] ** np.sqrt(factor)
        elif parameter.link == "real":
            parameters[name] = parameters[name] * factor
    return the_map.tie_classes(parameters)


@pytest.mark.parametrize("name", MAPS)
def test_order_preservation_is_as_declared(name: str) -> None:
    """Log-odds of class 1 rise strictly for the parameters of any fit, if the map says so.

    A map that does not declare it lowers or ties some of them.
    """
    the_map = MAPS[name]().for_classes(2)
    odds = np.linspace(-20, 20, 401)
    rises = np.stack(
        [
            np.diff(log_odds(the_map, extreme_parameters(the_map, seed, factor), odds))
            for seed in range(20)
            for factor in (1.0, 10.0)
        ]
    )
    # Far from 0, probabilities are 0 or 1 but for rounding, and differences are below it.
    moderate = np.abs(odds[1:]) < 3
    is_rising = (rises >= -1e-12).all() and (rises[::2, moderate] > 0).all()
    assert is_rising == the_map.preserves_order


@pytest.mark.parametrize("name", RISING)
def test_fit_of_such_a_map_keeps_the_area_under_the_curve(name: str) -> None:
    odds, labels, _ = shifted_rows(500)
    p = recalib.fit(odds, labels, name).predict(odds)[:, 1]
    np.testing.assert_array_equal(np.argsort(p), np.argsort(odds))


@pytest.mark.parametrize("name", ["vector", "class_temperature", "matrix"])
@pytest.mark.parametrize("objective", ["nll", "brier"])
def test_fit_depends_on_the_log_odds_alone(name: str, objective: str) -> None:
    """A number added to each row, which is no information, changes neither fit nor result."""
    odds, labels, _ = shifted_rows(500)
    rng = np.random.default_rng(1)
    logits = np.stack([0 * odds, odds], axis=1)
    moved = logits + rng.normal(0, 3, (len(odds), 1))
    p = recalib.fit(logits, labels, name, objective).predict(logits)
    q = recalib.fit(moved, labels, name, objective).predict(moved)
    np.testing.assert_allclose(p, q, atol=1e-6)


def test_vector_is_platt_scaling() -> None:
    """Against logistic regression of scikit-learn without a penalty."""
    from sklearn.linear_model import LogisticRegression

    odds, labels, _ = shifted_rows()
    p = recalib.fit(odds, labels, "vector", intercept=0.0).predict(odds)[:, 1]
    other = LogisticRegression(C=np.inf, tol=1e-10).fit(odds[:, None], labels)
    np.testing.assert_allclose(p, other.predict_proba(odds[:, None])[:, 1], atol=1e-6)


@pytest.mark.parametrize("name", WITH_INTERCEPT)
def test_wrong_base_rate_is_repaired(name: str) -> None:
    """P(y = 1) crosses one half: on new rows its NLL is near that of the true probability."""
    odds, labels, true = shifted_rows(20_000)
    half = len(odds) // 2
    calibrator = recalib.fit(odds[:half], labels[:half], name)
    p = calibrator.predict(odds[half:])[:, 1]
    test, oracle = labels[half:], scipy.special.expit(true[half:])

    def nll(p: np.ndarray) -> float:
        return -float(np.log(np.where(test, p, 1 - p)).mean())

    assert nll(p) < nll(oracle) + 0.004
    assert nll(scipy.special.expit(odds[half:])) > nll(oracle) + 0.2


@pytest.mark.parametrize("name", WITH_INTERCEPT)
def test_scores_with_another_zero_are_calibrated(name: str) -> None:
    """Scores above 0, few of them positive: no temperature fits, but the order is informative."""
    odds, labels, true = shifted_rows(shift=12.0)
    calibrator = recalib.fit(odds, labels, name)
    p = calibrator.predict(odds)[:, 1]
    assert np.abs(p - scipy.special.expit(true)).mean() < 0.015


@pytest.mark.parametrize("name", ["vector", "beta", "quadratic", "isotonic", "venn_abers"])
def test_swapping_the_classes_swaps_the_result(name: str) -> None:
    odds, labels, _ = shifted_rows(1000)
    p = recalib.fit(odds, labels, name).predict(odds)
    swapped = recalib.fit(-odds, 1 - labels, name).predict(-odds)
    np.testing.assert_allclose(p, swapped[:, ::-1], atol=1e-6)


def test_isotonic_is_near_that_of_scikit_learn() -> None:
    """Smoothing and interpolation change the step function little."""
    odds, labels, _ = shifted_rows()
    p = recalib.fit(odds, labels, "isotonic", knots=256).predict(odds)[:, 1]
    other = sklearn.isotonic.IsotonicRegression(out_of_bounds="clip").fit_transform(odds, labels)
    assert np.abs(p - other).mean() < 0.015


@pytest.mark.parametrize("name", ["isotonic", "histogram_binning", "spline"])
def test_default_target_depends_on_the_number_of_classes(name: str) -> None:
    """The card has the value that was used; one for two classes only is refused for more."""
    odds, labels, _ = shifted_rows(200)
    assert recalib.fit(odds, labels, name).card.options["target"] == "positive_class"
    logits = some_logits(200, 3)
    of_three = (logits + some_logits(200, 3, seed=2)).argmax(axis=1)
    assert recalib.fit(logits, of_three, name).card.options["target"] == "top_label"
    top = recalib.fit(odds, labels, name, target="top_label")
    np.testing.assert_array_equal(top.predict(odds)[:, 1] > 0.5, odds > 0)
    with pytest.raises(InputError, match="positive_class for two classes"):
        recalib.fit(logits, of_three, name, target="positive_class")


#: Of version 0.1: options of a card, and P(y = 1) of `some_logits(4, 2)` under `some_parameters`,
#: with absolute values times ten in the place of `values`.
OLD: dict[str, tuple[dict[str, Any], list[float]]] = {
    "isotonic": (
        {"target": "top_label", "knots": 64},
        [0.596006912758, 0.215229972302, 0.330972725428, 0.784770027698],
    ),
    "histogram_binning": (
        {"target": "top_label", "binning": "equal_mass", "bins": 15},
        [0.865150964898, 0.372165269079, 0.134849035102, 0.627834730921],
    ),
    "spline": (
        {"pieces": 8, "smoothing": 1.0},
        [0.879283124459, 0.202280483211, 0.11503450376, 0.799243156523],
    ),
    "vector": (
        {"intercept": 0.01},
        [0.856560886337, 0.000141202748, 0.034618309409, 0.996480243743],
    ),
    "matrix": (
        {"diagonal": None, "off_diagonal": None, "intercept": None},
        [0.296910067633, 0.914304180403, 0.331390533894, 0.536393702046],
    ),
}


@pytest.mark.parametrize("name", OLD)
def test_older_files_predict_as_before(name: str) -> None:
    """Also without an option that their version did not have."""
    options, expected = OLD[name]
    parameters = some_parameters(MAPS[name](), 2)
    if "values" in parameters:
        parameters["values"] = np.abs(parameters["values"]) * 10
    card = Card(
        map=name,
        objective="nll",
        options=options,
        classes=2,
        library="0",
        created_at="2026-01-01T00:00:00+00:00",
        data=DataSummary(rows=1),
        fit=FitSummary(seconds=0, iterations=0, converged=True, objective=0),
    )
    calibrator = Calibrator.from_bytes(Calibrator(parameters, card).to_bytes())
    np.testing.assert_allclose(calibrator.predict(some_logits(4, 2))[:, 1], expected, atol=1e-11)
