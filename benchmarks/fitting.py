"""The time and the optimum of a fit beside those of other libraries."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import numpy as np

from benchmarks.peers import Fit, Fitted, Labels, Rows
from benchmarks.timing import Goal, interleaved


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
) -> Iterator[Goal]:
    """Yield the ratio of times for each peer, with goal `limit`, and the difference of the optima.

    Times are processor times, the shortest of several runs. A peer that takes over fifteen seconds
    runs once, not `times` times.
    """
    logits, labels = data
    size = f"{len(labels):,}x{logits.shape[1]}"
    for name, fit in peers.items():
        fits: dict[str, Fitted] = {}

        def act(name: str, of: Fit, fits: dict[str, Fitted] = fits) -> None:
            fits[name] = of(logits, labels)

        acts = {"ours": lambda: act("ours", ours), "theirs": lambda fit=fit: act("theirs", fit)}
        # The first run loads modules, and shows how long a run takes.
        seconds = interleaved(acts, 1, time.process_time)
        if seconds["theirs"][0] < 15:
            seconds = interleaved(acts, times, time.process_time)
        best = {name: min(several) for name, several in seconds.items()}
        nll = {name: fitted.objective(labels) for name, fitted in fits.items()}
        detail = (
            f"; {_seconds(best['ours'])} against {_seconds(best['theirs'])}, "
            f"objective {nll['ours']:.8f} and {nll['theirs']:.8f}"
        )
        ratio = best["theirs"] / best["ours"]
        yield Goal(f"{map}, {size}: {name}'s time over ours", ratio, limit, False, detail)
        higher = (nll["ours"] - nll["theirs"]) * 1e4
        yield Goal("  ours less theirs, in 1e-4 nats", higher, 1, True)


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.1f} ms"
