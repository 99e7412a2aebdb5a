"""Coverage of prediction sets over draws, and those of peers: `python -m benchmarks.sets`.

Ten populations: numbers of classes, shares of classes, and classifiers that are too sure or not
sure enough. A draw has rows for the thresholds and rows for a test. The coverage of a test has a
beta-binomial distribution if scores have no ties: its mean over the draws is compared with the
exact one, and the band is four standard errors. Sets of `aps` and `raps` have no random term and
are never empty, so that theirs is a lower bound. `--peers` makes the sets of MAPIE and TorchCP on
the same rows, and then compares one larger draw by class and by cluster too.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import get_args

import numpy as np
import scipy.special
import scipy.stats
from numpy.typing import NDArray

from benchmarks.peers import FixedLogits, bare_packages, install
from recalib.core.card import SetGroups, SetMethod, SetOptions
from recalib.sets import conformal_sets, evaluate_sets, prediction_sets

_ROWS, _TEST_ROWS, _COVERAGE = 500, 1_000, 0.9
_Values = NDArray[np.float64]
_Labels = NDArray[np.intp]


@dataclass(frozen=True)
class Population:
    """Rows whose labels follow softmax(z), and a classifier that serves softmax(`sharpness` z)."""

    classes: int
    #: The standard deviation of z.
    spread: float
    sharpness: float
    #: By how much log p falls from the first class to the last one.
    tail: float = 0.0

    def draw(self, rng: np.random.Generator, rows: int) -> tuple[_Values, _Labels]:
        """Return the served log-probabilities (N, K) and the labels."""
        logits = self.spread * rng.standard_normal((rows, self.classes))
        logits -= np.linspace(0, self.tail, self.classes)
        labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
        return scipy.special.log_softmax(self.sharpness * logits, axis=1), labels


POPULATIONS = {
    "2 classes, true": Population(2, 2, 1),
    "2 classes, 1% of one, too sure": Population(2, 2, 2, tail=6),
    "5 classes, true": Population(5, 3, 1),
    "5 classes, too sure": Population(5, 1, 3),
    "10 classes, true": Population(10, 3, 1),
    "10 classes, too sure": Population(10, 2, 2),
    "10 classes, not sure enough": Population(10, 4, 0.4),
    "10 classes, long tail, too sure": Population(10, 2, 2, tail=5),
    "100 classes, too sure": Population(100, 3, 1.5),
    "100 classes, long tail": Population(100, 3, 1, tail=4),
}


def main() -> None:
    """Print the table; the exit status is 1 if a mean coverage is out of its band."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--draws", type=int, default=200, help="of each population")
    parser.add_argument("--peers", action="store_true", help="those of MAPIE and TorchCP too")
    arguments = parser.parse_args()
    peers = _peers() if arguments.peers else {"recalib": _ours}
    place = math.ceil((_ROWS + 1) * _COVERAGE)
    exact = scipy.stats.betabinom(_TEST_ROWS, place, _ROWS + 1 - place)
    mean, error = place / (_ROWS + 1), exact.std() / _TEST_ROWS / math.sqrt(arguments.draws)
    print(
        f"coverage {_COVERAGE:.0%}, {_ROWS} rows, {_TEST_ROWS} of a test, {arguments.draws} draws"
    )
    print(f"exact mean {mean:.2%}, band {mean - 4 * error:.2%} to {mean + 4 * error:.2%}")
    print(f"{'population':32} {'sets':5} library  coverage  sd     size   worst class  in the band")
    rng, is_met = np.random.default_rng(0), True
    for name, population in POPULATIONS.items():
        found: dict[tuple[SetMethod, str], list[tuple[float, float, float]]] = {}
        for _ in range(arguments.draws):
            rows, (test, labels) = (population.draw(rng, n) for n in (_ROWS, _TEST_ROWS))
            for method, library in product(get_args(SetMethod), peers):
                sets = peers[library](*rows, test, SetOptions(method=method))
                if sets is not None:
                    measured = evaluate_sets(sets, labels)
                    values = measured.coverage, measured.mean_size, measured.worst_coverage
                    found.setdefault((method, library), []).append(values)
        for (method, library), values in found.items():
            coverage, size, worst = np.mean(values, axis=0)
            is_in = coverage > mean - 4 * error and (method != "lac" or coverage < mean + 4 * error)
            is_met &= bool(is_in) or library != "recalib"
            print(
                f"{name:32} {method:5} {library:7} {coverage:8.2%} "
                f"{np.std(values, axis=0)[0]:6.2%} {size:6.2f} {worst:12.1%}  "
                f"{'yes' if is_in else 'NO'}",
                flush=True,
            )
    if arguments.peers:
        _compare(peers)
    sys.exit(0 if is_met else 1)


class _FixedProbabilities(FixedLogits):
    """A fitted classifier whose log-probabilities are its input."""

    def predict_proba(self, x: _Values) -> _Values:
        return np.exp(x)


def _ours(log_p: _Values, labels: _Labels, test: _Values, options: SetOptions) -> NDArray[np.bool_]:
    return prediction_sets(np.exp(test), conformal_sets(np.exp(log_p), labels, options))


def _mapie(
    log_p: _Values, labels: _Labels, test: _Values, options: SetOptions
) -> NDArray[np.bool_] | None:
    from mapie.classification import SplitConformalClassifier
    from sklearn.frozen import FrozenEstimator

    if options.by != "all":
        return None
    peer = SplitConformalClassifier(
        FrozenEstimator(_FixedProbabilities().fit(log_p, labels)),
        confidence_level=_COVERAGE,
        conformity_score=options.method,
        random_state=0,
    )
    try:
        with warnings.catch_warnings(action="ignore"):
            return np.asarray(peer.conformalize(log_p, labels).predict_set(test)[1][:, :, 0])
    except ValueError:  # it refuses two classes but for lac, and raps of classes with few rows
        return None


def _torchcp(
    log_p: _Values, labels: _Labels, test: _Values, options: SetOptions
) -> NDArray[np.bool_]:
    """Sets without the random term, as ours; RAPS with our penalty and ranks."""
    import torch
    from torchcp.classification import predictor, score

    raps = partial(score.RAPS, randomized=False, penalty=options.penalty, kreg=options.k_reg)
    scores = {"lac": score.LAC, "aps": partial(score.APS, randomized=False), "raps": raps}
    kinds = {"all": "Split", "class": "ClassConditional", "cluster": "Clustered"}
    kind = getattr(predictor, f"{kinds[options.by]}Predictor")
    torch.manual_seed(0)
    peer = kind(scores[options.method](), alpha=1 - _COVERAGE, device="cpu")
    peer.calculate_threshold(torch.from_numpy(log_p), torch.from_numpy(labels))
    return np.asarray(peer.predict_with_logits(torch.from_numpy(test)).bool())


def _peers() -> dict[str, Callable[..., NDArray[np.bool_] | None]]:
    """Return the functions of the libraries, which are installed."""
    install(Path(__file__).with_name("peers.txt"))
    bare_packages("torchcp", "torchcp.classification")
    return {"recalib": _ours, "mapie": _mapie, "torchcp": _torchcp}


def _compare(peers: dict[str, Callable[..., NDArray[np.bool_] | None]]) -> None:
    """Print the sets of each library from the same rows, with thresholds by class and cluster."""
    rng = np.random.default_rng(0)
    print("population, rows, sets, by, library: coverage, size, worst class, seconds, equal rows")
    for name, rows in ("10 classes, too sure", 2_000), ("100 classes, too sure", 10_000):
        population = POPULATIONS[name]
        (log_p, labels), (test, test_labels) = (population.draw(rng, n) for n in (rows, 5_000))
        for method, by in product(get_args(SetMethod), get_args(SetGroups)):
            options = SetOptions(method=method, coverage=_COVERAGE, by=by)
            ours = _ours(log_p, labels, test, options)
            for library, make in peers.items():
                began = time.process_time()
                sets = make(log_p, labels, test, options)
                if sets is not None:
                    seconds, found = time.process_time() - began, evaluate_sets(sets, test_labels)
                    print(
                        f"{name} | {rows} | {method} | {by} | {library} | {found.coverage:.2%} | "
                        f"{found.mean_size:.2f} | {found.worst_coverage:.1%} | {seconds:.3f} | "
                        f"{(ours == sets).all(axis=1).mean():.1%}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
