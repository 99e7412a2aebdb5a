"""Run all measurements, print tables, and check the goals."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.monitoring import guarantees, intervals, others
from benchmarks.monitoring.detectors import DETECTORS, EXACT, OURS, available
from benchmarks.monitoring.guarantees import Row, verdict
from benchmarks.monitoring.streams import BENT, DRIFTS, LABELS, NULLS, ONSET
from benchmarks.timing import Goal


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=200, help="of each kind")
    parser.add_argument("--draws", type=int, default=300, help="of each interval")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", action="append", choices=list(DETECTORS), help="repeatable")
    parser.add_argument("--json", type=Path, help="write everything here too")
    return parser.parse_args()


def main() -> None:
    args = _arguments()
    names = [name for name in DETECTORS if name in (OURS, EXACT, *(args.only or DETECTORS))]
    if not available():
        names = [name for name in names if "ADWIN" not in name and "Hinkley" not in name]
    print(f"{args.streams} streams of {LABELS:,} labels of each kind", flush=True)
    rows = guarantees.measure(names, args.streams, args.processes)
    _print_alarms(rows, names)
    _print_delays(rows, names)
    covered = list(intervals.measure(args.draws))
    _print_intervals(covered)
    flags = others.flags(args.streams)
    print("\nlabel rates flagged as different by confidence")
    for name, share in flags.items():
        print(f"  {name:32}{share:7.1%}")
    cost = others.microseconds_per_label()
    goals = _goals(rows, covered, cost)
    print()
    for goal in goals:
        print(goal)
    if args.json is not None:
        results = _json(rows, covered, flags, cost)
        args.json.write_text(json.dumps(results, indent=1, allow_nan=False) + "\n")
    sys.exit(0 if all(goal.met for goal in goals) else 1)


def _print_alarms(rows: Sequence[Row], detectors: Sequence[str]) -> None:
    by = {(row.detector, row.kind): row for row in rows}
    print("\nfalse alarms, % of streams (* more than 5%)")
    kinds = [*NULLS, *BENT]
    width = 26
    print(
        " " * width
        + "".join(f"{'(' + str(number) + ')':>9}" for number in range(1, len(kinds) + 1))
    )
    for name in detectors:
        cells = []
        for kind in kinds:
            row = by[name, kind]
            cells.append(f"{row.false_alarms:8.1%}{' ' if row.holds else '*'}")
        print(f"{name:{width}}" + "".join(cells))
    print("; ".join(f"({number}) {kind}" for number, kind in enumerate(kinds, start=1)))


def _print_delays(rows: Sequence[Row], detectors: Sequence[str]) -> None:
    by = {(row.detector, row.kind): row for row in rows}
    print(f"\nmedian labels from the drift (label {ONSET:,}) to the alarm, and % of streams found")
    print(" " * 26 + "".join(f"{kind:>20}" for kind in DRIFTS))
    for name in detectors:
        cells = []
        for kind in DRIFTS:
            row = by[name, kind]
            delay = "never" if row.delay is None else f"{row.delay:,.0f}"
            power = "" if row.power is None else f"{row.power:7.0%}"
            cells.append(f"{delay:>13}{power:>7}")
        print(f"{name:26}" + "".join(cells))
    for everywhere, scope in ((True, "everywhere"), (False, "where confidences are exactly right")):
        comparison = verdict(rows, everywhere=everywhere)
        print(f"\nhold 5% {scope}: {', '.join(comparison.holding) or 'none'}")
        quickest = ", ".join(
            f"{kind}: {name or 'none'}" for kind, name in comparison.rivals.items()
        )
        print(
            f"  {comparison.detector} is no slower than the quickest other"
            f" in {comparison.no_slower} drifts and quicker in {comparison.quicker} ({quickest})"
        )


def _print_intervals(covered: Sequence[intervals.Covered]) -> None:
    print(f"\nintervals of 95%: coverage and mean width, {covered[0].draws} draws")
    print(f"{'':48}" + "".join(f"{kind:>18}" for kind in ("ece", "ece_widest", "ce")))
    lines: dict[tuple[Any, ...], list[str]] = {}
    for interval in covered:
        key = (interval.law, interval.truth, interval.labels, interval.weighting)
        text = f"{interval.coverage:9.1%} {interval.width:7.4f}{' ' if interval.met else '*'}"
        lines.setdefault(key, []).append(text)
    for (law, truth, labels, weighting), cells in lines.items():
        print(f"{law:19}{truth:12}{labels:>6} by {weighting:8}" + "".join(cells))


def _goals(rows: Sequence[Row], covered: Sequence[intervals.Covered], cost: float) -> list[Goal]:
    comparison = verdict(rows)
    worst = max(row.false_alarms for row in rows if row.detector == OURS and row.kind in NULLS)
    lowest = min(interval.coverage for interval in covered)
    drifts = len(DRIFTS)
    return [
        Goal("false alarms by 5%, most of any kind", worst / 0.05, 1.0, at_most=True),
        Goal(
            "drifts found no later than by any that holds 5% everywhere",
            comparison.no_slower, drifts, at_most=False, detail=f", sooner in {comparison.quicker}",
        ),
        Goal("lowest coverage of any interval by 93%", lowest / 0.93, 0.95, at_most=False),
        Goal("microseconds of CPU a label", cost, 3.0, at_most=True),
    ]  # fmt: skip


def _json(
    rows: Sequence[Row],
    covered: Sequence[intervals.Covered],
    flags: dict[str, float],
    cost: float,
) -> dict[str, Any]:
    verdicts = {
        "everywhere": verdict(rows).to_dict(),
        "exactly_right": verdict(rows, everywhere=False).to_dict(),
    }
    return {
        "alpha": 0.05,
        "rows": [row.to_dict() for row in rows],
        "verdicts": verdicts,
        "intervals": [interval.to_dict() for interval in covered],
        "flags": flags,
        "microseconds_per_label": cost,
    }


if __name__ == "__main__":
    main()
