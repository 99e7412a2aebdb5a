"""One process of the arena: fits methods to pairs, and writes a line for each.

`python -m benchmarks.arena.worker PAIRS RESULTS METHOD ...` skips what RESULTS already has. Peers
run in a process of their own, with their libraries at the end of the import path.
"""

from __future__ import annotations

import json
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.arena.calibrators import PEERS, method
from benchmarks.arena.pairs import PACKAGES
from benchmarks.peers import install

#: Seconds of processor time that a fit and its predictions may take.
_LIMIT = 120

Rows = NDArray[np.float64]


def nll(p: Rows, y: NDArray[np.int64]) -> float:
    """Return the mean negative log-likelihood in nats, clipped and normalised as in CalArena."""
    with np.errstate(divide="ignore"):
        z = np.maximum(np.log(p), np.log(np.finfo(np.float32).tiny))
    return float((np.log(np.exp(z).sum(axis=1)) - z[np.arange(len(y)), y]).mean())


def score(name: str, arrays: dict[str, Any]) -> dict[str, Any]:
    """Return the losses of a method on the test rows of a pair, or the error that it raised."""
    z_cal, y_cal, z_test, y = (arrays[key] for key in ("z_cal", "y_cal", "z_test", "y_test"))
    predict = method(name, z_cal.shape[1])
    if predict is None:
        return {}
    started = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            p = _limited(lambda: predict(z_cal, y_cal, z_test))
        if not (np.isfinite(p).all() and p.min() >= 0):
            raise ValueError("predictions that are no probabilities")
    except Exception as error:  # a library may raise any type
        return {"error": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
    return {
        "nll": nll(p, y),
        "brier": float(((p - np.eye(p.shape[1])[y]) ** 2).sum(axis=1).mean()),
        "accuracy": float((p.argmax(axis=1) == y).mean()),
        "seconds": round(time.process_time() - started, 3),
        "rows": len(y_cal),
        "classes": z_cal.shape[1],
    }


def _limited(act: Callable[[], Rows]) -> Rows:
    """Return the result, or raise `TimeoutError` at the limit of processor time."""

    def stop(*_: Any) -> None:
        raise TimeoutError(f"over {_LIMIT} s of processor time")

    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, _LIMIT)
    try:
        return act()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def read(results: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a file of results; the last may be cut off."""
    for line in results.read_text().splitlines() if results.exists() else ():
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            continue


def run(pairs: list[Path], results: Path, methods: list[str]) -> None:
    """Append the missing results of the methods on the pairs."""
    present = list(read(results))
    # A line that was cut off is replaced.
    results.write_text(_text(present))
    done = {(line["pair"], line["method"]) for line in present}
    for count, path in enumerate(pairs):
        missing = [name for name in methods if (path.stem, name) not in done]
        if not missing:
            continue
        print(f"{results.stem} {count + 1} of {len(pairs)}: {path.stem}", flush=True)
        with np.load(path) as arrays:
            loaded = dict(arrays)
        lines = [{"pair": path.stem, "method": name} | score(name, loaded) for name in missing]
        with results.open("a") as file:
            file.write(_text(lines))


def _text(lines: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(line) + "\n" for line in lines)


def main() -> None:
    listed, results, *methods = sys.argv[1:]
    if set(methods) & set(PEERS):
        install(PACKAGES)
    run([Path(line) for line in Path(listed).read_text().split()], Path(results), methods)


if __name__ == "__main__":
    main()
