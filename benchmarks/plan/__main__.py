"""`python -m benchmarks.plan`: machines, hours and network for a load, from measured costs.

It measures processor time and bytes on this machine: of evaluating, applying and fitting rows of
1,000 classes, of requests and labels on a server with PostgreSQL, and of monitoring. Then it prints
what a number of rows or a rate needs, and simulates servers, database and workers under growing
load (`benchmarks/plan/simulation.py`). benchmarks/scale.md has the results, and how the simulation
compares with a real server.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks.plan.costs import CLASSES, FILES, row_costs, server_costs, system
from benchmarks.plan.tables import print_rates, print_rows


def main() -> None:
    """Measure, and print the plans."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=60_000, help="rows to measure")
    parser.add_argument("--requests", type=int, default=2_000, help="requests to measure")
    parser.add_argument("--labels", type=int, default=40_000, help="labels to measure")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="recalib-plan-") as name:
        folder = Path(name)
        rows = row_costs(folder, arguments.rows)
        print(
            f"{arguments.rows:,} rows of {CLASSES:,} classes in {FILES} Parquet files, one process"
        )
        for task, cost in rows.items():
            print(
                f"{task:18}{1e6 * cost.seconds:8.1f} us of processor time a row, "
                f"{cost.bytes_read:8,.0f} bytes read in {cost.passes:.1f} passes"
            )
        with system(folder / "server") as database:
            costs = server_costs(
                folder / "server", database, requests=arguments.requests, labels=arguments.labels
            )
        for name, value in vars(costs).items():
            is_bytes = name.endswith("bytes")
            print(f"{name:18}{value if is_bytes else 1e6 * value:8.1f} {'B' if is_bytes else 'us'}")
        print_rows(rows)
        print_rates(costs)


if __name__ == "__main__":
    main()
