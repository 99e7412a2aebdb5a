"""`python -m benchmarks.matrix_strength`: strengths by data, against other libraries.

The held-out negative log-likelihood of each map minus that of its peer, in 10⁻⁴ nats, with its
standard error over held-out rows and their ratio z. A row that several draws hold out counts once,
with its mean difference. The maps choose their strengths; the peers are probmetrics' SMS and SVS,
and torch-uncertainty's Dirichlet scaling with the published penalty.

Rows are those of two networks, if their data is available: paper 003's ResNet-110 (10 classes,
validation rows alone), and a network that is trained here to say which of the 100 most frequent
words of the Stanford Sentiment Treebank follows three words (25% right).
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from sklearn.neural_network import MLPClassifier

from benchmarks.data import data_folder
from benchmarks.paper_tables import load
from benchmarks.peers import peers_of
from recalib.fitting.fit import fit
from training.data.tables import read_table

_Rows = tuple[NDArray[np.float64], NDArray[np.int64]]
_Losses = NDArray[np.float64]


class _Draw(NamedTuple):
    """Rows for a fit, and the numbers of others of the same source, which are held out."""

    fitted: _Rows
    held_out: _Rows
    numbers: NDArray[np.intp]


#: The peer of each map.
_PEERS = {
    "structured_matrix": "SMSCalibrator",
    "structured_vector": "SVSCalibrator",
    "dirichlet": "DirichletScaler",
    "matrix": "SMSCalibrator",
}
_WORDS, _KNOWN_WORDS, _CONTEXT, _TRAINED = 100, 2_000, 3, 20_000


def main() -> None:
    """Print the differences by map and source."""
    peers_of("structured_matrix")  # which installs the libraries
    peers_of("dirichlet")
    columns = ("source", "map", "strengths", "NLL", "peer", "1e-4 nats", "error", "z")
    table = Table(*columns, box=None)
    for source, draws in _sources():
        theirs = {
            peer: [_loss(_PREDICT[peer](draw.fitted, draw.held_out[0]), draw) for draw in draws]
            for peer in sorted(set(_PEERS.values()))
        }
        for name, peer in _PEERS.items():
            fits = [fit(*draw.fitted, name) for draw in draws]
            ours = [
                _loss(np.log(calibrator.predict(draw.held_out[0])), draw)
                for calibrator, draw in zip(fits, draws, strict=True)
            ]
            mean, error = _paired(draws, np.concatenate(ours) - np.concatenate(theirs[peer]))
            settled = [next(iter(calibrator.card.fit.settled.values())) for calibrator in fits]
            table.add_row(
                source, name, ", ".join(f"{value:.3g}" for value in settled),
                f"{np.concatenate(ours).mean():.4f}", peer, f"{mean * 1e4:+.1f}",
                f"{error * 1e4:.1f}", f"{mean / error:+.1f}",
            )  # fmt: skip
    Console(width=150).print(table)


def _loss(log_p: NDArray[Any], draw: _Draw) -> _Losses:
    """Return the NLL of each held-out row, in nats."""
    labels = draw.held_out[1]
    return np.asarray(-log_p[np.arange(len(labels)), labels], np.float64)


def _paired(draws: list[_Draw], gaps: _Losses) -> tuple[float, float]:
    """Return the mean difference of a row and its standard error, over distinct rows."""
    _, row = np.unique(np.concatenate([draw.numbers for draw in draws]), return_inverse=True)
    means = np.bincount(row, gaps) / np.bincount(row)
    return float(means.mean()), float(means.std(ddof=1) / np.sqrt(len(means)))


def _by_probmetrics(name: str) -> Callable[[_Rows, NDArray[np.float64]], NDArray[Any]]:
    def predict(rows: _Rows, z: NDArray[np.float64]) -> NDArray[Any]:
        import torch

        logits = import_module("probmetrics.distributions").CategoricalLogits
        calibrator = getattr(import_module("probmetrics.calibrators.logistic"), name)()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            calibrator.fit_torch(logits(torch.as_tensor(rows[0])), torch.as_tensor(rows[1]))
        distribution = calibrator.predict_proba_torch(logits(torch.as_tensor(z)))
        probabilities: NDArray[Any] = distribution.get_probs().double().numpy()
        return np.log(np.maximum(probabilities, 1e-38))

    return predict


def _by_torch_uncertainty(rows: _Rows, z: NDArray[np.float64]) -> NDArray[Any]:
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    scalers = import_module("torch_uncertainty.post_processing.calibration")
    scaler = scalers.DirichletScaler(z.shape[1], lambda_reg=100.0, mu_reg=0.1)
    data = TensorDataset(torch.as_tensor(rows[0]).float(), torch.as_tensor(rows[1]))
    scaler.fit(DataLoader(data, batch_size=None, sampler=[slice(None)]), progress=False)
    with torch.no_grad():
        log_p: NDArray[Any] = torch.log_softmax(scaler(torch.as_tensor(z).float()), 1).numpy()
    return log_p


_PREDICT: dict[str, Callable[[_Rows, NDArray[np.float64]], NDArray[Any]]] = {
    "SMSCalibrator": _by_probmetrics("SMSCalibrator"),
    "SVSCalibrator": _by_probmetrics("SVSCalibrator"),
    "DirichletScaler": _by_torch_uncertainty,
}


def _sources() -> Iterator[tuple[str, list[_Draw]]]:
    folder = data_folder()
    if (folder / "resnet110-cifar10-val.npz").is_file():
        rows = load(folder)[0]
        z, y = rows.logits.astype(np.float64), rows.labels
        for count in (1_000, 2_500):
            yield f"resnet110, K 10, N {count:,}", _draws(z, y, count, 2_500, 3)
    if (folder / "sst-trees.parquet").is_file():
        z, y = _next_words(folder / "sst-trees.parquet")
        yield f"words, K {_WORDS}, N 3,000", _draws(z, y, 3_000, 20_000, 3)
        yield f"words, K {_WORDS}, N 10,000", _draws(z, y, 10_000, 20_000, 1)


def _draws(z: NDArray[Any], y: NDArray[Any], count: int, held_out: int, seeds: int) -> list[_Draw]:
    """Return draws of `count` rows to fit, and of as many to hold out."""
    draws = []
    for seed in range(seeds):
        order = np.random.default_rng(seed).permutation(len(y))
        first, second = order[:count], order[-held_out:]
        draws.append(_Draw((z[first], y[first]), (z[second], y[second]), second))
    return draws


def _next_words(path: Path) -> _Rows:
    """Return logits and labels of a network that predicts words, for rows of other sentences."""
    trees = read_table(path, ["tree"], "tree")["tree"].to_pylist()
    sentences = [re.findall(r" ([^() ]+)\)", tree.lower()) for tree in trees]
    np.random.default_rng(0).shuffle(sentences)
    counts = Counter(word for sentence in sentences for word in sentence)
    numbers = {word: i for i, (word, _) in enumerate(counts.most_common(_KNOWN_WORDS))}
    windows: list[list[int]] = []
    for sentence in sentences:
        known = [numbers.get(word, _KNOWN_WORDS) for word in sentence]
        padded = [_KNOWN_WORDS] * _CONTEXT + known
        windows += [padded[i : i + _CONTEXT + 1] for i, word in enumerate(known) if word < _WORDS]
    *contexts, y = np.array(windows).T
    ones = np.ones(len(y))
    x = scipy.sparse.hstack(
        [
            scipy.sparse.csr_matrix(
                (ones, (np.arange(len(y)), context)), (len(y), _KNOWN_WORDS + 1)
            )
            for context in contexts
        ],
        "csr",
    )
    network = MLPClassifier((64,), alpha=0, learning_rate_init=3e-3, max_iter=12, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # training ends before it converges
        network.fit(x[:_TRAINED], y[:_TRAINED])
    hidden = np.maximum(x[_TRAINED:] @ network.coefs_[0] + network.intercepts_[0], 0)
    return hidden @ network.coefs_[1] + network.intercepts_[1], y[_TRAINED:]


if __name__ == "__main__":
    main()
