"""The likelihood of a temperature for each row, against scipy and torch."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special
import torch

import recalib.fitting.gradient as by_gradient
import recalib.fitting.row_temperatures as row_temperatures
from recalib.fitting.newton import fit_temperature
from recalib.fitting.problem import Problem
from recalib.fitting.request import configure_pair
from recalib.fitting.row_temperatures import RowLikelihood
from tests.fitting.conftest import draw


def slow(logits: np.ndarray, labels: np.ndarray, weights: np.ndarray, t: np.ndarray) -> float:
    """The mean by scipy, one row at a time."""
    return sum(
        w * (scipy.special.logsumexp(z / temperature) - z[y] / temperature)
        for z, y, w, temperature in zip(logits, labels, weights, t, strict=True)
    ) / len(t)


@pytest.mark.parametrize("shared", [1, 10**9])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("classes", [2, 7, 30_000])
def test_value_and_slopes_match_scipy(
    classes: int, scale: float, shared: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks of many rows and of one, on one thread and on several."""
    monkeypatch.setattr(row_temperatures, "_SHARED", shared)
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(11, classes)) * scale
    labels, weights = rng.integers(0, classes, 11), rng.gamma(2, 0.5, 11)
    t = np.exp(rng.normal(size=11)) * scale
    likelihood = RowLikelihood(logits, labels, weights)
    value, slopes = likelihood.value_and_slopes(1 / t)
    assert value == pytest.approx(slow(logits, labels, weights, t), rel=1e-12)
    tensor = torch.tensor(1 / t, requires_grad=True)
    scaled = torch.tensor(logits) * tensor[:, None]
    losses = torch.nn.functional.cross_entropy(scaled, torch.tensor(labels), reduction="none")
    (expected,) = torch.autograd.grad((losses * torch.tensor(weights)).mean(), tensor)
    np.testing.assert_allclose(slopes, expected, rtol=1e-9, atol=1e-12 * scale)
    narrow, _ = likelihood.narrow().value_and_slopes(1 / t)
    assert narrow == pytest.approx(value, rel=1e-5)


def test_gradients_match_finite_differences() -> None:
    logits, labels = draw(9, 5, 2.0)
    likelihood = RowLikelihood(logits, labels, np.ones(9))
    t = torch.tensor(np.linspace(0.5, 4, 9)[:, None], requires_grad=True)
    assert torch.autograd.gradcheck(likelihood, (t,))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("weighed", [False, True])
def test_fit_matches_the_general_solver(
    weighed: bool, masked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large enough for the float32 pass; the general fit differentiates all of the logits."""
    monkeypatch.setattr(by_gradient, "_WORTH_THREADS", 1)
    logits, labels = draw(400, 20, 2.0)
    if masked:
        logits[np.arange(400), (labels + 1) % 20] = -np.inf
    weights = np.random.default_rng(1).gamma(2, 0.5, 400) if weighed else None
    if weights is not None:
        weights /= weights.mean()
    the_map, objective = configure_pair("parameterized_temperature", "nll", {})
    problem = Problem(the_map, objective, logits, labels, weights)
    start = the_map.start(20, fit_temperature(logits, labels, weights).temperature)
    result = by_gradient.fit_by_gradient(problem, start)
    monkeypatch.setattr(by_gradient, "ParameterizedTemperature", type(None))
    general = by_gradient.fit_by_gradient(problem, start)
    assert result.converged
    # Searches end with a step that gains a share of 1e-8, some of them in a long valley.
    assert result.objective == pytest.approx(general.objective, rel=1e-5)
