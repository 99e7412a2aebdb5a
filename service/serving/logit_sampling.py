"""Sample logits of served predictions for refitting, and write them to the blob store.

A file is Parquet with the columns `digest`, which links a row to its label, and `logits`.
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

from recalib.core.arrays import Floats
from recalib.core.lazy_import import LazyModule
from recalib.registry import Capture, Registry

pa = LazyModule("pyarrow")
pq = LazyModule("pyarrow.parquet")

#: Bytes of one model's logits for which a file is written, and the maximum in memory while the
#: blob store is unavailable; further rows are left out of the sample.
_FILE_BYTES, _MAX_BYTES = 8 << 20, 64 << 20
_DIGEST_BYTES = 16
#: Tolerance of prediction times: a row is captured shortly after its prediction.
_TIME_TOLERANCE_SECONDS = 1.0


@dataclass
class _Sample:
    """Captured rows of one model."""

    first_at: float
    digests: list[bytes] = field(default_factory=list)
    logits: list[NDArray[np.float32]] = field(default_factory=list)
    size: int = 0
    last_at: float = 0.0
    #: Time of the first capture; observations may be far older.
    started_at: float = field(default_factory=time.time)


def is_captured(digest: bytes, share: float) -> bool:
    """Return whether the prediction with this digest is in a random share of all.

    The digest decides, so that labels know it too. Its first half draws a label of multilabel rows.
    """
    return int.from_bytes(digest[_DIGEST_BYTES // 2 :], "little") < share * 2.0**64


class Captures:
    """Captured logits of this process, by model id. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._samples: dict[int, _Sample] = {}

    def keep(self, model: int, share: float, ids: Sequence[str | None], logits: Floats) -> None:
        """Capture a random share of the rows that have ids.

        Parameters
        ----------
        logits: valid inputs of the map, (N, K).
        """
        digests = {
            row: base64.urlsafe_b64decode(id)[-_DIGEST_BYTES:]
            for row, id in enumerate(ids)
            if id is not None
        }
        chosen = [row for row, digest in digests.items() if is_captured(digest, share)]
        if not chosen:
            return
        now = time.time()
        kept = [digests[row] for row in chosen]
        self._keep(model, kept, logits[chosen], now - _TIME_TOLERANCE_SECONDS, now)

    def keep_observed(
        self,
        model: int,
        share: float,
        digests: Sequence[bytes],
        logits: Floats,
        times: Sequence[float],
    ) -> None:
        """Capture a random share of observed rows, predicted at `times`."""
        chosen = [row for row, digest in enumerate(digests) if is_captured(digest, share)]
        if chosen:
            made_times = [times[row] for row in chosen]
            chosen_digests = [digests[row] for row in chosen]
            self._keep(model, chosen_digests, logits[chosen], min(made_times), max(made_times))

    def _keep(
        self, model: int, digests: list[bytes], logits: Floats, first_at: float, last_at: float
    ) -> None:
        rows = logits.astype(np.float32)
        with self._lock:
            sample = self._samples.get(model)
            if sample is None:
                sample = self._samples[model] = _Sample(first_at)
            if sample.size + rows.nbytes > _MAX_BYTES:
                return
            sample.digests += digests
            sample.logits.append(rows)
            sample.size += rows.nbytes
            sample.first_at = min(sample.first_at, first_at)
            sample.last_at = max(sample.last_at, last_at)

    def take(self, older_than_seconds: float) -> dict[int, _Sample]:
        """Remove and return samples that are large or old enough for a file."""
        before = time.time() - older_than_seconds
        with self._lock:
            buffers = {
                model: sample
                for model, sample in self._samples.items()
                if sample.size >= _FILE_BYTES or sample.started_at <= before
            }
            for model in buffers:
                del self._samples[model]
        return buffers

    def give_back(self, model: int, sample: _Sample) -> None:
        """Put back a sample that could not be written."""
        with self._lock:
            later = self._samples.get(model)
            if later is not None and sample.size + later.size <= _MAX_BYTES:
                sample.digests += later.digests
                sample.logits += later.logits
                sample.size += later.size
                sample.first_at = min(sample.first_at, later.first_at)
                sample.last_at = max(sample.last_at, later.last_at)
            self._samples[model] = sample


def write_captures(registry: Registry, captures: Captures, older_than_seconds: float) -> int:
    """Write a file for each sample that is due; return the number of files.

    Raises
    ------
    UnavailableError: the registry cannot be reached; nothing is lost.
    """
    buffers = captures.take(older_than_seconds)
    written = 0
    while buffers:
        model, sample = buffers.popitem()
        try:
            with registry.blobs.writer() as blob:
                blob.write(_parquet(sample))
                with registry.storing(blob) as (tx, digest):
                    rows, last_at = len(sample.digests), sample.last_at + _TIME_TOLERANCE_SECONDS
                    tx.captures.add(
                        model, Capture(digest, rows, blob.size, sample.first_at, last_at)
                    )
        except BaseException:
            for number, other in {model: sample, **buffers}.items():
                captures.give_back(number, other)
            raise
        written += 1
    return written


def _parquet(sample: _Sample) -> bytes:
    # All rows of a model have K columns.
    logits = np.concatenate(sample.logits)
    table = pa.table(
        {
            "digest": pa.array(sample.digests, pa.binary(_DIGEST_BYTES)),
            "logits": pa.FixedSizeListArray.from_arrays(
                pa.array(logits.reshape(-1)), logits.shape[1]
            ),
        }
    )
    file = io.BytesIO()
    pq.write_table(table, file, compression="zstd")
    return file.getvalue()
