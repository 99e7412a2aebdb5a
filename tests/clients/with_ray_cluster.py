"""Compute on `ray:local:2`; write the results as JSON, then compute until Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import recalib.scale
from recalib.errors import InputError, UnavailableError
from recalib.executors import Workers, open_workers
from recalib.scale import row_sample
from recalib.scale import rows as scale_rows


def _kill_first(marker: str) -> int:
    """Kill this process the first time."""
    if not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return 7


def _kill_always(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _pid(_: int) -> int:
    return os.getpid()


def _wait(path: str) -> None:
    """Wait for a file, and touch another when interrupted."""
    try:
        while not Path(path).exists():
            time.sleep(0.05)
    except BaseException:
        Path(f"{path}.interrupted").touch()
        raise


def error_of(results: Iterator[Any]) -> str:
    try:
        list(results)
    except (InputError, UnavailableError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def cluster_results(workers: Workers, folder: Path) -> dict[str, Any]:
    """Fit, evaluate, lose workers, fail and cancel."""
    row_sample._SAMPLE_ROWS = 100  # fewer than there are rows
    data = folder / "parts"
    moments, killed = scale_rows.FragmentRows.moments, []

    def kill_one(self: Any, scale: float, beta: float) -> Any:
        if not killed:
            killed.append(next(iter(workers.map(_pid, [0]))))
            os.kill(killed[0], signal.SIGKILL)
        return moments(self, scale, beta)

    scale_rows.FragmentRows.moments = kill_one  # type: ignore[method-assign]
    calibrator = recalib.scale.fit(data, "vector", cluster=workers)
    stages: list[int] = []
    evaluation = recalib.scale.evaluate(
        data, cluster=workers, progress=lambda done, total: stages.append(done)
    )
    waiting = workers.map(_wait, [str(data / "0.npz"), *[str(folder / "absent")] * 5])
    next(waiting)
    waiting.close()  # type: ignore[attr-defined]
    return {
        "count": workers.count,
        "killed": len(killed),
        "parameters": {name: value.tolist() for name, value in calibrator.parameters.items()},
        "metrics": {name: estimate.value for name, estimate in evaluation.finish().items()},
        "progress": stages,
        "repeated": list(workers.map(_kill_first, [str(folder / "marker")] * 3)),
        "ended": error_of(workers.map(_kill_always, [0])),
        "error": error_of(workers.map(recalib.scale.evaluate, [str(folder / "invalid.npz")])),
        "after_cancel": list(workers.map(abs, [-1, -2])),
    }


def main() -> None:
    folder = Path(sys.argv[1])
    with open_workers("ray:local:2") as workers:
        results = cluster_results(workers, folder)
        (folder / "unfinished").write_text(json.dumps(results))
        (folder / "unfinished").rename(folder / "results.json")
        while True:
            recalib.scale.evaluate(folder / "parts", cluster=workers)


if __name__ == "__main__":
    main()
