"""Speed of fitting, relative to every library with the same map, rows and optimum."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from benchmarks.peers import Fit, Fitted, Labels, Rows, peers_of
from benchmarks.timing import Goal, interleaved
from recalib.fitting.newton import fit_temperature


def run() -> Iterator[Goal]:
    """Measure temperature by NLL on 5,000 x 10 and on 25,000 x 1000 float64."""
    # float64 for all: on float32, scikit-learn stops 2e-4 away from the optimum.
    peers = peers_of("temperature")
    yield from against("temperature", _temperature, peers, rows_like(5_000, 10), 5, 1)
    # Only the two fast libraries that reach the optimum: the others take minutes.
    fast = {name: peers[name] for name in ("scikit-learn", "probmetrics") if name in peers}
    yield from against("temperature", _temperature, fast, rows_like(25_000, 1000), 2, 8)


def rows_like(
    rows: int, classes: int, seed: int = 0, *, per_class: bool = False
) -> tuple[Rows, Labels]:
    """Return logits of standard deviation 3, and labels drawn from softmax(z / 2).

    With `per_class`, the slope of each class differs, and so does an intercept.
    """
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(rows, classes)) * 3
    slopes, bias = np.full(classes, 0.5), np.zeros(classes)
    if per_class:
        slopes *= np.exp(rng.normal(size=classes) * 0.2)
        bias += rng.normal(size=classes) * 0.5
    labels = np.empty(rows, np.int64)
    for block in np.array_split(np.arange(rows), max(1, rows * classes // 1_000_000)):
        noise = rng.gumbel(size=(len(block), classes))
        labels[block] = (logits[block] * slopes + bias + noise).argmax(axis=1)
    return logits, labels


def against(
    map: str,
    ours: Fit,
    peers: Mapping[str, Fit],
    data: tuple[Rows, Labels],
    times: int,
    limit: float,
    *,
    both_ways: bool = False,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[Goal]:
    """Yield the ratio of times for each peer, with goal `limit`, and the difference of the optima.

    Times are those of `clock`, the shortest of several runs. A peer that takes over fifteen seconds
    runs once, not `times` times. With `both_ways`, the goal applies to the absolute difference: the
    objectives are equal up to a constant.
    """
    logits, labels = data
    size = f"{len(labels):,}x{logits.shape[1]}"
    for name, fit in peers.items():
        fits: dict[str, Fitted] = {}

        def act(name: str, of: Fit, fits: dict[str, Fitted] = fits) -> None:
            fits[name] = of(logits, labels)

        acts = {"ours": lambda: act("ours", ours), "theirs": lambda fit=fit: act("theirs", fit)}
        # The first run loads modules, and shows how long a run takes.
        seconds = interleaved(acts, 1, clock)
        if seconds["theirs"][0] < 15:
            seconds = interleaved(acts, times, clock)
        best = {name: min(several) for name, several in seconds.items()}
        nll = {name: fitted.objective(labels) for name, fitted in fits.items()}
        detail = (
            f"; {_seconds(best['ours'])} against {_seconds(best['theirs'])}, "
            f"objective {nll['ours']:.8f} and {nll['theirs']:.8f}"
        )
        ratio = best["theirs"] / best["ours"]
        yield Goal(f"{map}, {size}: {name}'s time over ours", ratio, limit, False, detail)
        higher = (nll["ours"] - nll["theirs"]) * 1e4
        column = "  distance of the objectives" if both_ways else "  ours less theirs"
        yield Goal(f"{column}, in 1e-4 nats", abs(higher) if both_ways else higher, 1, True)


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.1f} ms"


def _temperature(logits: Rows, labels: Labels) -> Fitted:
    temperature = fit_temperature(logits, labels).temperature

    def probabilities() -> Rows:
        powers = np.exp((logits - logits.max(axis=1, keepdims=True)) / temperature)
        return np.asarray(powers / powers.sum(axis=1, keepdims=True))

    return Fitted(probabilities)
