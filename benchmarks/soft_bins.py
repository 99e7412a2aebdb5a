"""`python -m benchmarks.soft_bins`: how the defaults of `sb_ece` were chosen, without test data.

One temperature is fitted to half of some rows by each setting of the objective, and the
calibration error of the other half is measured: `ece` (15 equal bins) and `ece_l2_equal_mass`
(15 bins of equal mass, order 2). Three sources of rows:

- synthetic logits of 3, 10 and 100 classes, with different true temperatures, or with a
  miscalibration that no temperature corrects (labels from changed or noisy logits);
- small networks trained on half of scikit-learn's digits until they are overconfident;
- random halves of the validation rows of paper 003's ResNet-110, if available.

The numbers are percent, the mean over halves; `nll` is plain temperature scaling on the same
halves. Settings are compared at 15 bins, then numbers of bins at the default of the others. Where
a fit falls back to the likelihood because its objective has no minimum, that result counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

from benchmarks.data import data_folder
from benchmarks.paper_tables import load
from recalib.fitting.problem import Problem
from recalib.fitting.request import configure_pair
from recalib.fitting.solvers import solve
from recalib.metrics.evaluate import evaluate

Half = tuple[NDArray[np.float64], NDArray[np.int64]]
Halves = list[tuple[Half, Half]]

_VARIANTS = ("binned", "label_binned")
_ORDERS = (1.0, 2.0)
_WIDTHS = (0.0003, 0.001, 0.003, 0.01, 0.1)
_BINS = (10, 20, 30)
_METRICS = ["ece", "ece_l2_equal_mass"]


def main() -> None:
    """Print the mean held-out error by each setting and source."""
    sources = dict(_sources())
    settings: list[dict[str, Any]] = [
        {"variant": variant, "order": order, "bin_temperature": width}
        for variant, order, width in product(_VARIANTS, _ORDERS, _WIDTHS)
    ]
    settings += [{"bins": bins} for bins in _BINS]
    console = Console(width=110)
    table = Table("setting", *sources, "mean", box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    _add(table, "nll", [_measure(halves, "nll", {}) for halves in sources.values()])
    for setting in settings:
        results = [_measure(halves, "sb_ece", setting) for halves in sources.values()]
        _add(table, ", ".join(map(_named, setting.items())), results)
    console.print("percent held-out ece / ece_l2_equal_mass, mean over random halves")
    console.print(table)


def _named(option: tuple[str, Any]) -> str:
    name, value = option
    return {"variant": f"{value}", "order": f"order {value}", "bin_temperature": f"T {value}"}.get(
        name, f"{value} bins"
    )


def _add(table: Table, name: str, results: list[tuple[float, float]]) -> None:
    mean = np.mean(results, axis=0)
    table.add_row(name, *(f"{ece:.2f} / {mass:.2f}" for ece, mass in [*results, mean]))


def _measure(halves: Halves, name: str, options: dict[str, Any]) -> tuple[float, float]:
    """Return the two held-out errors in percent, means over halves."""
    the_map, objective = configure_pair("temperature", name, options)
    values = []
    for fitted, held_out in halves:
        temperature = solve(Problem(the_map, objective, *fitted)).parameters["temperature"]
        metrics = evaluate(held_out[1], logits=held_out[0] / temperature, metrics=_METRICS)
        values.append([metrics[metric].value * 100 for metric in _METRICS])
    ece, mass = np.mean(values, axis=0)
    return float(ece), float(mass)


def _sources() -> Iterator[tuple[str, Halves]]:
    yield (
        "synthetic",
        [
            half
            for seed, (classes, kind) in enumerate(
                product((3, 10, 100), ("plain", "sharp", "noise"))
            )
            for half in _halves(*synthetic(1_000, classes, kind, seed), count=1)
        ],
    )
    yield "digits", [half for seed in range(4) for half in _halves(*_digits(seed), count=2)]
    folder = data_folder()
    if (folder / "resnet110-cifar10-val.npz").is_file():
        rows = load(folder)[0]
        yield "resnet110", _halves(rows.logits.astype(np.float64), rows.labels, count=4)


def _halves(logits: NDArray[np.float64], labels: NDArray[np.int64], count: int) -> Halves:
    """Return random halves of the rows: for fitting and for measuring."""
    halves = []
    for seed in range(count):
        order = np.random.default_rng(seed).permutation(len(labels))
        first, second = np.array_split(order, 2)
        halves.append(((logits[first], labels[first]), (logits[second], labels[second])))
    return halves


def synthetic(rows: int, classes: int, kind: str, seed: int) -> Half:
    """Rows of an accurate, overconfident classifier; `kind` is the kind of miscalibration."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(rows, classes)) * 2
    logits[np.arange(rows), rng.integers(0, classes, rows)] += rng.gamma(4, 2, rows)
    truth = logits / 1.5
    if kind == "sharp":  # overconfidence grows with confidence
        truth = np.sign(logits) * np.abs(logits) ** 0.8
    labels = (truth + rng.gumbel(size=truth.shape)).argmax(axis=1)
    if kind == "noise":
        wrong = rng.random(rows) < 0.05
        labels = np.where(wrong, rng.integers(0, classes, rows), labels)
    return logits, labels


def _digits(seed: int) -> Half:
    """Logits of a small, overfitted network on rows outside its training set."""
    images, digits = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(digits))
    trained, remaining = order[:300], order[300:]
    network = MLPClassifier((32,), alpha=0, learning_rate_init=0.01, random_state=seed)
    network.fit(images[trained], digits[trained])
    hidden_layer = np.maximum(images[remaining] @ network.coefs_[0] + network.intercepts_[0], 0)
    return hidden_layer @ network.coefs_[1] + network.intercepts_[1], digits[remaining]


if __name__ == "__main__":
    main()
