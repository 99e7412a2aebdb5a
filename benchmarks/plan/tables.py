"""Tables of what a number of rows, or a rate of requests and labels, needs."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from benchmarks.plan.costs import BATCH, CLASSES, Costs, RowCost
from benchmarks.plan.simulation import Kind, Pass, Result, Step, elapsed, simulate

_FRAGMENT_BYTES = 128 * 2**20
#: A machine of the plans: processors, and network of 10 Gbit/s.
_CORES, _BYTES_PER_SECOND = 16, 1.25e9
#: Of planned processors, the share that may be busy.
_MAX_UTILISATION = 0.6


class Machines(NamedTuple):
    """Processors of each resource."""

    server: int
    database: int
    worker: int


def print_rows(costs: dict[str, RowCost]) -> None:
    """Print core hours, bytes and hours for numbers of rows of 1,000 classes."""
    print(f"\nrows of {CLASSES:,} classes; machines of {_CORES} cores and 10 Gbit/s")
    print("task                     rows  core hours   GB read  machines     hours  saturated")
    for task, cost in costs.items():
        for rows in (10**6, 10**8, 10**9):
            for machines in (1, 8):
                hours, busy = _hours(cost, rows, machines)
                first = max(busy, key=busy.__getitem__)
                print(
                    f"{task:18}{rows:11.0e}{rows * cost.seconds / 3600:12.2f}"
                    f"{rows * cost.bytes_read / 1e9:10,.0f}{machines:10}{hours:10.3f}"
                    f"  {first} {busy[first]:.0%}"
                )


def _hours(cost: RowCost, rows: int, machines: int) -> tuple[float, dict[str, float]]:
    passes = max(1, round(cost.passes))
    row_bytes = cost.bytes_read / passes
    fragments = max(machines * _CORES, math.ceil(rows * row_bytes / _FRAGMENT_BYTES))
    share = rows / fragments
    single = Pass(share * row_bytes, share * cost.seconds / passes, 0.0)
    seconds, busy = elapsed(single, fragments, machines, _CORES, _BYTES_PER_SECOND)
    return passes * seconds / 3600, busy


def needs(costs: Costs, requests: float, labels: float) -> dict[str, float]:
    """Return the processors in use, and bytes a second, at these rates."""
    return {
        "server": requests * costs.request + labels * costs.label_server,
        "database": labels * costs.label_database,
        "worker": labels * costs.label_worker,
        "bytes": requests * costs.request_bytes + labels * costs.label_bytes,
    }


def planned(costs: Costs, requests: float, labels: float) -> Machines:
    """Return the processors with which at most `_MAX_UTILISATION` is in use."""
    need = needs(costs, requests, labels)
    names = Machines._fields
    return Machines(*(max(1, math.ceil(need[name] / _MAX_UTILISATION)) for name in names))


def kinds(costs: Costs, requests: float, labels: float) -> list[Kind]:
    """Return the kinds of requests at these rates."""
    batch = [
        Step("server", BATCH * costs.label_server),
        Step("database", BATCH * costs.label_database),
    ]
    later = [Step("worker", BATCH * costs.label_worker)]
    return [
        Kind("calibrate", requests, [Step("server", costs.request)], variation=0.5),
        Kind("labels", labels / BATCH, batch, later, variation=0.2),
    ]


def print_rates(costs: Costs) -> None:
    """Print what saturates when the load grows, the cores for it, and latencies with them."""
    base = Machines(server=2, database=2, worker=1)
    print(
        f"\n10 requests of one row for each label; {base.server} server processes, {base.database} "
        f"cores of the database and a worker\nat first; the plan uses {_MAX_UTILISATION:.0%}"
    )
    print(
        "                              in use at first             cores of the plan        "
        "     latency, ms\n"
        "labels/s  requests/s   server  database  worker   server  database  worker  Mbit/s"
        "  calibrate p99  labels p50"
    )
    for labels in (100, 1_000, 10_000, 100_000):
        requests = 10.0 * labels
        need = needs(costs, requests, labels)
        units = zip(Machines._fields, base, strict=True)
        shares = "".join(f"{need[name] / count:9.0%}" for name, count in units)
        machines = planned(costs, requests, labels)
        # About 100,000 requests, and at least 20 batches of labels.
        seconds = max(1e5 / requests, 20 * BATCH / labels)
        result = simulate(machines._asdict(), kinds(costs, requests, labels), seconds)
        print(
            f"{labels:8,}{requests:12,.0f}{shares}"
            f"{machines.server:9}{machines.database:9}{machines.worker:9}"
            f"{need['bytes'] * 8e-6:8,.0f}"
            f"{_quantile(result, 'calibrate', 0.99):15.2f}{_quantile(result, 'labels', 0.5):12.1f}"
        )


def _quantile(result: Result, name: str, level: float) -> float:
    """Return a quantile in ms; requests without an answer count with their age."""
    times = [*result.latencies[name], *result.ages[name]]
    return float(np.quantile(times, level) * 1e3)
