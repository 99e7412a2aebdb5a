"""Fitting maps that are linear in their parameters: against probmetrics, where it is installed.

It is no dependency of ours: `pip install probmetrics numba` brings it beside what is here.
Structured maps are asked for its own objective (`rows_per_parameter` = 0), so that the optimum is
the same; its vector scaling has no penalty, ours one of a hundredth of a row's weight.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.timing import Goal, best_of, interleaved
from recalib.fitting.fit import configured
from recalib.fitting.problem import Problem
from recalib.fitting.solvers import solve
from recalib.ops import NumpyOps

__all__ = ["run"]

_ROWS, _CLASSES = 5_000, 10


def run() -> list[Goal]:
    """Measure 5,000 x 10 against probmetrics, and Dirichlet calibration of 5,000 x 100 alone."""
    logits, labels = _data(_ROWS, _CLASSES)
    goals = [_dirichlet()]
    for name, peer, options in (
        ("vector", "VectorScalingCalibrator", {}),
        ("structured_vector", "SVSCalibrator", {"rows_per_parameter": 0.0}),
        ("structured_matrix", "SMSCalibrator", {"rows_per_parameter": 0.0}),
    ):
        theirs = _peer(peer, logits, labels)
        if theirs is None:
            print(f"fit {name}: skipped, probmetrics is not installed")
            continue
        goals.extend(_against(name, options, theirs, logits, labels))
    return goals


def _data(rows: int, classes: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Logits, and labels drawn with a slope and an intercept of each class's own."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(rows, classes)) * 3
    slopes, bias = np.exp(rng.normal(size=classes) * 0.2) / 2, rng.normal(size=classes) * 0.5
    return logits, (logits * slopes + bias + rng.gumbel(size=logits.shape)).argmax(axis=1)


def _ours(
    name: str, options: dict[str, Any], logits: NDArray[np.float64], labels: NDArray[np.int64]
) -> Callable[[], NDArray[np.float64]]:
    the_map, objective = configured(name, "nll", options)

    def fit() -> NDArray[np.float64]:
        solution = solve(Problem(the_map, objective, logits, labels))
        result: NDArray[np.float64] = the_map.probabilities(NumpyOps(), logits, solution.parameters)
        return result

    return fit


def _peer(
    name: str, logits: NDArray[np.float64], labels: NDArray[np.int64]
) -> Callable[[], NDArray[np.float64]] | None:
    try:
        import torch
        from probmetrics.calibrators import logistic
        from probmetrics.distributions import CategoricalLogits
    except ImportError:
        return None

    def fit() -> NDArray[np.float64]:
        calibrator = getattr(logistic, name)()
        given = CategoricalLogits(torch.as_tensor(logits))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            calibrator.fit_torch(given, torch.as_tensor(labels))
            result: NDArray[np.float64] = calibrator.predict_proba_torch(given).get_probs().numpy()
        return result

    return fit


def _against(
    name: str,
    options: dict[str, Any],
    theirs: Callable[[], NDArray[np.float64]],
    logits: NDArray[np.float64],
    labels: NDArray[np.int64],
) -> list[Goal]:
    ours = _ours(name, options, logits, labels)
    rows = np.arange(len(labels))
    apart = abs(float(np.log(ours()[rows, labels]).mean() - np.log(theirs()[rows, labels]).mean()))
    seconds = interleaved({"ours": ours, "theirs": theirs}, 5)
    best = {who: min(times) for who, times in seconds.items()}
    detail = f"; {best['ours'] * 1e3:.0f} ms against {best['theirs'] * 1e3:.0f} ms"
    what = f"{name} by NLL, {_ROWS:,}x{_CLASSES}: probmetrics' time over ours"
    return [
        Goal(what, best["theirs"] / best["ours"], 1, False, detail),
        Goal("  distance of the two NLL, in 1e-4", apart * 1e4, 1, True),
    ]


def _dirichlet() -> Goal:
    fit = _ours("dirichlet", {}, *_data(5_000, 100))
    return Goal("dirichlet with ODIR, 5,000x100, seconds", best_of(fit, 2), 5, True)
