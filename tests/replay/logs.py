"""Logs to replay: predictions of a binary classifier whose labels come an hour later or so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

__all__ = ["START", "log", "too_sure", "write"]

Values = NDArray[np.float64]

#: Some day in 2023.
START = 1.7e9


def too_sure(p: Values) -> Values:
    return 1 / (1 + ((1 - p) / p) ** 0.6)


def log(
    rows: int = 12_000,
    *,
    drift: float | None = 0.5,
    labelled: float = 0.8,
    seed: int = 0,
    days: float = 30,
) -> dict[str, Any]:
    """Return columns of a log whose classifier is too sure from this share of the time on."""
    rng = np.random.default_rng(seed)
    time = np.sort(rng.random(rows)) * days * 86_400
    p = 1 / (1 + np.exp(-rng.normal(1.5, 1.5, rows)))
    p = np.maximum(p, 1 - p)
    truth = p.copy()
    if drift is not None:
        after = time >= drift * days * 86_400
        truth[after] = too_sure(p[after])
    right, has = rng.random(rows) < truth, rng.random(rows) < labelled
    came = START + time + rng.exponential(3_600, rows)
    return {
        "time": START + time,
        "confidence": p,
        "correct": pa.array(np.where(has, right, None).tolist(), pa.bool_()),
        "label_time": pa.array(np.where(has, came, None).tolist(), pa.float64()),
    }


def write(path: Path, columns: dict[str, Any], **options: Any) -> Path:
    """Write a log."""
    pq.write_table(pa.table(columns), path, **options)
    return path
