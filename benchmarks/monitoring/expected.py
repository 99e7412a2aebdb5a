"""`python -m benchmarks.monitoring.expected`: expected accuracy, F1 and AUC beside NannyML's CBPE.

A classifier of two classes is too sure, and has a bias. A reference of labelled rows calibrates it:
by Platt scaling (the map `vector`; temperature scaling cannot remove a bias), and by CBPE, which
fits isotonic regression. Then inputs move (covariate shift) and labels
stop; each estimates the performance of chunks from scores alone. The error is the mean absolute
difference from the labels of a chunk. NannyML has an environment of its own, which uv makes.

Then, without NannyML, calibrators are fitted again and again, and each says what 20,000 predictions
achieve, with and without its own error in the interval.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.stats
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.metrics import accuracy_score, f1_score, roc_auc_score

import recalib
from benchmarks.monitoring.streams import Values
from benchmarks.monitoring.unlabelled import interval
from recalib.drift import CalibrationSums, expected_performance
from recalib.drift.expected_performance import expected_performance_of_sums
from recalib.drift.reference_histogram import reference_histogram

_NANNYML = ("nannyml==0.13.1", "statsmodels", "setuptools<81")
_METRICS = {"accuracy": accuracy_score, "f1": f1_score, "auc": roc_auc_score}
_REFERENCE = 5_000
#: Predictions of which a new calibrator says what they achieve.
_WINDOW = 20_000
#: The probability of a coverage as low as observed, below which a goal is missed.
_UNLUCKY = 1e-3
#: Mean of the two inputs in each shift; they are around 0 in the reference.
_SHIFTS = {"none": (0.0, 0.0), "easier": (1.5, 0.0), "harder": (-0.3, 0.3), "rarer": (-1.5, -1.0)}
#: Runs in the environment of NannyML: a line of JSON for each chunk, in order.
_CBPE = """
import sys, json, nannyml, pandas
reference, analysis = (pandas.read_parquet(name) for name in sys.argv[1:3])
cbpe = nannyml.CBPE(
    y_pred_proba="p", y_pred="predicted", y_true="y", problem_type="classification_binary",
    metrics=["accuracy", "f1", "roc_auc"], chunk_size=int(sys.argv[3]))
table = cbpe.fit(reference).estimate(analysis).filter(period="analysis").to_df()
for _, row in table.iterrows():
    print(json.dumps([row[name, "value"] for name in ("accuracy", "f1", "roc_auc")]))
"""


def _draw(rng: np.random.Generator, rows: int, mean: tuple[float, float]) -> tuple[Values, Values]:
    """Return log-odds (N,) of a classifier that is too sure, and labels (N,)."""
    x = rng.normal(size=(rows, 2)) * (1.2, 0.8) + mean
    odds = 1.1 * x[:, 0] + 0.6 * x[:, 1] - 0.2
    return 2.5 * odds + 0.3, (rng.random(rows) < expit(odds)).astype(np.float64)


def _logits(odds: Values) -> Values:
    return np.stack([np.zeros_like(odds), odds], axis=1)


def _cbpe(folder: Path, reference: tuple[Values, Values], analysis: Values, chunk: int) -> Values:
    """Return NannyML's estimates of chunks, (C, 3)."""
    columns = {}
    for name, (odds, y) in {"reference": reference, "analysis": (analysis, None)}.items():
        columns = {"p": expit(odds), "predicted": (odds > 0).astype(np.int64)}
        table = columns if y is None else columns | {"y": y.astype(np.int64)}
        pq.write_table(pa.table(table), folder / f"{name}.parquet")
    packages = [part for name in _NANNYML for part in ("--with", name)]
    files = [str(folder / f"{name}.parquet") for name in ("reference", "analysis")]
    command = ["uv", "run", "--isolated", "--no-project", "--python", "3.11", *packages, "python"]
    output = subprocess.run(
        [*command, "-W", "ignore", "-c", _CBPE, *files, str(chunk)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"NML_DISABLE_USAGE_LOGGING": "1"},
    ).stdout
    lines = [line for line in output.splitlines() if line.startswith("[")]
    return np.array([json.loads(line) for line in lines])


def _recalib(p: Values, chunk: int) -> tuple[Values, Values]:
    """Return the estimates of chunks, (C, 3), and ends of intervals, (C, 3, 2)."""
    parts = [expected_performance(part, target="positive_class") for part in p.reshape(-1, chunk)]
    values = [[getattr(part, name) for name in _METRICS] for part in parts]
    estimates = np.array([[one.value for one in row] for row in values])
    return estimates, np.array([[(one.low, one.high) for one in row] for row in values])


def _truth(scores: Values, y: Values, predicted: NDArray[np.bool_], chunk: int) -> Values:
    """Return the metrics of chunks with their labels, (C, 3)."""
    chunks = zip(*(column.reshape(-1, chunk) for column in (scores, y, predicted)), strict=True)
    return np.array(
        [
            [score(y, s if name == "auc" else predicted) for name, score in _METRICS.items()]
            for s, y, predicted in chunks
        ]
    )


def _covered_by_fit(
    rng: np.random.Generator, map: str, rows: int, mean: tuple[float, float]
) -> NDArray[np.bool_]:
    """Return whether the intervals without and with a new calibrator's error have the values."""
    odds, y = _draw(rng, rows, _SHIFTS["none"])
    calibrator = recalib.fit(_logits(odds), y.astype(np.int64), map=map)
    fitted = reference_histogram(calibrator.predict_proba(_logits(odds))[:, 1], "positive_class")
    odds, y = _draw(rng, _WINDOW, mean)
    p = calibrator.predict_proba(_logits(odds))[:, 1]
    sums = CalibrationSums.empty(np.array(fitted.edges))
    sums.add_traffic(p)
    truth, covered = _truth(p, y, p > 0.5, _WINDOW)[0], []
    for counts in (None, np.array(fitted.counts)):
        expected = expected_performance_of_sums(sums, "positive_class", counts)
        parts = (getattr(expected, name) for name in _METRICS)
        covered.append([a.low <= t <= a.high for a, t in zip(parts, truth, strict=True)])
    return np.array(covered)


def _print_fits(fits: int) -> bool:
    """Print coverages; return whether those with the calibrator's error may be 95%."""
    print(
        f"intervals that have the value, of {fits} calibrators each, without and with their error"
    )
    rng, met = np.random.default_rng(8), True
    for map, rows, shift in product(("vector", "isotonic"), (500, 5_000), ("none", "harder")):
        hits = sum(_covered_by_fit(rng, map, rows, _SHIFTS[shift]).astype(int) for _ in range(fits))
        for name, (without, within) in zip(_METRICS, np.transpose(hits), strict=True):
            print(
                f"{map:<9} of {rows:>5,} rows  {shift:<7}{name:<9}"
                f"{interval(without, fits)}  {interval(within, fits)}"
            )
            met &= bool(scipy.stats.binom.cdf(within, fits, 0.95) > _UNLUCKY)
    return met


def main() -> None:
    """Print tables; the exit status is 1 if an error exceeds CBPE's, or coverage is below 95%."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--chunks", type=int, default=50, help="of each shift")
    parser.add_argument("--fits", type=int, default=100, help="of each kind")
    parser.add_argument("--rows", type=int, default=1_000, help="of a chunk")
    args = parser.parse_args()
    rng = np.random.default_rng(7)
    reference = _draw(rng, _REFERENCE, _SHIFTS["none"])
    streams = {name: _draw(rng, args.chunks * args.rows, mean) for name, mean in _SHIFTS.items()}
    calibrator = recalib.fit(_logits(reference[0]), reference[1].astype(np.int64), map="vector")
    with tempfile.TemporaryDirectory() as folder:
        odds = np.concatenate([stream[0] for stream in streams.values()])
        others = np.split(_cbpe(Path(folder), reference, odds, args.rows), len(streams))
    print(f"{args.chunks} chunks of {args.rows:,} rows; mean absolute error in points")
    print(f"{'shift':<8}{'':<10}{'true':>7}{'recalib':>9}{'CBPE':>7}  in its interval")
    met = True
    for (name, (odds, y)), other in zip(streams.items(), others, strict=True):
        p = calibrator.predict_proba(_logits(odds))[:, 1]
        mine, ends = _recalib(p, args.rows)
        # Each is compared with the predictions that it is about.
        truth, raw_truth = (_truth(odds, y, s > cut, args.rows) for s, cut in ((p, 0.5), (odds, 0)))
        errors = 100 * np.abs(mine - truth), 100 * np.abs(other - raw_truth)
        covered = (ends[:, :, 0] <= truth) & (truth <= ends[:, :, 1])
        for k, metric in enumerate(_METRICS):
            own, cbpe = (error[:, k].mean() for error in errors)
            print(
                f"{name:<8}{metric:<10}{truth[:, k].mean():7.3f}{own:9.2f}{cbpe:7.2f}"
                f"{covered[:, k].mean():9.1%}"
            )
            met &= own <= cbpe
    met &= _print_fits(args.fits)
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
