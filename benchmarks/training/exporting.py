"""Two networks' logits as data files for `examples/`, small enough to be committed."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from benchmarks.training.running import Budget, Finished
from recalib.files import write_atomically

#: Objectives, and what their files are called.
EXPORTED = {"CE": "cross-entropy", "FLSD-53": "focal"}


def export(folder: Path, finished: Finished, budget: Budget) -> None:
    """Write validation and test logits (float16) and labels (uint8), if this run is one of those.

    float16 keeps three digits of a logit, which moves no metric in the digits that are shown.
    """
    name = EXPORTED.get(finished.story["objective"])
    if name is None or not finished.arrays:
        return
    for split in ("validation", "test"):
        buffer = io.BytesIO()
        np.savez_compressed(
            buffer,
            logits=finished.arrays[f"{split}_logits"].astype(np.float16),
            labels=finished.arrays[f"{split}_labels"].astype(np.uint8),
        )
        write_atomically(folder / f"cifar10-{budget.model}-{name}-{split}.npz", buffer.getvalue())
