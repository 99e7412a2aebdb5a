"""Data sets that are wrong, and right ones under drift: which are refused, and which promoted.

Ten networks have a history: a data set, on which temperature scaling was fitted. Then come six
kinds of wrong data sets, which are not to be promoted, and drifted ones, which are not to be
refused. `python -m tests.wrong_data_sets` prints both, and exits with status 1 if one is missed.
The limits of a refusal were chosen on the digits; three simulated populations are held out.

A wrong data set is promoted if nothing refuses it and its fit beats the champion on its rows. What
is refused without a history, as the first data set of a model, is counted apart. The rows of each
other network are another model's: a few have similar constants by chance, so 5% may be promoted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import product
from typing import Any

import numpy as np
import scipy.ndimage
import scipy.special
from numpy.typing import NDArray
from sklearn.datasets import load_digits, make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from recalib.calibrator import Calibrator
from recalib.fitting.cross_validation import compare_by_cross_validation
from recalib.fitting.fit import fit
from recalib.fitting.request import candidate_of
from recalib.stats.logit_scale import LogitScale, compare_scales, scale_of

Rows = NDArray[np.float64]
Network = Callable[[Rows], Rows]
#: Rows of the digits that train, and that are the history; the rest is for later data sets.
_TRAINED, _HISTORY = 600, 600
#: Hidden layers, weight decay and iterations.
_LAYERS = (
    ((16,), 1e-4, 60), ((32,), 1e-4, 200), ((64,), 1e-4, 400), ((128,), 1e-2, 200),
    ((256,), 1.0, 100), ((64, 64), 1e-4, 200), ((32, 32, 32), 1e-4, 100),
)  # fmt: skip

_WRONG = ("softmax", "percent", "scaled", "permuted columns", "permuted labels", "another model")
_random = np.random.default_rng(0)

_DIGITS: dict[str, Callable[[Rows], Rows]] = {
    "none": lambda x: x,
    "noise 0.1": lambda x: x + _random.normal(0, 0.1, x.shape),
    "noise 0.2": lambda x: x + _random.normal(0, 0.2, x.shape),
    "noise 0.4": lambda x: x + _random.normal(0, 0.4, x.shape),
    "blur 0.7": lambda x: _images(x, lambda i: scipy.ndimage.gaussian_filter(i, (0, 0.7, 0.7))),
    "blur 1": lambda x: _images(x, lambda i: scipy.ndimage.gaussian_filter(i, (0, 1, 1))),
    "contrast 0.5": lambda x: x * 0.5,
    "contrast 0.75": lambda x: x * 0.75,
    "brighter": lambda x: np.clip(1.5 * x, 0, 1),
    "shifted": lambda x: _images(x, lambda i: scipy.ndimage.shift(i, (0, 1, 0), order=0)),
    "turned 20": lambda x: _images(x, lambda i: _turn(i, 20)),
    "turned 30": lambda x: _images(x, lambda i: _turn(i, 30)),
    "pixels lost": lambda x: x * (_random.random(x.shape) > 0.3),
}
#: Of features around 0, with a standard deviation of 1.
_CLUSTERS: dict[str, Callable[[Rows], Rows]] = {
    "none": lambda x: x,
    "noise 0.3": lambda x: x + _random.normal(0, 0.3, x.shape),
    "noise 1": lambda x: x + _random.normal(0, 1, x.shape),
    "scale 0.5": lambda x: x * 0.5,
    "scale 0.8": lambda x: x * 0.8,
    "scale 1.25": lambda x: x * 1.25,
    "moved": lambda x: x + 0.5 * np.sign(np.arange(x.shape[1]) % 2 - 0.5),
    "values lost": lambda x: x * (_random.random(x.shape) > 0.3),
    "feature lost": lambda x: x * (np.arange(x.shape[1]) > 0),
}


def _turn(images: Rows, degrees: float) -> Rows:
    return scipy.ndimage.rotate(images, degrees, axes=(1, 2), reshape=False, order=1)


def _images(x: Rows, change: Callable[[Rows], Rows]) -> Rows:
    return change(x.reshape(-1, 8, 8)).reshape(len(x), -1)


def _forward(model: MLPClassifier, x: Rows) -> Rows:
    layers = list(zip(model.coefs_, model.intercepts_, strict=True))
    for weights, bias in layers[:-1]:
        x = np.maximum(x @ weights + bias, 0)
    weights, bias = layers[-1]
    return np.asarray(x @ weights + bias)


def _networks(x: Rows, y: NDArray[Any]) -> list[Network]:
    """Return ten networks as functions from pixels to logits."""
    networks: list[Network] = []
    for hidden, decay, iterations in _LAYERS:
        model = MLPClassifier(hidden, alpha=decay, max_iter=iterations, random_state=1).fit(x, y)
        networks.append(lambda rows, model=model: _forward(model, rows))  # type: ignore[misc]
    for strength in (0.01, 1.0, 100.0):
        linear = LogisticRegression(C=strength, max_iter=500).fit(x, y)
        networks.append(linear.decision_function)
    return networks


def _wrong(kind: str, z: Rows, y: NDArray[Any]) -> tuple[Rows, NDArray[Any]]:
    """Return a wrong data set in place of the right one."""
    if kind == "softmax":
        return scipy.special.softmax(z, axis=1), y
    if kind == "percent":
        return 100 * scipy.special.softmax(z, axis=1), y
    if kind == "scaled":
        return z * _random.choice([0.01, 0.1, 1 / 3, 2, 10, 100]), y
    if kind == "permuted columns":
        return z[:, _random.permutation(z.shape[1])], y
    return z, _random.permutation(y)


def _is_promoted(champion: Calibrator, z: Rows, y: NDArray[Any]) -> bool:
    """Return whether temperature scaling of rows beats the champion on them."""
    candidate = candidate_of(champion.card)
    return compare_by_cross_validation(candidate, champion, z, y).better


def _refusals(z: Rows, y: NDArray[Any], history: list[LogitScale]) -> list[str]:
    findings = compare_scales(scale_of(z, y), history)
    return [finding.code for finding in findings if finding.refuses]


def _measure(
    x: Rows, y: NDArray[Any], drifts: Mapping[str, Callable[[Rows], Rows]]
) -> tuple[Counter[tuple[str, str]], list[str]]:
    """Return counts by kind of data set, and the right data sets that were refused."""
    end = _TRAINED + _HISTORY
    networks = _networks(x[:_TRAINED], y[:_TRAINED])
    old, new, labels = x[_TRAINED:end], x[end:], y[end:]
    counts: Counter[tuple[str, str]] = Counter()
    refused_right: list[str] = []
    for number, network in enumerate(networks):
        z, y_old = network(old), y[_TRAINED:end]
        champion, history = fit(z, y_old, "temperature", "nll"), [scale_of(z, y_old)]
        wrong = [(kind, *_wrong(kind, network(new), labels)) for kind in _WRONG[:-1]]
        others = [(_WRONG[-1], item(new), labels) for item in networks if item is not network]
        for kind, z, y_new in [*wrong, *others]:
            counts[kind, "of"] += 1
            findings = compare_scales(scale_of(z, y_new), history)
            refused = any(finding.refuses for finding in findings)
            promoted = not refused and _is_promoted(champion, z, y_new)
            counts[kind, "refused"] += refused
            counts[kind, "promoted"] += promoted
            counts[kind, "without a warning"] += promoted and not findings
            counts[kind, "refused as the first"] += bool(_refusals(z, y_new, []))
        for (name, drift), part in product(drifts.items(), range(2)):
            rows = network(drift(new[part::2]))
            counts["right", "of"] += 1
            if _refusals(rows, labels[part::2], history):
                refused_right.append(f"{name} of network {number}")
    return counts, refused_right


def _clusters(seeds: Iterable[int]) -> list[tuple[Rows, NDArray[Any]]]:
    return [
        make_classification(
            1800, 20, n_informative=10, n_classes=6, class_sep=2.0, random_state=seed
        )
        for seed in seeds
    ]


def main() -> int:
    """Print the counts; return 1 if a wrong data set is promoted, or a right one refused."""
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(1).permutation(len(y))
    failures = _report("digits", *_measure(x[order] / 16, y[order], _DIGITS))
    total: Counter[tuple[str, str]] = Counter()
    refused_right: list[str] = []
    for x, y in _clusters(range(3)):
        counts, refused = _measure(x / x.std(axis=0), y, _CLUSTERS)
        total.update(counts)
        refused_right += refused
    return int(bool(failures + _report("held out", total, refused_right)))


def _report(name: str, counts: Counter[tuple[str, str]], refused_right: list[str]) -> int:
    """Print a table; return the number of failures."""
    columns = ("of", "refused", "promoted", "without a warning", "refused as the first")
    print(f"| {name} | " + " | ".join(columns) + " |\n|---|" + "--:|" * len(columns))
    for kind in _WRONG:
        print(f"| {kind} | " + " | ".join(str(counts[kind, column]) for column in columns) + " |")
    right = counts["right", "of"]
    print(f"\nright data sets refused: {len(refused_right)} of {right}", *refused_right, sep="\n")
    by_chance = counts[_WRONG[-1], "promoted"] > 0.05 * counts[_WRONG[-1], "of"]
    wrong = sum(counts[kind, "promoted"] for kind in _WRONG[:-1])
    return wrong + by_chance + len(refused_right)


if __name__ == "__main__":
    raise SystemExit(main())
