"""Calibrating one batch; no transport here."""

from __future__ import annotations

from typing import Literal

from recalib.arrays import Floats
from recalib.errors import TooLargeError
from service.predict.loaded import Loaded

__all__ = ["calibrate"]


def calibrate(
    loaded: Loaded,
    values: Floats,
    input: Literal["logits", "probabilities"],
    most_rows: int,
) -> Floats:
    """Return calibrated probabilities, float32 (N, K).

    Raises
    ------
    TooLargeError: more than `most_rows` rows.
    InputError: values that are not `input`, or K other than the model's.
    """
    if values.ndim == 2 and len(values) > most_rows:
        raise TooLargeError(input, found=f"{len(values)} rows", accepted=f"at most {most_rows}")
    return loaded.run(loaded.calibrator.logits_from(values, input))
