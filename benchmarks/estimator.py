"""`python -m benchmarks.estimator`: our `CalibratedClassifier` and scikit-learn's, rare classes.

On each of 20 tasks with few positive rows, four calibrated classifiers of the same estimator are
fitted to the training rows and scored on the test rows: ours with all defaults, and
`CalibratedClassifierCV` with each of its methods. A line has the log loss, and the Brier score in
brackets. Then there are the differences from each method, and from the best method of each task,
ours minus theirs: mean over tasks with its standard error, and the number of tasks where ours is
lower. Negative is better.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, make_classification
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, log_loss
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from recalib.sklearn import CalibratedClassifier

METHODS = ("sigmoid", "isotonic", "temperature")
_TRAINING_ROWS, _TEST_ROWS = 1_500, 5_000

Values = NDArray[Any]


class Task(NamedTuple):
    """Rows with classes 0 and 1, and an estimator."""

    name: str
    x: Values
    y: Values
    test_x: Values
    test_y: Values
    estimator: Any


def tasks(seed: int = 0) -> Iterator[Task]:
    """Yield the tasks; a seed has its own rows, splits and estimators."""
    estimators = cycle(
        [
            make_pipeline(StandardScaler(), LogisticRegression(class_weight="balanced")),
            RandomForestClassifier(100, random_state=seed),
            GaussianNB(),
            HistGradientBoostingClassifier(class_weight="balanced", random_state=seed),
        ]
    )
    for (name, x, y, train), estimator in zip(_sets(seed), estimators, strict=False):
        x, test_x, y, test_y = train_test_split(
            x, y, train_size=train, stratify=y, random_state=seed
        )
        yield Task(f"{name}, {_name(estimator)}", x, y, test_x, test_y, estimator)


def _sets(seed: int) -> Iterator[tuple[str, Values, Values, Any]]:
    for i, share in enumerate(np.repeat([0.02, 0.05, 0.1], 4).tolist()):
        x, y = make_classification(
            _TRAINING_ROWS + _TEST_ROWS, 12, n_informative=6, weights=[1 - share],
            class_sep=(0.5, 1.0)[i % 2], flip_y=0.01, random_state=100 * seed + i,
        )  # fmt: skip
        yield f"drawn, {share:.0%}", x, y, _TRAINING_ROWS
    x, y = load_digits(return_X_y=True)
    for digit in (1, 3, 8, 9):
        yield f"digit {digit}, 10%", x, (y == digit).astype(int), 0.5
    x, y = load_breast_cancer(return_X_y=True)
    for share in (0.05, 0.1):
        positive = np.flatnonzero(y == 0)
        count = int(share / (1 - share) * (len(y) - len(positive)))
        drawn = np.random.default_rng(seed).choice(positive, count, replace=False)
        rows = np.concatenate([np.flatnonzero(y == 1), drawn])
        yield f"malignant, {share:.0%}", x[rows], 1 - y[rows], 0.5
    x, y = load_diabetes(return_X_y=True)
    for share in (0.1, 0.2):
        yield f"diabetes, {share:.0%}", x, (y > np.quantile(y, 1 - share)).astype(int), 0.5


def _name(estimator: Any) -> str:
    return type(getattr(estimator, "steps", [("", estimator)])[-1][1]).__name__


def scores(task: Task) -> NDArray[np.float64]:
    """Return log loss and Brier score of ours and of each method, (4, 2)."""
    models = [
        CalibratedClassifier(task.estimator),
        *(CalibratedClassifierCV(task.estimator, method=method) for method in METHODS),
    ]
    results = []
    for model in models:
        p = model.fit(task.x, task.y).predict_proba(task.test_x)[:, 1]
        results.append((log_loss(task.test_y, p), brier_score_loss(task.test_y, p)))
    return np.array(results)


def main() -> None:
    """Print a line for each task, and the paired differences."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1, help="seeds of all tasks")
    runs = parser.parse_args().runs
    warnings.simplefilter("ignore")
    print(f"{'task':48s} {'ours':>15s} " + " ".join(f"{name:>15s}" for name in METHODS))
    results = []
    for seed in range(runs):
        for task in tasks(seed):
            results.append(scores(task))
            cells = " ".join(f"{loss:7.4f} ({brier:.4f})" for loss, brier in results[-1])
            print(f"{task.name:48s} {cells}", flush=True)
    for name, ours_less_theirs in differences(np.stack(results)).items():
        cells = [
            f"{of}: {d.mean():+.5f} ± {d.std(ddof=1) / np.sqrt(len(d)):.5f}, "
            f"lower on {(d < 0).sum()} of {len(d)}"
            for of, d in zip(("log loss", "Brier"), ours_less_theirs.T, strict=True)
        ]
        print(f"ours − {name}: " + "; ".join(cells))


def differences(values: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """Return ours minus theirs for each method, and for the best of each task and score, (n, 2).

    Parameters
    ----------
    values: (n, 4, 2), the `scores` of n tasks.
    """
    theirs = {name: values[:, i + 1] for i, name in enumerate(METHODS)}
    theirs["best of each task"] = values[:, 1:].min(axis=1)
    return {name: values[:, 0] - other for name, other in theirs.items()}


if __name__ == "__main__":
    main()
