"""`make bench`: run every benchmark and print which goals are met."""

from __future__ import annotations

import sys

from benchmarks import apply, calls, metrics, serving


def main() -> None:
    goals = []
    for module in (apply, calls, metrics, serving):
        for goal in module.run():
            print(goal, flush=True)
            goals.append(goal)
    missed = [goal for goal in goals if not goal.met]
    print(f"{len(goals) - len(missed)} met, {len(missed)} missed")
    sys.exit(1 if missed else 0)


main()
