"""Tables of the measurements, and goals as ratios within each round."""

from __future__ import annotations

import statistics
from dataclasses import asdict
from typing import Any

import numpy as np
import scipy.stats
from rich.console import Console
from rich.table import Table

from benchmarks.serving.contestants import (
    BARE,
    BINARY,
    ENDPOINT,
    JSON,
    MODEL_SERVERS,
    NO_LIMITS,
    OURS,
    SMALL,
)
from benchmarks.serving.measuring import Measured, Trial, median
from benchmarks.timing import Goal


def goals(measured: Measured, workers: int) -> list[Goal]:
    """Return the measured goals: ratios of processor time per request."""
    small, json, binary = (measured.get(case, {}) for case in (SMALL, JSON, BINARY))
    results = []
    present = [name for name in MODEL_SERVERS if name in small]
    if present:
        best = min(present, key=lambda name: median(small[name], "cpu_microseconds"))
        results.append(_goal(f"the best model server ({best})", small, best, 4, workers, SMALL))
    if ENDPOINT in small:
        results.append(_goal("FastAPI with pydantic", small, ENDPOINT, 2.5, workers, SMALL))
    if ENDPOINT in json:
        results.append(_goal("FastAPI with pydantic", json, ENDPOINT, 1.5, workers, JSON))
    if BARE in binary:
        results.append(_goal("a bare ASGI handler", binary, BARE, 1 / 1.5, workers, BINARY))
    if NO_LIMITS in small:
        results.append(_cost_of_limits(small))
    return results


def _cost_of_limits(trials: dict[str, list[Trial]]) -> Goal:
    """At most 5% or 3 us of processor time a request, whichever is more."""
    ratio = over(trials[OURS], trials[NO_LIMITS], "cpu_microseconds")
    base = median(trials[NO_LIMITS], "cpu_microseconds")
    differences = [
        first.cpu_microseconds - other.cpu_microseconds
        for first, other in zip(trials[OURS], trials[NO_LIMITS], strict=True)
    ]
    interval = ""
    if len(differences) > 1:
        resampled = scipy.stats.bootstrap(
            (differences,), np.median, method="percentile", random_state=0
        )
        low, high = resampled.confidence_interval
        interval = f" (95% interval {low:+.1f} to {high:+.1f})"
    return Goal(
        f"{SMALL}, 1 process, processor time a request with limits over without",
        ratio,
        round(max(1.05, 1 + 3 / base), 3),
        at_most=True,
        detail=f"; {base:.0f} us without, difference "
        f"{statistics.median(differences):+.1f} us{interval}",
    )


def _goal(
    peer_text: str, trials: dict[str, list[Trial]], peer: str, limit: float, workers: int, case: str
) -> Goal:
    ratio = over(trials[peer], trials[OURS], "cpu_microseconds")
    rate = over(trials[OURS], trials[peer], "requests_per_second")
    processes = "1 process" if workers == 1 else f"{workers} processes"
    return Goal(
        f"{case}, {processes}, processor time a request under {peer_text}",
        ratio,
        round(limit, 2),
        at_most=False,
        detail=f"; {rate:.2f} by requests a second",
    )


def over(ours: list[Trial], theirs: list[Trial], field: str) -> float:
    """Return the median ratio over rounds; the load of the machine is similar within a round."""
    return statistics.median(
        getattr(first, field) / max(getattr(other, field), 1e-9)
        for first, other in zip(ours, theirs, strict=True)
    )


def show(measured: Measured, workers: int) -> None:
    """Print a table for each case."""
    for case, trials in measured.items():
        table = Table(title=f"{case}, {workers} worker{'s' * (workers > 1)}", title_justify="left")
        for column in ("server", "req/s", "of bare", "p50 ms", "p99 ms", "CPU µs", "MiB"):
            table.add_column(column, justify="left" if column == "server" else "right")
        for name, of_name in trials.items():
            share = over(of_name, trials[BARE], "requests_per_second") if BARE in trials else None
            table.add_row(
                name,
                f"{median(of_name, 'requests_per_second'):,.0f}",
                "" if share is None else f"{share:.1%}",
                f"{median(of_name, 'p50_ms'):.2f}",
                f"{median(of_name, 'p99_ms'):.2f}",
                f"{median(of_name, 'cpu_microseconds'):,.0f}",
                f"{max(trial.resident_mib for trial in of_name):,.0f}",
            )
        Console(width=100).print(table)


def as_json(measured: dict[int, Measured], results: list[Goal]) -> dict[str, Any]:
    """Return all measurements, by number of workers, and the goals."""
    return {
        "workers": {
            str(workers): {
                case: {
                    name: [asdict(trial) for trial in trials] for name, trials in of_case.items()
                }
                for case, of_case in cases.items()
            }
            for workers, cases in measured.items()
        },
        "goals": [{**asdict(goal), "met": goal.met} for goal in results],
    }
