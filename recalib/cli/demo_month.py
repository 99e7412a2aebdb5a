"""Three models with a month of predictions and late labels, drawn from known distributions.

`species` stays calibrated. The logits of `defects` grow after two thirds of the month, as after a
change of its input, so that its calibrator becomes stale; a second version, fitted to rows from
after the change, waits for its promotion. `fraud` has two classes, of which one is rare.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import parquet
from scipy.special import softmax

from recalib.client import Client

_DAYS, _ROWS = 30, 20_000
#: Rows of a data set for a fit.
_FITTED_ROWS = 4_000
#: Factor of the logits of the networks: they are too sure.
_SHARPNESS = 1.8


class _Network(NamedTuple):
    """A network, by the distribution of its predictions."""

    name: str
    #: Frequencies of the classes, (K,).
    prior: tuple[float, ...]
    description: str
    #: Factor of the logits in the last third of the month.
    drift: float = 1.0


_NETWORKS = (
    _Network("species", (0.125,) * 8, "Simulated: stays calibrated"),
    _Network("defects", (0.25,) * 4, "Simulated: its input changes after 20 days", 1.9),
    _Network("fraud", (0.97, 0.03), "Simulated: two classes, one of them rare"),
)


def load_month(url: str, folder: Path, at: Callable[[str], None]) -> None:
    """Add the models to a server, each with a champion and a month of monitoring.

    Parameters
    ----------
    folder: for the logs of predictions.
    at: gets what is done, in words.
    """
    random = np.random.default_rng(0)
    with Client(url) as client:
        for network in _NETWORKS:
            at(f"{network.name}: fitting")
            _fit(client, network, "validation", random)
            at(f"{network.name}: replaying a month")
            log = folder / f"{network.name}.parquet"
            _write_log(log, network, random)
            job = client.replay(network.name, log, to_now=True, progress=False)
            client.wait(job, progress=False)
            if network.drift != 1:
                at(f"{network.name}: fitting a second version")
                _fit(client, network, "after-the-change", random, network.drift)


def _fit(
    client: Client,
    network: _Network,
    dataset: str,
    random: np.random.Generator,
    factor: float = 1.0,
) -> None:
    """Fit a version to new rows; the first one becomes the champion."""
    is_first = factor == 1.0
    if is_first:
        client.create_model(network.name, len(network.prior))
        client.update_model(network.name, description=network.description)
    logits, labels = _draw(network, _FITTED_ROWS, random)
    client.upload_dataset(network.name, dataset, logits * factor, labels, progress=False)
    job = client.fit(network.name, dataset, map="temperature", promote=is_first)
    client.wait(job, progress=False)


def _draw(
    network: _Network, rows: int, random: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return logits (N, K) that are right with temperature `_SHARPNESS`, and labels (N,)."""
    scores = 2.2 * random.normal(size=(rows, len(network.prior))) + np.log(network.prior)
    true = softmax(scores, axis=1)
    labels = (true.cumsum(axis=1) > random.random((rows, 1))).argmax(axis=1)
    return _SHARPNESS * scores, labels


def _write_log(path: Path, network: _Network, random: np.random.Generator) -> None:
    """Write predictions of the calibrator, most of them with labels that came hours later."""
    scores, labels = _draw(network, _ROWS, random)
    scores /= _SHARPNESS
    scores[_ROWS * 2 // 3 :] *= network.drift
    probabilities = softmax(scores, axis=1)
    times = time.time() - _DAYS * 86_400 * (1 - np.arange(_ROWS) / _ROWS)
    label_times = times + random.exponential(4 * 3600.0, _ROWS)
    unknown = random.random(_ROWS) >= 0.8
    columns = {
        "time": times,
        "label": pa.array(labels, mask=unknown),
        "label_time": pa.array(label_times, mask=unknown),
    }
    columns |= {f"probability_{k}": shares for k, shares in enumerate(probabilities.T)}
    parquet.write_table(pa.table(columns), path)
