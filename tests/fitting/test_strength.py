"""The strength of a penalty, chosen by approximate leave-one-out likelihood."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from recalib.errors import InputError
from recalib.fitting.fit import fit
from recalib.fitting.linear_maps import LINEAR_MAPS
from recalib.fitting.linear_nll import LinearNll
from recalib.fitting.newton import fit_temperature
from recalib.fitting.newton_cg import minimise
from recalib.fitting.problem import Problem
from recalib.fitting.request import candidate_of, configure_pair
from recalib.fitting.strength import leave_one_out_nll, with_strength
from recalib.maps.ridge import RidgeMap
from recalib.ops import NumpyOps
from tests.fitting.conftest import draw
from tests.fitting.test_linear_nll import miscalibrated

OPEN = ("structured_vector", "structured_matrix", "matrix", "dirichlet")


def chosen(name: str, logits: np.ndarray, labels: np.ndarray) -> float:
    """The chosen value of the first open strength."""
    return next(iter(fit(logits, labels, name).card.fit.settled.values()))


@pytest.mark.parametrize("strength", [1.0, 10.0])
@pytest.mark.parametrize("name", OPEN[:2])
def test_leave_one_out_is_near_fits_without_each_row(name: str, strength: float) -> None:
    """Of the difference to the NLL of the fitted rows, the estimate is within a quarter."""
    logits, labels = miscalibrated(80, 4)
    the_map, _ = configure_pair(name, "nll", {})
    assert isinstance(the_map, RidgeMap)
    form, temperature = LINEAR_MAPS[name], fit_temperature(logits, labels).temperature
    unit = form.unit(temperature)
    x, _ = form.rows(the_map, logits, temperature)
    theta = form.theta(the_map.start(4, temperature), unit)

    def fitted(rows: np.ndarray) -> tuple[LinearNll, np.ndarray]:
        ridge = form.ridge(the_map.with_strength(strength, 4, 80), 4, 80, unit)
        ridge = replace(ridge, strength=ridge.strength * 80 / len(rows))
        ridge = replace(ridge, tied=ridge.tied * 80 / len(rows))
        nll = LinearNll(form.design, x[rows], None, labels[rows], ridge=ridge)
        return nll, minimise(nll.around, theta, form.box, tolerance=1e-12).x

    def losses(point: np.ndarray) -> np.ndarray:
        scores = form.design.scores(x, point)
        return np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(80), labels]

    nll, best = fitted(np.arange(80))
    without = [fitted(np.delete(np.arange(80), row))[1] for row in range(80)]
    exact = np.mean([losses(point)[row] for row, point in enumerate(without)])
    optimism = exact - losses(best).mean()
    assert leave_one_out_nll(nll, best, 80) == pytest.approx(exact, abs=0.25 * optimism)


@pytest.mark.parametrize("name", OPEN)
def test_the_card_holds_values_that_give_the_same_fit(name: str) -> None:
    logits, labels = miscalibrated(400, 4)
    by_data = fit(logits, labels, name)
    fixed = fit(logits, labels, name, **by_data.card.fit.settled)
    assert by_data.card.fit.settled
    assert not fixed.card.fit.settled
    np.testing.assert_allclose(fixed.predict(logits), by_data.predict(logits), atol=1e-7)


@pytest.mark.parametrize("name", OPEN)
def test_the_penalty_is_weak_where_classes_differ_and_strong_where_they_do_not(name: str) -> None:
    wrong, right = miscalibrated(2_000, 5), draw(2_000, 5, 2.0)
    assert chosen(name, *wrong) < chosen(name, *right) / 10


@pytest.mark.parametrize("objective", ["nll", "brier"])
def test_every_objective_has_the_same_strength(objective: str) -> None:
    logits, labels = miscalibrated(300, 3)
    settled = fit(logits, labels, "structured_vector", objective).card.fit.settled
    assert settled == {"strength": chosen("structured_vector", logits, labels)}


def test_a_sample_gives_the_strength_for_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The strength of `matrix` is per row, and the sample's is scaled to all rows."""
    logits, labels = miscalibrated(4_000, 3)
    all_rows = fit(logits, labels, "matrix").card.fit.settled
    monkeypatch.setattr("recalib.fitting.strength._MAX_ROWS", 2_000)
    sample = fit(logits, labels, "matrix").card.fit.settled
    ratios = [sample[name] / all_rows[name] for name in all_rows]
    assert ratios == pytest.approx([ratios[0]] * 3)
    assert 0.3 < ratios[0] < 3.3  # a step of the path at most


def test_options_of_older_cards_give_the_older_penalty() -> None:
    """1 + r P / N with r = 10, without a choice."""
    logits, labels = miscalibrated(300, 3)
    older = {"diagonal": 1.0, "intercept": 1.0, "rows_per_parameter": 10.0}
    calibrator = fit(logits, labels, "structured_vector", **older)
    assert not calibrator.card.fit.settled
    same = fit(logits, labels, "structured_vector", strength=1 + 10 * 6 / 300)
    np.testing.assert_allclose(same.predict(logits), calibrator.predict(logits), atol=1e-9)
    assert candidate_of(calibrator.card).map == configure_pair("structured_vector", "nll", older)[0]


def test_one_option_determines_the_penalty() -> None:
    with pytest.raises(InputError, match="rows_per_parameter") as error:
        fit(*miscalibrated(50, 3), "structured_matrix", strength=1.0, rows_per_parameter=10.0)
    assert error.value.field == "options.rows_per_parameter"


def test_a_matrix_for_many_classes_has_the_default_strength(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("recalib.fitting.strength._MAX_CLASSES", 3)
    logits, labels = miscalibrated(100, 4)
    the_map, objective = configure_pair("structured_matrix", "nll", {})
    problem = Problem(the_map, objective, logits, labels)
    assert with_strength(problem) == (problem, {})
    parameters = the_map.start(4, 1.0) | {"bias": np.ones(4)}
    assert float(the_map.penalty(NumpyOps(), parameters, 100)) == pytest.approx(
        (1 + 10 * 20 / 100) * 4 * 4 / 100
    )
