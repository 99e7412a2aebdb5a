"""Comparisons of the simulation with a real server and a real pool of processes."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import numpy as np

import recalib.scale
from benchmarks.capacity import served
from benchmarks.plan.client import closed_loop, poisson
from benchmarks.plan.costs import CLASSES, FILES, RowCost, processor_seconds, system
from benchmarks.plan.simulation import Kind, Pass, Step, elapsed, simulate
from recalib.core.executors import open_workers


def check_server(folder: Path, seconds: float) -> None:
    """Compare the simulation with a server of one process, for requests of 32x1000 in JSON."""
    logits = np.random.default_rng(4).normal(size=(32, CLASSES)).round(3)
    body = json.dumps({"logits": logits.tolist()}).encode()
    path = "/v1/models/large/calibrate"
    print("\na server of one process: requests of 32 rows of 1,000 classes, JSON")
    with system(folder) as database, served(folder, database) as (client, process):
        url = str(client.base_url)
        asyncio.run(closed_loop(url, path, body, 200))  # warms up
        before = processor_seconds(process, database)[0]
        asyncio.run(closed_loop(url, path, body, 400))
        cost = (processor_seconds(process, database)[0] - before) / 400
        began = time.perf_counter()
        asyncio.run(closed_loop(url, path, body, 400, connections=1))
        # The network, the client and the switches between threads: no queue, no processor time.
        transfer = max(0.0, (time.perf_counter() - began) / 400 - cost)
        print(f"processor time {1e3 * cost:.1f} ms, transfer and client {1e3 * transfer:.1f} ms")
        print(
            "utilisation: simulated  measured   p50 ms: simulated  measured   p99 ms: same  refused"
        )
        for share in (0.2, 0.4, 0.6):
            rate = share / cost
            kind = Kind("calibrate", rate, [Step("server", cost)], variation=0.3)
            result = simulate({"server": 1}, [kind], 2_000 / rate)
            before = processor_seconds(process, database)[0]
            began = time.perf_counter()
            times, refused = asyncio.run(poisson(url, path, body, rate, seconds))
            used = processor_seconds(process, database)[0] - before
            used /= time.perf_counter() - began
            latencies = result.latencies["calibrate"] + transfer
            expected = np.quantile(latencies, [0.5, 0.99]) * 1e3
            actual = np.quantile(times, [0.5, 0.99]) * 1e3
            print(
                f"{result.utilisation['server']:22.0%}{used:10.0%}"
                f"{expected[0]:20.1f}{actual[0]:10.1f}{expected[1]:12.1f}{actual[1]:10.1f}{refused:9}"
            )


def check_pool(folder: Path, cost: RowCost, rows: int) -> None:
    """Compare the simulation of `evaluate` with a pool of one and of two processes."""
    print("\nevaluate in a pool of processes that have started, least seconds of three")
    fragments = sorted((folder / "all").iterdir())
    for workers in (1, 2):
        expected, _ = elapsed(
            Pass(0.0, rows // FILES * cost.seconds, 0.0), FILES, 1, workers, 1.25e9
        )
        seconds = []
        with open_workers(f"processes:{workers}") as pool:
            for _ in range(4):  # at first, the processes import modules
                began = time.perf_counter()
                recalib.scale.evaluate(fragments, cluster=pool)
                seconds.append(time.perf_counter() - began)
        print(f"{workers} processes: simulated {expected:.2f}, measured {min(seconds[1:]):.2f}")
