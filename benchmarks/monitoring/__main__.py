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
    given = _arguments()
    wanted = [name for name in DETECTORS if name in (OURS, EXACT, *(given.only or DETECTORS))]
    if not available():
        wanted = [name for name in wanted if "ADWIN" not in name and "Hinkley" not in name]
    print(f"{given.streams} streams of {LABELS:,} labels of each kind", flush=True)
    rows = guarantees.measure(wanted, given.streams, given.processes)
    _print_alarms(rows, wanted)
    _print_delays(rows, wanted)
    covered = list(intervals.measure(given.draws))
    _print_intervals(covered)
    flags = others.flags(given.streams)
    print("\nlabel rates flagged as different by confidence")
    for name, share in flags.items():
        print(f"  {name:32}{share:7.1%}")
    cost = others.microseconds_per_label()
    goals = _goals(rows, covered, cost)
    print()
    for goal in goals:
        print(goal)
    if given.json is not None:
        found = _json(rows, covered, flags, cost)
        given.json.write_text(json.dumps(found, indent=1, allow_nan=False) + "\n")
    sys.exit(0 if all(goal.met for goal in goals) else 1)


def _print_alarms(rows: Sequence[Row], detectors: Sequence[str]) -> None:
    by = {(one.detector, one.kind): one for one in rows}
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
    by = {(one.detector, one.kind): one for one in rows}
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
    for everywhere, what in ((True, "everywhere"), (False, "where confidences are exactly right")):
        found = verdict(rows, everywhere=everywhere)
        print(f"\nhold 5% {what}: {', '.join(found.holding) or 'none'}")
        quickest = ", ".join(f"{kind}: {name or 'nobody'}" for kind, name in found.rivals.items())
        print(
            f"  {found.detector} is no slower than the quickest other in {found.no_slower} drifts"
            f" and quicker in {found.quicker} ({quickest})"
        )


def _print_intervals(covered: Sequence[intervals.Covered]) -> None:
    print(f"\nintervals of 95%: coverage and mean width, {covered[0].draws} draws")
    print(f"{'':48}" + "".join(f"{kind:>18}" for kind in ("ece", "ece_widest", "ce")))
    lines: dict[tuple[Any, ...], list[str]] = {}
    for one in covered:
        key = (one.law, one.truth, one.labels, one.weighting)
        text = f"{one.coverage:9.1%} {one.width:7.4f}{' ' if one.met else '*'}"
        lines.setdefault(key, []).append(text)
    for (law, truth, labels, weighting), cells in lines.items():
        print(f"{law:19}{truth:12}{labels:>6} by {weighting:8}" + "".join(cells))


def _goals(rows: Sequence[Row], covered: Sequence[intervals.Covered], cost: float) -> list[Goal]:
    found = verdict(rows)
    worst = max(one.false_alarms for one in rows if one.detector == OURS and one.kind in NULLS)
    lowest = min(one.coverage for one in covered)
    drifts = len(DRIFTS)
    return [
        Goal("false alarms by 5%, most of any kind", worst / 0.05, 1.0, at_most=True),
        Goal(
            "drifts found no later than by any that holds 5% everywhere",
            found.no_slower, drifts, at_most=False, detail=f", sooner in {found.quicker}",
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
        "rows": [one.to_dict() for one in rows],
        "verdicts": verdicts,
        "intervals": [one.to_dict() for one in covered],
        "flags": flags,
        "microseconds_per_label": cost,
    }


if __name__ == "__main__":
    main()
