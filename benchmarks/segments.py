"""Offsets by segment beside those of mcgrad: `python -m benchmarks.segments`.

Scores of two classes, and three columns of segments that overlap: 12 countries, 6 ages, 2 places.
The truth has no effect of segments; a factor and a bias of each; also a curve in two segments; or
also a bias of each pair of country and age. Losses and errors are those of the true probabilities,
on 20,000 new rows: the NLL above the least possible one, and of the segment that is worst the mean
difference of true and stated probability in ten bins.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import pandas as pd
import scipy
from numpy.typing import NDArray

import recalib
from benchmarks.peers import bare_packages, install
from recalib.core.segment_columns import segment_masks

_SIZES, _NEW = {"country": 12, "age": 6, "place": 2}, 20_000
_KINDS = ("no effect", "factor and bias", "and a curve", "and pairs")
_Values = NDArray[np.float64]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--draws", type=int, default=10, help="of each truth and number of rows")
    draws = parser.parse_args().draws
    install(Path(__file__).with_name("segments.txt"))
    bare_packages("mcgrad")
    print(f"mean of {draws} draws ± standard error: loss, largest error of a segment, CPU seconds")
    for kind in _KINDS:
        for rows in 2_000, 20_000:
            found = np.array([_measure(kind, rows, seed) for seed in range(draws)])
            errors = found.std(axis=0, ddof=1) / np.sqrt(draws)
            for k, name in enumerate(("common", "recalib", "mcgrad")):
                (loss, error, seconds), (loss_se, error_se, _) = found.mean(axis=0)[k], errors[k]
                print(
                    f"{kind:16} | {rows:6,} | {name:8} | {loss:.5f} ± {loss_se:.5f} | "
                    f"{error:.3f} ± {error_se:.3f} | {seconds:.1f}",
                    flush=True,
                )


def _draw(kind: str, rows: int, rng: np.random.Generator) -> tuple[_Values, pd.DataFrame, _Values]:
    """Return log-odds, segments, and the true probabilities of class 1."""
    effects = {name: rng.normal(size=(2, size)) for name, size in _SIZES.items()}
    pairs = 0.5 * rng.normal(size=(_SIZES["country"], _SIZES["age"]))
    frame = pd.DataFrame({name: rng.integers(0, size, rows) for name, size in _SIZES.items()})
    score, level = 2 * rng.normal(size=rows), _KINDS.index(kind)
    factor, bias = (sum(effects[name][k, frame[name]] for name in _SIZES) for k in (0, 1))
    true = score * np.exp(0.2 * factor) + 0.3 * bias if level else score
    if kind == "and a curve":
        true = true + 0.8 * np.sin(1.5 * score) * (frame["place"] == 1)
    if kind == "and pairs":
        true = true + pairs[frame["country"], frame["age"]]
    return 1.3 * score, frame, scipy.special.expit(np.asarray(true))


def _measure(kind: str, rows: int, seed: int) -> list[tuple[float, float, float]]:
    """Return loss, largest error and seconds of the common map, of ours, and of mcgrad."""
    from mcgrad.methods import MCGrad

    rng = np.random.default_rng((seed, rows, _KINDS.index(kind)))
    score, frame, true = _draw(kind, rows + _NEW, rng)
    labels = (rng.random(len(true)) < true).astype(int)
    began = time.process_time()
    common = recalib.fit(score[:rows], labels[:rows], "vector")
    answers, seconds = [common.predict(score)[:, 1]], [time.process_time() - began]
    began = time.process_time()
    ours = recalib.fit_segments(common, score[:rows], labels[:rows], frame[:rows])
    seconds.append(time.process_time() - began)
    answers.append(ours.predict(score, frame)[:, 1])
    data, began = frame.assign(p=answers[0], label=labels), time.process_time()
    columns = {"categorical_feature_column_names": list(_SIZES)}
    peer = MCGrad().fit(data[:rows], "p", "label", **columns)
    seconds.append(time.process_time() - began)
    answers.append(peer.predict(data, "p", **columns))
    truth = true[rows:]
    masks = [*segment_masks(frame[rows:], _NEW).values()]
    return [_scores(p[rows:], truth, masks, t) for p, t in zip(answers, seconds, strict=True)]


def _scores(
    p: _Values, true: _Values, masks: list[NDArray[np.bool_]], seconds: float
) -> tuple[float, float, float]:
    loss = float(np.mean(scipy.special.rel_entr(true, p) + scipy.special.rel_entr(1 - true, 1 - p)))
    bins = np.minimum((10 * p).astype(int), 9)
    sums = (np.bincount(bins[m], (true - p)[m]) for m in masks)
    return loss, max(np.abs(s).sum() / m.sum() for s, m in zip(sums, masks, strict=True)), seconds


if __name__ == "__main__":
    main()
