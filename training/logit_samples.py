"""Predictions whose logits were kept and whose labels have come: what can be fitted on anew."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from recalib.errors import CorruptError, NotFoundError
from recalib.registry import Capture, Model, Registry

__all__ = ["MOST_ROWS", "Captured", "captured"]

log = logging.getLogger(__name__)

#: Rows read at a time.
MOST_ROWS = 200_000


@dataclass(frozen=True, eq=False)
class Captured:
    """Rows in the order of their predictions, made from some time until before `end`."""

    #: What the map was given, (N, K).
    logits: NDArray[np.float32]
    #: True classes (N,).
    labels: NDArray[np.int64]
    end: float
    #: Logits that were kept, labelled or not.
    kept: int

    def __len__(self) -> int:
        return len(self.labels)


def captured(
    registry: Registry,
    model: Model,
    version: int,
    start: float,
    end: float,
    *,
    newest: bool = False,
) -> Captured:
    """Return the labelled ones among predictions of a version from `start` until before `end`.

    Labels count that came within the model's maturity. Where there are very many rows, the oldest
    files of about `MOST_ROWS` are read, up to an earlier `end`, which is after `start`; or the
    newest, from a later start.
    """
    with registry.reading() as tx:
        files = tx.captures.between(model, start, end)
        chosen = _newest(files) if newest else _oldest(files)
        if len(chosen) < len(files):
            if newest:
                start = max(start, min(one.first_at for one in chosen))
            else:
                end = min(end, files[len(chosen)].first_at)
        maturity = model.monitoring.maturity_seconds
        known = tx.labels.by_digest(model, version, start, end, maturity)
    found: list[tuple[float, int, Any]] = []
    kept = 0
    for one in chosen:
        table = _table(registry, one)
        if table is None:
            continue
        logits = table["logits"].combine_chunks()
        rows = logits.flatten().to_numpy().reshape(len(table), -1)
        kept += len(table)
        for digest, row in zip(table["digest"].to_pylist(), rows, strict=True):
            if digest in known:
                made_at, label = known[digest]
                # A copy: the file's other rows need not stay in memory.
                found.append((made_at, label, row.copy()))
    found.sort(key=lambda one: one[0])
    logits = np.stack([one[2] for one in found]) if found else np.zeros((0, model.classes), "f4")
    return Captured(logits, np.array([one[1] for one in found], np.int64), end, kept)


def _table(registry: Registry, one: Capture) -> Any:
    """Return what a file holds, or None where it is damaged or gone: the rest is a sample too."""
    try:
        registry.blobs.verify(one.digest)
        with registry.blobs.open(one.digest) as file:
            return pq.read_table(file)
    except (CorruptError, NotFoundError) as error:
        fields = {"action": "capture_left_out", "digest": one.digest}
        log.warning("Kept logits are left out: %s", error, extra=fields)
        return None


def _newest(files: list[Capture]) -> list[Capture]:
    """Return the files that begin last, of `MOST_ROWS` in all, one at least."""
    within = np.cumsum([one.rows for one in reversed(files)]) <= MOST_ROWS
    return files[::-1][: max(int(np.count_nonzero(within)), 1)]


def _oldest(files: list[Capture]) -> list[Capture]:
    """Return the files that begin first, of `MOST_ROWS` in all, but the first of them whole.

    With all that begin before it ends: files of one process overlap by a moment, and those of
    several wholly, and whoever goes on from where the next begins would else come nowhere.
    """
    rows = 0
    for number, one in enumerate(files):
        rows += one.rows
        if rows > MOST_ROWS and one.first_at > files[0].last_at:
            return files[:number]
    return files
