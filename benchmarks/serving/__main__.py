"""Command line; see the package."""

from __future__ import annotations

import argparse
import json
import signal
import sys

import benchmarks.serving
from benchmarks.serving.contestants import CONTESTANTS, OURS
from benchmarks.serving.measuring import CASES, CONNECTIONS
from benchmarks.serving.report import as_json, goals, show


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.serving",
        description="Serve the same temperature scaling by others and by Recalib, and compare.",
    )
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2], metavar="N")
    parser.add_argument("--rounds", type=int, default=5, help="turns, of which medians are taken")
    parser.add_argument("--seconds", type=int, default=4, help="for each server, case and round")
    parser.add_argument(
        "--connections", type=int, default=CONNECTIONS, help="that ask at the same time"
    )
    peers = [name for name in CONTESTANTS if name != OURS]
    parser.add_argument("--against", nargs="+", choices=peers, default=peers, metavar="SERVER")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=CASES, metavar="CASE")
    parser.add_argument("--json", action="store_true", help="print JSON for machines")
    args = parser.parse_args()
    if benchmarks.serving.missing():
        sys.exit(benchmarks.serving.missing())
    # As an exception, SIGTERM unwinds the stack and ends the servers, as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    names = [OURS, *(name for name in peers if name in args.against)]
    measured = benchmarks.serving.measured_by_workers(
        names,
        args.workers,
        rounds=args.rounds,
        seconds=args.seconds,
        connections=args.connections,
        cases=args.cases,
    )
    results = [goal for workers, cases in measured.items() for goal in goals(cases, workers)]
    if args.json:
        print(json.dumps(as_json(measured, results)))
    else:
        for workers, cases in measured.items():
            show(cases, workers)
        for goal in results:
            print(goal)
    sys.exit(0 if all(goal.met for goal in results) else 1)


if __name__ == "__main__":
    main()
