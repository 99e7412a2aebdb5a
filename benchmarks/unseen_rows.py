"""`python -m benchmarks.unseen_rows`: can a champion be replaced when its data set grows?

A champion is fitted on 2,000 rows of 100 classes, and serves. Then 200 rows are added, and
temperature scaling is fitted on all of them. The champion is overfitted, so the challenger is
better in truth, by the NLL on 20,000 other rows. Both fits are jobs of a worker, on a registry in a
temporary folder. The old rows come back as they were, shuffled, or in another format and dtype.

Output, for each: how often the challenger is better in truth and how often it is promoted, of
these, with the exact 95% interval; and how often it would be promoted if the champion were scored
on its own rows. The goal is a promotion in 11 of 12.
"""

from __future__ import annotations

import argparse
import io
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import safetensors.numpy
import scipy.stats
from numpy.typing import NDArray

from recalib.calibrator import Calibrator
from recalib.fitting.cross_validation import compare_by_cross_validation
from recalib.registry import Registry
from service.calibrators.handlers import request_fit
from service.calibrators.schemas import CalibratorCreate
from service.datasets.handlers import register_dataset
from service.datasets.survey import survey
from training.champion_comparison import candidate_of
from training.main import HANDLERS
from training.worker import Worker

__all__ = ["main"]

Logits = NDArray[np.float32]
Labels = NDArray[np.int64]
Bytes = tuple[bytes, str, str]

_CLASSES, _ROWS, _NEW_ROWS, _TEST_ROWS = 100, 2_000, 200, 20_000
_TEMPERATURE = 2.0
_CHAMPIONS = ("vector", "isotonic", "histogram_binning")


@dataclass(frozen=True)
class Draw:
    """The outcome of one draw."""

    better: bool
    promoted: bool
    #: Whether it would be promoted if the champion were scored on all rows as it is.
    promoted_before: bool
    gain: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draws", type=int, default=12)
    arguments = parser.parse_args()
    missed = 0
    print(f"{'champion':20s} {'old rows':24s} {'better':>8s} {'promoted':>10s} {'95%':>14s} before")
    for champion in _CHAMPIONS:
        for name, write in _FORMS.items():
            draws = [_draw(champion, write, seed) for seed in range(arguments.draws)]
            better = [draw for draw in draws if draw.better]
            promoted = sum(draw.promoted for draw in better)
            interval = scipy.stats.binomtest(promoted, max(len(better), 1)).proportion_ci()
            missed += promoted < 11 / 12 * len(better)
            gain = np.mean([draw.gain for draw in draws])
            print(
                f"{champion:20s} {name:24s} {len(better):2d} of {len(draws):2d} "
                f"{promoted:4d} of {len(better):2d}  {interval.low:5.1%} to {interval.high:5.1%}  "
                f"{sum(draw.promoted_before for draw in better)}  (NLL lower by {gain:.3f})",
                flush=True,
            )
    sys.exit(1 if missed else 0)


def _npz(logits: Logits, labels: Labels) -> Bytes:
    target = io.BytesIO()
    np.savez(target, logits=logits, labels=labels)
    return target.getvalue(), "npz", "application/x-npz"


def _shuffled(logits: Logits, labels: Labels) -> Bytes:
    order = np.random.default_rng(1).permutation(len(labels))
    return _npz(logits[order], labels[order])


def _parquet(logits: Logits, labels: Labels) -> Bytes:
    """Return the rows as float64 in Parquet, shuffled."""
    order = np.random.default_rng(2).permutation(len(labels))
    values = pa.array(logits[order].astype(np.float64).ravel())
    rows = pa.FixedSizeListArray.from_arrays(values, logits.shape[1])
    target = io.BytesIO()
    pq.write_table(pa.table({"logits": rows, "labels": labels[order]}), target)
    return target.getvalue(), "parquet", "application/vnd.apache.parquet"


def _safetensors(logits: Logits, labels: Labels) -> Bytes:
    data = safetensors.numpy.save({"logits": logits[::-1].copy(), "labels": labels[::-1].copy()})
    return data, "safetensors", "application/x-safetensors"


_FORMS: dict[str, Callable[[Logits, Labels], Bytes]] = {
    "as they were": _npz,
    "shuffled": _shuffled,
    "Parquet of float64": _parquet,
    "safetensors, reversed": _safetensors,
}


def _draw(champion: str, write: Callable[[Logits, Labels], Bytes], seed: int) -> Draw:
    logits, labels = _rows(_ROWS + _NEW_ROWS + _TEST_ROWS, seed)
    test = slice(_ROWS + _NEW_ROWS, None)
    grown = logits[: _ROWS + _NEW_ROWS], labels[: _ROWS + _NEW_ROWS]
    with tempfile.TemporaryDirectory() as folder:
        registry = Registry(f"sqlite:///{folder}/recalib.db", Path(folder, "blobs").as_uri())
        registry.migrate()
        with registry.transaction() as tx:
            tx.models.create("m", None, _CLASSES, "benchmark")
        _fit(registry, "old", _npz(logits[:_ROWS], labels[:_ROWS]), champion, promote=True)
        _fit(registry, "grown", write(*grown), "temperature", promote="if_better")
        with registry.reading() as tx:
            model = tx.models.get("m")
            serving = tx.aliases.get(model, "champion").version
            old, new = (Calibrator.from_bytes(tx.calibrators.parameters(model, v)) for v in (1, 2))
        registry.close()
    before = compare_by_cross_validation(candidate_of(new), old, *grown)
    gain = _nll(old, logits[test], labels[test]) - _nll(new, logits[test], labels[test])
    return Draw(gain > 0, serving == 2, before.better, gain)


def _rows(count: int, seed: int) -> tuple[Logits, Labels]:
    """Return logits, and labels drawn from softmax(logits / temperature)."""
    rng = np.random.default_rng(seed)
    logits = (rng.normal(size=(count, _CLASSES)) * 3).astype(np.float32)
    # The argmax of z/T plus Gumbel noise is a draw from softmax(z/T).
    labels = (logits / _TEMPERATURE + rng.gumbel(size=logits.shape)).argmax(axis=1)
    return logits, labels


def _fit(registry: Registry, name: str, data: Bytes, map: str, *, promote: bool | str) -> None:
    """Upload a data set, and run a fit on it."""
    content, format, media_type = data
    summary = survey(io.BytesIO(content), format, "logits", _CLASSES)
    with registry.blobs.writer() as blob:
        blob.write(content)
        with registry.storing(blob) as (tx, digest):
            model = tx.models.get("m")
            register_dataset(tx, model, name, digest, len(content), media_type, "logits", summary)
            request = CalibratorCreate.model_validate(
                {"dataset": name, "map": map, "promote": promote}
            )
            job = request_fit(tx, model, request)
    while Worker(registry, HANDLERS, name="benchmark").work_once(threading.Event()):
        pass
    with registry.reading() as tx:
        if tx.jobs.get(job.id).state != "succeeded":
            raise RuntimeError(tx.jobs.get(job.id).error)


def _nll(calibrator: Calibrator, logits: Logits, labels: Labels) -> float:
    probabilities = calibrator.predict_float64(logits)[np.arange(len(labels)), labels]
    return float(-np.log(np.maximum(probabilities, 1e-300)).mean())


if __name__ == "__main__":
    main()
