"""Logits that a model wants kept, until they are in the blob store: a sample, to fit anew on.

A file is Parquet with the columns `digest`, by which each row's label is found, and `logits`.
"""

from __future__ import annotations

import base64
import io
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from recalib.arrays import Floats
from recalib.lazy_import import LazyModule
from recalib.registry import Capture, Registry

__all__ = ["Captures", "write_captures"]

pa = LazyModule("pyarrow")
pq = LazyModule("pyarrow.parquet")

#: Bytes of one model's logits that are worth a file, and that are kept while there is no way to
#: write one; what comes then is left out of the sample.
_ENOUGH, _MOST = 8 << 20, 64 << 20
_DIGEST_BYTES = 16
#: A prediction is kept a moment after it was made.
_MOMENT = 1.0


@dataclass
class _Kept:
    """Of one model."""

    first_at: float
    digests: list[bytes] = field(default_factory=list)
    logits: list[NDArray[np.float32]] = field(default_factory=list)
    size: int = 0
    last_at: float = 0.0
    #: When the first was kept; predictions made elsewhere may be far older.
    begun_at: float = field(default_factory=time.time)


class Captures:
    """What this process keeps, by models' numbers; safe to use from threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[int, _Kept] = {}
        self._random = np.random.default_rng()

    def keep(self, model: int, share: float, ids: Sequence[str | None], logits: Floats) -> None:
        """Keep a share of the rows that have ids, drawn at random.

        Parameters
        ----------
        logits: what the map was given, checked, (N, K).
        """
        chosen = [row for row in self._drawn(len(ids), share) if ids[row] is not None]
        if not chosen:
            return
        digests = [base64.urlsafe_b64decode(str(ids[row]))[-_DIGEST_BYTES:] for row in chosen]
        now = time.time()
        self._keep(model, digests, logits[chosen], now - _MOMENT, now)

    def keep_observed(
        self,
        model: int,
        share: float,
        digests: Sequence[bytes],
        logits: Floats,
        times: Sequence[float],
    ) -> None:
        """Keep a share of rows that were predicted elsewhere, at `times`, drawn at random."""
        chosen = self._drawn(len(digests), share)
        if chosen:
            made = [times[row] for row in chosen]
            own = [digests[row] for row in chosen]
            self._keep(model, own, logits[chosen], min(made), max(made))

    def _drawn(self, rows: int, share: float) -> list[int]:
        drawn: list[int] = np.flatnonzero(self._random.random(rows) < share).tolist()
        return drawn

    def _keep(
        self, model: int, digests: list[bytes], logits: Floats, first_at: float, last_at: float
    ) -> None:
        rows = logits.astype(np.float32)
        with self._lock:
            kept = self._kept.get(model)
            if kept is None:
                kept = self._kept[model] = _Kept(first_at)
            if kept.size + rows.nbytes > _MOST:
                return
            kept.digests += digests
            kept.logits.append(rows)
            kept.size += rows.nbytes
            kept.first_at = min(kept.first_at, first_at)
            kept.last_at = max(kept.last_at, last_at)

    def take(self, older_than_seconds: float) -> dict[int, _Kept]:
        """Return what is worth a file: much, or what has waited for so long."""
        before = time.time() - older_than_seconds
        with self._lock:
            taken = {
                model: kept
                for model, kept in self._kept.items()
                if kept.size >= _ENOUGH or kept.begun_at <= before
            }
            for model in taken:
                del self._kept[model]
        return taken

    def give_back(self, model: int, kept: _Kept) -> None:
        """Keep on keeping what could not be written."""
        with self._lock:
            later = self._kept.get(model)
            if later is not None and kept.size + later.size <= _MOST:
                kept.digests += later.digests
                kept.logits += later.logits
                kept.size += later.size
                kept.first_at = min(kept.first_at, later.first_at)
                kept.last_at = max(kept.last_at, later.last_at)
            self._kept[model] = kept


def write_captures(registry: Registry, captures: Captures, older_than_seconds: float) -> int:
    """Write files of what has been kept; return how many.

    A file whose row in the database cannot be written stays in the blob store unnamed.

    Raises
    ------
    UnavailableError: the registry cannot be reached; nothing is lost.
    """
    taken = captures.take(older_than_seconds)
    written = 0
    while taken:
        model, kept = taken.popitem()
        try:
            with registry.blobs.writer() as blob:
                blob.write(_parquet(kept))
                digest = blob.commit()
            with registry.transaction() as tx:
                rows, size = len(kept.digests), blob.size
                tx.captures.add(
                    model, Capture(digest, rows, size, kept.first_at, kept.last_at + _MOMENT)
                )
        except BaseException:
            for number, one in {model: kept, **taken}.items():
                captures.give_back(number, one)
            raise
        written += 1
    return written


def _parquet(kept: _Kept) -> bytes:
    # Of one width: a model has one number of classes.
    logits = np.concatenate(kept.logits)
    table = pa.table(
        {
            "digest": pa.array(kept.digests, pa.binary(_DIGEST_BYTES)),
            "logits": pa.FixedSizeListArray.from_arrays(
                pa.array(logits.reshape(-1)), logits.shape[1]
            ),
        }
    )
    file = io.BytesIO()
    pq.write_table(table, file, compression="zstd")
    return file.getvalue()
