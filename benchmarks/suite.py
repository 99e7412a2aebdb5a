"""Data sets for evaluating a policy: calibration rows, and test rows.

An experiment is one source of rows, drawn several times. Sources:

- `synthetic`: logits from a known truth, N from 20 to 5,000 and K from 2 to 1,000: calibrated, with
  one wrong temperature, with a wrong scale and offset for each class, or with wrong labels;
- `digits`, `wine`, `cancer`: scikit-learn's data, classifiers with different errors;
- `sst2`, `sst5`: sentences, by naive Bayes and by logistic regression on their words;
- `cifar10`: images, by a small, overfitted network;
- `resnet110`: the published network of paper 003, with all rows and with few; long-tailed by
  eq. 16 of that paper, tested on long-tailed and on balanced rows; with other class shares.

The last four need the files at `RECALIB_DATA`.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow.parquet
import sklearn.datasets
from numpy.random import Generator
from numpy.typing import NDArray
from PIL import Image
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.neural_network import MLPClassifier

from benchmarks.data import data_folder

#: Smallest probability when probabilities are converted to logits.
_TINY = 1e-12
#: Training rows of scikit-learn, and calibration and test rows.
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Rows:
    """Logits (N, K) and labels (N,)."""

    logits: Matrix
    labels: NDArray[np.int64]

    def subset(self, index: NDArray[Any]) -> Rows:
        return Rows(self.logits[index], self.labels[index])


#: Calibration rows and test rows.
Draw = tuple[Rows, Rows]


@dataclass(frozen=True)
class Experiment:
    """A source of rows, with its number of draws."""

    name: str
    draws: int
    draw: Callable[[Generator], Draw]
    #: Whether test rows and calibration rows have the same distribution.
    alike: bool = True


def experiments(effort: float = 1.0) -> Iterator[Experiment]:
    """Yield all experiments; `effort` scales the number of draws."""

    def times(draws: int) -> int:
        return max(1, round(draws * effort))

    for kind in ("calibrated", "hot", "cold", "by class", "wrong labels"):
        for classes in (2, 10, 100, 1000):
            for rows in (20, 100, 1000, 5000) if classes < 1000 else (20, 2000):
                draws = 100 if rows < 100 else 10 if rows < 1000 else 1 if classes == 1000 else 3
                yield Experiment(
                    f"synthetic, {kind}, N={rows}, K={classes}",
                    times(draws),
                    lambda rng, kind=kind, rows=rows, k=classes: _synthetic(rng, kind, rows, k),
                )
    for data in ("digits", "wine", "cancer"):
        for model in ("naive Bayes", "logistic", "forest", "network"):
            draw = _drawer_of(data, model)
            # With few rows, a draw with an undetermined temperature dominates the mean.
            draws = times(200 if data == "wine" else 20)
            yield Experiment(f"{data}, {model}", draws, draw)
    if not data_folder().is_dir():
        print(f"no real data at {data_folder()} (set RECALIB_DATA): left out")
        return
    for classes in (2, 5):
        for model in ("naive Bayes", "logistic"):
            yield Experiment(
                f"sst{classes}, {model}", 1, lambda rng, k=classes, model=model: _sst(k, model)
            )
    yield Experiment("cifar10, small network", times(3), lambda rng: _halves(_cifar10(), rng))
    yield Experiment("resnet110", 1, lambda rng: _resnet110())
    for rows in (20, 50, 100, 300, 1000):
        draws = times(100 if rows < 100 else 10)
        yield Experiment(f"resnet110, N={rows}", draws, lambda rng, n=rows: _fewer(rng, n))
    for ratio in (0.1, 0.01):
        for alike in (True, False):
            test = "alike" if alike else "balanced"
            yield Experiment(
                f"resnet110, long-tailed {ratio}, tested on {test}",
                times(5),
                lambda rng, ratio=ratio, alike=alike: _long_tailed(rng, ratio, alike),
                alike,
            )
    for alike in (True, False):
        test = "alike" if alike else "unshifted"
        yield Experiment(
            f"resnet110, label-shifted, tested on {test}",
            times(5),
            lambda rng, alike=alike: _shifted(rng, alike),
            alike,
        )


def _synthetic(rng: Generator, kind: str, rows: int, classes: int) -> Draw:
    """Return logits with labels drawn from a truth that the logits distort."""
    total = rows + 5000
    truth = rng.normal(size=(total, classes)) * 3 + rng.normal(size=classes)
    if kind == "wrong labels":
        truth *= 2
    labels = (truth + rng.gumbel(size=truth.shape)).argmax(axis=1)
    logits = truth
    if kind == "hot":
        logits = truth * 2.5
    elif kind == "cold":
        logits = truth * 0.5
    elif kind == "by class":
        logits = truth * rng.uniform(1, 2, classes) + rng.normal(size=classes)
    elif kind == "wrong labels":
        wrong = rng.random(total) < 0.1
        labels = np.where(wrong, rng.integers(0, classes, total), labels)
    order = np.arange(total)
    rows_of_all = Rows(logits, labels)
    return rows_of_all.subset(order[:rows]), rows_of_all.subset(order[rows:])


def _drawer_of(data: str, model: str) -> Callable[[Generator], Draw]:
    load = {
        "digits": sklearn.datasets.load_digits,
        "wine": sklearn.datasets.load_wine,
        "cancer": sklearn.datasets.load_breast_cancer,
    }[data]

    def draw(rng: Generator) -> Draw:
        x, y = load(return_X_y=True)
        x = (x - x.mean(axis=0)) / (x.std(axis=0) + 1e-9)
        seed = int(rng.integers(2**31))
        order = rng.permutation(len(y))
        train, remaining = np.split(order, [len(y) * 3 // 10])
        classifier = {
            "naive Bayes": GaussianNB(var_smoothing=1e-3),
            "logistic": LogisticRegression(C=10, max_iter=1000),
            "forest": RandomForestClassifier(50, random_state=seed),
            "network": MLPClassifier((50,), max_iter=200, tol=0, n_iter_no_change=200,
                                     random_state=seed),
        }[model]  # fmt: skip
        return _halves(
            _outputs(_quietly(classifier, x[train], y[train]), x[remaining], y[remaining]), rng
        )

    return draw


def _quietly(classifier: Any, x: Any, y: NDArray[np.int64]) -> Any:
    import warnings

    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return classifier.fit(x, y)


def _outputs(classifier: Any, x: Any, labels: NDArray[np.int64]) -> Rows:
    return Rows(np.log(np.maximum(classifier.predict_proba(x), _TINY)), labels)


def _halves(rows: Rows, rng: Generator) -> Draw:
    first, second = np.array_split(rng.permutation(len(rows.labels)), 2)
    return rows.subset(first), rows.subset(second)


@cache
def _resnet110() -> Draw:
    parts = []
    for name in ("val", "test"):
        with np.load(data_folder() / f"resnet110-cifar10-{name}.npz") as file:
            parts.append(Rows(file["logits"].astype(np.float64), file["labels"]))
    return parts[0], parts[1]


def _fewer(rng: Generator, rows: int) -> Draw:
    validation, test = _resnet110()
    return validation.subset(rng.permutation(len(validation.labels))[:rows]), test


def _long_tailed(rng: Generator, ratio: float, alike: bool) -> Draw:
    """Keep n₀ ρ^(i / (K − 1)) rows of class i, paper 003 eq. 16."""
    validation, test = _resnet110()
    shares = ratio ** (np.arange(10) / 9)
    return _thinned(rng, validation, shares), _thinned(rng, test, shares) if alike else test


def _shifted(rng: Generator, alike: bool) -> Draw:
    validation, test = _resnet110()
    shares = rng.dirichlet(np.ones(10))
    shares /= shares.max()
    return _thinned(rng, validation, shares), _thinned(rng, test, shares) if alike else test


def _thinned(rng: Generator, rows: Rows, shares: NDArray[np.float64]) -> Rows:
    return rows.subset(rng.random(len(rows.labels)) < shares[rows.labels])


@cache
def _sst(classes: int, model: str) -> Draw:
    table = pyarrow.parquet.read_table(data_folder() / "sst-trees.parquet").to_pydict()
    texts = [" ".join(re.findall(r"([^() ]+)\)", tree)) for tree in table["tree"]]
    splits, labels = np.array(table["split"]), np.array(table["label"])
    if classes == 2:
        decided = labels != 2
        texts = [text for text, keep in zip(texts, decided, strict=True) if keep]
        splits, labels = splits[decided], (labels[decided] > 2).astype(np.int64)
    words = CountVectorizer(ngram_range=(1, 2), min_df=2).fit_transform(texts).tocsr()
    train = splits == "train"
    classifier = {
        "naive Bayes": MultinomialNB(),
        "logistic": LogisticRegression(C=10, max_iter=300),
    }[model]
    _quietly(classifier, words[train], labels[train])
    dev, test = splits == "dev", splits == "test"
    return (
        _outputs(classifier, words[dev], labels[dev]),
        _outputs(classifier, words[test], labels[test]),
    )


@cache
def _cifar10() -> Rows:
    """Return the outputs for the test images of a network that is overfitted to 20,000 images."""
    x, y = _images("train", 20_000)
    classifier = MLPClassifier((200,), max_iter=15, random_state=0, early_stopping=False)
    _quietly(classifier, x, y)
    return _outputs(classifier, *_images("test", 10_000))


def _images(split: str, rows: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    table = pyarrow.parquet.read_table(data_folder() / f"cifar10-{split}.parquet").slice(0, rows)
    images = np.stack(
        [
            np.asarray(Image.open(io.BytesIO(data)).resize((16, 16))).reshape(-1)
            for data in table["image"].to_pylist()
        ]
    )
    return images.astype(np.float32) / 255 - 0.5, np.array(table["label"].to_pylist())
