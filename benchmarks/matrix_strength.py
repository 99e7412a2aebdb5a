"""`python -m benchmarks.matrix_strength`: strengths by data, against other libraries.

Held-out negative log-likelihood, in 10⁻⁴ nats above that of the peer's map, and the difference in
standard errors over the held-out rows of all draws. The maps choose their strengths; the peers are
probmetrics' SMS and SVS, and torch-uncertainty's Dirichlet scaling with the published penalty. Rows
are those of paper 003's ResNet-110, if available (validation rows alone), and synthetic rows
(`benchmarks.soft_bins`) whose miscalibration no temperature corrects.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks.data import data_folder
from benchmarks.paper_tables import load
from benchmarks.peers import peers_of
from benchmarks.soft_bins import synthetic
from recalib.fitting.fit import fit

__all__ = ["main"]

_Rows = tuple[NDArray[np.float64], NDArray[np.int64]]
_Draw = tuple[_Rows, _Rows]
_Losses = NDArray[np.float64]

#: The peer of each map.
_PEERS = {
    "structured_matrix": "SMSCalibrator",
    "structured_vector": "SVSCalibrator",
    "dirichlet": "DirichletScaler",
    "matrix": "SMSCalibrator",
}


def main() -> None:
    """Print the differences by map and source."""
    peers_of("structured_matrix")  # which installs the libraries
    peers_of("dirichlet")
    table = Table("source", "map", "strengths", "NLL", "peer", "1e-4 nats", "z", box=None)
    for source, draws in _sources():
        for name, peer in _PEERS.items():
            settled = [fit(*fitted, name).card.fit.settled for fitted, _ in draws]
            ours = _losses(draws, lambda rows, z, name=name: np.log(fit(*rows, name).predict(z)))
            theirs = _losses(draws, lambda rows, z, peer=peer: _PREDICT[peer](rows, z))
            gap = ours - theirs
            z = gap.mean() / (gap.std() / np.sqrt(len(gap)))
            first = ", ".join(f"{next(iter(values.values())):.3g}" for values in settled)
            numbers = f"{ours.mean():.4f}", peer, f"{gap.mean() * 1e4:+.1f}", f"{z:+.1f}"
            table.add_row(source, name, first, *numbers)
    Console(width=150).print(table)


def _losses(
    draws: list[_Draw], predict: Callable[[_Rows, NDArray[np.float64]], NDArray[Any]]
) -> _Losses:
    """Return the NLL of each held-out row of all draws, in nats."""
    return np.concatenate(
        [-predict(fitted, z)[np.arange(len(y)), y] for fitted, (z, y) in draws]
    ).astype(np.float64)


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
            draws = []
            for seed in range(3):
                order = np.random.default_rng(seed).permutation(len(y))
                fitted, held_out = order[:count], order[2_500:]
                draws.append(((z[fitted], y[fitted]), (z[held_out], y[held_out])))
            yield f"resnet110, N {count}", draws
    for classes, count in ((10, 1_000), (100, 3_000)):
        logits, labels = synthetic(count + 4_000, classes, "sharp", 0)
        head, tail = slice(count), slice(count, None)
        yield (
            f"synthetic, K {classes}, N {count}",
            [((logits[head], labels[head]), (logits[tail], labels[tail]))],
        )


if __name__ == "__main__":
    main()
