"""Classifiers, their splits and their log-probabilities. Runs in the peers' environment.

A pair is a file `set__classifier__split.npz` with z_cal (N, K), y_cal (N,), z_test and y_test.
The z are log-probabilities as the protocol has them: of float32, and at least the logarithm of the
smallest normal float32. For two classes only P(y = 1) is rounded, as there.

| split | calibration rows |
|---|---|
| holdout | 35% of the rows, at most 6,000; the classifier has 30%, at most 2,000 |
| small | as holdout, but fewer: 150 rows and more, drawn evenly in the logarithm |
| bagged | out-of-fold predictions of five models on 70%, at most 2,000; the test has their mean |
| order | rows 40% to 70% of a set whose order means something |
"""

from __future__ import annotations

import sys
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.arena.sets import LEAST_ROWS, DataSet, load, names
from benchmarks.peers import install

#: The peers and what trains the classifiers.
PACKAGES = Path(__file__).with_name("peers.txt")
CLASSIFIERS = ("logistic", "forest", "lightgbm", "mlp", "naive_bayes")

#: Calibration rows; and training rows, which bound the time.
_LEAST, _MOST, _MOST_TRAIN = 150, 6_000, 2_000
_ORDER = ("holdout-0", "bagged-0", "order", "small-0", "holdout-1", "small-1", "bagged-1")
#: Of each class, in the calibration rows.
_LEAST_OF_CLASS = 5
_FOLDS = 5

Rows = NDArray[np.float64]
Indices = NDArray[np.intp]
#: The rows of training, calibration and test; training rows are calibration rows if bagged.
Split = tuple[Indices, Indices, Indices]


def chosen(pair: str, step: int) -> bool:
    """Return whether a pair belongs to the share 1/step of the arena."""
    return zlib.crc32(pair.encode()) % step == 0


def classifier(name: str, seed: int) -> Any:
    """Return an untrained classifier with the defaults of its library."""
    from lightgbm import LGBMClassifier
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    models = {
        "logistic": lambda: LogisticRegression(max_iter=1_000),
        "forest": lambda: RandomForestClassifier(random_state=seed),
        "lightgbm": lambda: LGBMClassifier(random_state=seed, verbose=-1, n_jobs=1),
        "mlp": lambda: MLPClassifier(random_state=seed),
        "naive_bayes": GaussianNB,
    }
    return make_pipeline(StandardScaler(), models[name]())


def splits(data: DataSet, seed: int) -> Iterator[tuple[str, Split]]:
    """Yield the splits of a set by name. Several classes have two seeds: there are fewer sets."""
    rows, several = len(data.y), data.y.max() > 1
    least = max(_LEAST, int(np.ceil(_LEAST_OF_CLASS * rows / np.bincount(data.y).min())))
    for draw in range(2 if several else 1):
        rng = np.random.default_rng([seed, draw])
        most = min(int(0.35 * rows), _MOST)
        if most >= least:
            yield f"holdout-{draw}", _stratified(data.y, rng, most)
        if most >= 2 * least:
            count = int(np.exp(rng.uniform(np.log(least), np.log(most))))
            yield f"small-{draw}", _stratified(data.y, rng, count)
        _, cal, test = _stratified(data.y, rng, min(int(0.7 * rows), _MOST_TRAIN), train=0.0)
        yield f"bagged-{draw}", (cal, cal, test)
    if data.ordered:
        order = np.arange(rows)
        yield "order", (order[: int(0.4 * rows)], *np.array_split(order[int(0.4 * rows) :], 2))


def _stratified(y: NDArray[np.int64], rng: Any, count: int, train: float = 0.3) -> Split:
    """Return random rows: every class has its share in each part."""
    # Rows in random order within a class, then interleaved by their rank within the class.
    order = rng.permutation(len(y))
    rank = np.empty(len(y))
    for k in np.unique(y):
        of_class = order[y[order] == k]
        rank[of_class] = (np.arange(len(of_class)) + rng.random()) / len(of_class)
    # The ranks of calibration, of training, and the rest.
    ends = [count, count + min(int(train * len(y)), _MOST_TRAIN)]
    cal, fit, test = np.split(np.argsort(rank, kind="stable"), ends)
    return fit, cal, test


def log_probabilities(p: Rows) -> Rows:
    """Return the log-probabilities (N, K) that the protocol hands to every method."""
    p = p.astype(np.float32).astype(np.float64)
    if p.shape[1] == 2:
        p[:, 0] = 1 - p[:, 1]
    with np.errstate(divide="ignore"):
        return np.maximum(np.log(p), np.log(np.finfo(np.float32).tiny))


def _predict(name: str, data: DataSet, split: Split, seed: int) -> tuple[Rows, Rows]:
    """Return the probabilities of the calibration rows and of the test rows."""
    from sklearn.model_selection import StratifiedKFold

    train, cal, test = split
    if train is not cal:
        model = classifier(name, seed).fit(data.x[train], data.y[train])
        return model.predict_proba(data.x[cal]), model.predict_proba(data.x[test])
    p_cal, p_test = np.zeros((len(cal), data.y.max() + 1)), 0.0
    folds = StratifiedKFold(_FOLDS, shuffle=True, random_state=seed)
    for inside, outside in folds.split(cal, data.y[cal]):
        model = classifier(name, seed).fit(data.x[cal[inside]], data.y[cal[inside]])
        p_cal[outside] = model.predict_proba(data.x[cal[outside]])
        p_test = p_test + model.predict_proba(data.x[test]) / _FOLDS
    return p_cal, np.asarray(p_test)


def save(path: Path, p_cal: Rows, y_cal: Any, p_test: Rows, y_test: Any) -> None:
    """Write a pair; a file that exists is whole."""
    z_cal, z_test = log_probabilities(p_cal), log_probabilities(p_test)
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        np.savez_compressed(file, z_cal=z_cal, y_cal=y_cal, z_test=z_test, y_test=y_test)
    part.rename(path)


def main() -> None:
    folder, step = Path(sys.argv[1]), int(sys.argv[2])
    install(PACKAGES)
    folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    # The same split of every set first: an arena that is interrupted has most of the sets.
    tasks = [
        (folder / f"{name.partition(':')[2]}__{model}__{split_name}.npz", name, model, split, seed)
        for seed, name in enumerate(names())
        if len(load(name).y) >= LEAST_ROWS
        for split_name, split in splits(load(name), seed)
        for model in CLASSIFIERS
    ]
    tasks = [task for task in tasks if chosen(task[0].stem, step) and not task[0].exists()]
    tasks.sort(key=lambda task: _ORDER.index(task[0].stem.rpartition("__")[2]))
    for count, (path, name, model, split, seed) in enumerate(tasks):
        print(f"classifier {count + 1} of {len(tasks)}: {path.stem}", flush=True)
        y = load(name).y
        p_cal, p_test = _predict(model, load(name), split, seed)
        save(path, p_cal, y[split[1]], p_test, y[split[2]])


if __name__ == "__main__":
    main()
