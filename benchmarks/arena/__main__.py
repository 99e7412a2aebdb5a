"""`python -m benchmarks.arena`: calibration methods against each other, by CalArena's protocol.

Five classifiers are trained on each data set; every method gets the same calibration rows. Two
tables, for two classes and for several, have the win rate by log loss with its 95% interval, PHI
and harm, see `benchmarks.arena.scores`. Then come the regret, and the mean rank on networks. The
results are kept, so a run that is interrupted continues. Peers are installed into a folder of their
own.

CalArena: Berta, Holzmüller, Bach & Jordan, A Large-Scale Post-Hoc Calibration Benchmark,
arXiv:2605.30188. Its own data take 1.7 GB; `examples/calarena` runs on them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.arena.calibrators import BASE, OURS, PEERS
from benchmarks.arena.pairs import chosen
from benchmarks.arena.scores import losses, ranks, regret, scores
from benchmarks.arena.worker import read

_RESULTS = Path(__file__).parents[1] / "results" / "arena"
_QUICK = 8
_POLICIES = ("auto", "auto, keep")
#: Bounds of the calibration rows of the table of regret.
_SIZES = (150, 500, 1_000, 10_000)


def main() -> None:
    arguments = _parser().parse_args()
    folder: Path = arguments.folder
    methods = list(dict.fromkeys([BASE, *(arguments.methods or [*OURS, *PEERS])]))
    if arguments.fresh:
        (folder / "ours.jsonl").unlink(missing_ok=True)
    step = _QUICK if arguments.quick else 1
    _process("benchmarks.arena.pairs", folder / "pairs", str(step))
    pairs = [path for path in sorted((folder / "pairs").glob("*.npz")) if chosen(path.stem, step)]
    if not arguments.quick:
        _process("benchmarks.arena.networks", folder / "networks")
        pairs += sorted((folder / "networks").glob("*.npz"))
    (folder / "pairs.txt").write_text("\n".join(map(str, pairs)))
    for file, names in (("ours.jsonl", OURS), ("peers.jsonl", PEERS)):
        of = [name for name in methods if name in names]
        if of:
            _process("benchmarks.arena.worker", folder / "pairs.txt", folder / file, *of)
    report(folder, {path.stem for path in pairs}, methods)


def report(folder: Path, pairs: set[str], methods: Sequence[str]) -> None:
    """Print the tables of the results, and write them to `arena.json`."""
    lines = [
        line
        for file in ("ours.jsonl", "peers.jsonl")
        for line in read(folder / file)
        if line["pair"] in pairs and line["method"] in methods
    ]
    networks = [line for line in lines if "__network__" in line["pair"]]
    sets = [line for line in lines if "__network__" not in line["pair"]]
    tables: dict[str, Any] = {}
    for title, several in (("two classes", False), ("several classes", True)):
        table = losses(sets, several)
        if not table.pairs:
            continue
        print(f"\n{title}: {len(table.pairs)} pairs")
        tables[title] = [asdict(score) for score in scores(table, np.random.default_rng(0))]
        _print_scores(tables[title])
    tables["regret"] = list(_regrets(sets, networks))
    tables["errors"] = [line for line in lines if "error" in line]
    print(f"\n{len(tables['errors'])} fits failed")
    (folder / "arena.json").write_text(json.dumps(tables, indent=1))


def _print_scores(table: list[dict[str, Any]]) -> None:
    print(f"{'':19s}win rate  95%          of peers  PHI: median   mean    harm")
    for row in table:
        low, high = row["win_rate_interval"]
        print(
            f"{row['method']:19s}   {row['win_rate']:.3f}  {low:.3f} to {high:.3f}"
            f"   {row['peers_beaten']:.3f}       {row['phi_median']:6.3f}  {row['phi_mean']:6.3f}"
            f"   {row['harm']:.3f}"
        )


def _regrets(sets: list[Any], networks: list[Any]) -> Iterator[dict[str, Any]]:
    """Print and yield the regret of each policy by rows, and its mean rank on networks."""
    tables = [losses(sets, several) for several in (False, True)] + [losses(networks, True)]
    titles = ("two classes", "several classes", "networks")
    print(f"\n{'regret':22s}{'':18s}{'N':>14s}{'pairs':>7s}{'mean':>9s}  95%")
    for title, table in zip(titles, tables, strict=True):
        members = [name for name in table.methods if name in OURS and name not in _POLICIES]
        for policy in set(_POLICIES) & set(table.methods):
            for low, high in pairwise(_SIZES):
                part = table.with_rows(low, high)
                if not part.pairs:
                    continue
                mean, interval = regret(part, policy, members, np.random.default_rng(0))
                row = {
                    "kind": title,
                    "policy": policy,
                    "rows": [low, high],
                    "pairs": len(part.pairs),
                }
                print(
                    f"{title:22s}{policy:18s}{low:>7,}–{high:<6,}{len(part.pairs):7d}{mean:+9.2%}"
                    f"  {interval[0]:+.2%} to {interval[1]:+.2%}"
                )
                yield row | {"regret": mean, "interval": interval}
    for name, rank in ranks(tables[2]):
        print(f"{'mean rank, networks':22s}{name:18s}{rank:7.2f}")
        yield {"kind": "networks", "policy": name, "rank": rank}


def _process(module: str, *arguments: Path | str) -> None:
    """Run a module in a process of its own, on one thread."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)], check=True, env=os.environ | threads
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.arena",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help=f"every {_QUICK}th pair, no networks")
    parser.add_argument("--methods", nargs="+", metavar="NAME", choices=[*OURS, *PEERS])
    parser.add_argument("--fresh", action="store_true", help="fit our maps again")
    parser.add_argument("--folder", type=Path, default=_RESULTS, help="results, and trained pairs")
    return parser


if __name__ == "__main__":
    main()
