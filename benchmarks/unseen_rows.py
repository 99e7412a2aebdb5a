"""`python -m benchmarks.unseen_rows`: can a champion be replaced when its data set grows?

A champion is fitted on 2,000 rows of 100 classes, and serves. Then 200 rows are added, and
temperature scaling is fitted on all of them. The champion is overfitted, so the challenger is
better in truth, by the NLL on 5,000 other rows. Both fits are jobs of a worker, on a registry in a
temporary folder. The old rows come back as they were, shuffled, or in another format and dtype.

Output, for each champion: the mean gain in truth, and its mean in standard errors of the
comparison; in how many draws the challenger is better in truth; of these, in how many it is
promoted, with the exact 95% interval; and in how many it would be promoted if the champion were
scored as it is on its own rows. The goal is 11 of 12, for each form of the old rows.

Beside it an oracle: the true probabilities as challenger, on rows that no fit has seen. Output, for
200 and for 2,200 such rows: its mean gain in standard errors, and the probability that it exceeds
the promotion's threshold, which is its power at the same rate of false promotions. No challenger
can be expected to have more. So there is no goal for top-label maps.
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
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import safetensors.numpy
import scipy.special
import scipy.stats
from numpy.typing import NDArray

from recalib.calibrator import Calibrator
from recalib.fitting.cross_validation import compare_by_cross_validation
from recalib.fitting.fit import candidate_of
from recalib.fitting.promotion import THRESHOLD
from recalib.registry import Registry
from service.calibrators.handlers import request_fit
from service.calibrators.schemas import CalibratorCreate
from service.datasets.handlers import register_dataset
from service.datasets.survey import survey
from training.main import HANDLERS
from training.worker import Worker

__all__ = ["main"]

Logits = NDArray[np.float32]
Labels = NDArray[np.int64]
Bytes = tuple[bytes, str, str]

_CLASSES, _ROWS, _NEW_ROWS, _TEST_ROWS = 100, 2_000, 200, 5_000
_TEMPERATURE = 2.0
#: Maps with their options, and whether the goal applies.
_CHAMPIONS: tuple[tuple[str, dict[str, str], bool], ...] = (
    ("vector", {}, True),
    ("isotonic", {"target": "one_vs_rest"}, True),
    ("histogram_binning", {"target": "one_vs_rest"}, True),
    ("isotonic", {}, False),
    ("histogram_binning", {}, False),
)
_GOAL = 11 / 12


@dataclass(frozen=True)
class Draw:
    """The outcome of one draw."""

    #: How much lower the challenger's NLL is on the test rows, and on the compared rows in
    #: standard errors.
    gain: float
    gain_in_errors: float
    #: How much lower the NLL of the true probabilities is than the champion's, on the test rows, in
    #: standard errors of as many rows as are compared.
    oracle_errors: float
    #: Whether it is promoted, by the form of the old rows.
    promoted: dict[str, bool]
    #: Whether it would be promoted if the champion were scored as it is.
    promoted_before: bool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draws", type=int, default=12)
    parser.add_argument("--champion", default="", help="only maps with this in their name")
    parser.add_argument("--no-goal", action="store_true", help="only top-label maps")
    arguments = parser.parse_args()
    missed = 0
    for map, options, has_goal in _CHAMPIONS:
        if arguments.champion not in map or (arguments.no_goal and has_goal):
            continue
        forms = _FORMS if map == "vector" else {name: _FORMS[name] for name in _FEW_FORMS}
        draws = [_draw(map, options, forms, seed) for seed in range(arguments.draws)]
        name = " ".join([map, *options.values()])
        gain = np.mean([draw.gain for draw in draws])
        errors = np.mean([draw.gain_in_errors for draw in draws])
        oracle = np.array([draw.oracle_errors for draw in draws])
        better = [draw for draw in draws if draw.gain > 0]
        print(f"{name}: NLL higher by {gain:.4f} than the challenger's, {errors:.1f} errors")
        for rows in (_NEW_ROWS, _ROWS + _NEW_ROWS):
            at = oracle * np.sqrt(rows / (_ROWS + _NEW_ROWS))
            power = scipy.stats.norm.cdf(at - THRESHOLD).mean()
            errors = f"{at.mean():.1f} errors"
            print(f"  oracle, scaled to {rows:,} rows: {errors}, promoted {power:.0%}")
        print(f"  better in truth {len(better)} of {len(draws)}")
        for form in forms:
            promoted = sum(draw.promoted[form] for draw in better)
            print(f"  promoted, old rows {form}: {_share(promoted, len(better))}")
            missed += has_goal and promoted < _GOAL * len(better)
        before = sum(draw.promoted_before for draw in better)
        print(f"  promoted if scored on its own rows: {_share(before, len(better))}", flush=True)
    print(f"missed: {missed}")
    sys.exit(1 if missed else 0)


def _share(count: int, total: int) -> str:
    interval = scipy.stats.binomtest(count, max(total, 1)).proportion_ci()
    return f"{count} of {total} ({interval.low:.1%} to {interval.high:.1%})"


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
    "in Parquet of float64": _parquet,
    "in safetensors, reversed": _safetensors,
}
_FEW_FORMS = ("in Parquet of float64",)


def _draw(
    map: str,
    options: dict[str, str],
    forms: dict[str, Callable[[Logits, Labels], Bytes]],
    seed: int,
) -> Draw:
    logits, labels = _rows(_ROWS + _NEW_ROWS + _TEST_ROWS, seed)
    grown = logits[: _ROWS + _NEW_ROWS], labels[: _ROWS + _NEW_ROWS]
    test = logits[_ROWS + _NEW_ROWS :], labels[_ROWS + _NEW_ROWS :]
    with tempfile.TemporaryDirectory() as folder:
        registry = Registry(f"sqlite:///{folder}/recalib.db", Path(folder, "blobs").as_uri())
        registry.migrate()
        with registry.transaction() as tx:
            model = tx.models.create("m", None, _CLASSES, "benchmark")
        old = _npz(logits[:_ROWS], labels[:_ROWS])
        _fit(registry, "old", old, map=map, options=options, promote=True)
        promoted = {}
        for number, (form, write) in enumerate(forms.items()):
            promoted[form] = _fit(registry, f"grown-{number}", write(*grown), map="temperature")
            with registry.transaction() as tx:
                tx.aliases.set(model, "champion", 1, "benchmark", "again")
        with registry.reading() as tx:
            champion, challenger = (
                Calibrator.from_bytes(tx.calibrators.parameters(model, version))
                for version in (1, 2)
            )
        registry.close()
    before = compare_by_cross_validation(candidate_of(challenger.card), champion, *grown)
    selection = challenger.card.selection
    assert selection is not None
    in_errors = (selection.reference_nll - selection.nll) / selection.standard_error
    gain = _nll(champion, *test) - _nll(challenger, *test)
    differences = _losses(champion, *test) - _true_losses(*test)
    compared = _ROWS + _NEW_ROWS
    oracle = float(differences.mean() / differences.std() * np.sqrt(compared))
    return Draw(gain, in_errors, oracle, promoted, before.better)


def _rows(count: int, seed: int) -> tuple[Logits, Labels]:
    """Return logits, and labels drawn from softmax(logits / temperature)."""
    rng = np.random.default_rng(seed)
    logits = (rng.normal(size=(count, _CLASSES)) * 3).astype(np.float32)
    # The argmax of z/T plus Gumbel noise is a draw from softmax(z/T).
    labels = (logits / _TEMPERATURE + rng.gumbel(size=logits.shape)).argmax(axis=1)
    return logits, labels


def _fit(registry: Registry, name: str, data: Bytes, **fit: Any) -> bool:
    """Upload a data set and run a fit on it; return whether it is promoted."""
    content, format, media_type = data
    summary = survey(io.BytesIO(content), format, "logits", _CLASSES)
    request = CalibratorCreate(dataset=name, **fit)
    with registry.blobs.writer() as blob:
        blob.write(content)
        with registry.storing(blob) as (tx, digest):
            model = tx.models.get("m")
            register_dataset(tx, model, name, digest, blob.size, media_type, "logits", summary)
            job = request_fit(tx, model, request)
    Worker(registry, HANDLERS, name="benchmark").work_once(threading.Event())
    with registry.reading() as tx:
        job_row = tx.jobs.get(job.id)
    if job_row.result is None:
        raise RuntimeError(f"the fit failed: {job_row.error}")
    return bool(job_row.result["promoted"])


def _nll(calibrator: Calibrator, logits: Logits, labels: Labels) -> float:
    return float(_losses(calibrator, logits, labels).mean())


def _losses(calibrator: Calibrator, logits: Logits, labels: Labels) -> NDArray[np.float64]:
    probabilities = calibrator.predict_float64(logits)[np.arange(len(labels)), labels]
    losses: NDArray[np.float64] = -np.log(np.maximum(probabilities, 1e-300))
    return losses


def _true_losses(logits: Logits, labels: Labels) -> NDArray[np.float64]:
    z = logits.astype(np.float64) / _TEMPERATURE
    losses: NDArray[np.float64] = (
        scipy.special.logsumexp(z, axis=1) - z[np.arange(len(labels)), labels]
    )
    return losses


if __name__ == "__main__":
    main()
