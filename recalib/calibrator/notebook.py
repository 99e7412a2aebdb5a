"""What a notebook shows of a calibrator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from recalib.core.html_table import html_table

if TYPE_CHECKING:
    from recalib.calibrator.calibrator import Calibrator

#: Numbers of a parameter that are shown.
_MAX_NUMBERS = 10


def calibrator_table(calibrator: Calibrator) -> str:
    """Return the table of a calibrator in HTML: its card and its parameters."""
    card, parameters = calibrator.card, calibrator.parameters
    rows = {
        "objective": card.objective,
        "classes": f"{card.classes}",
        "input": card.input,
        "fitted on": f"{card.data.rows} rows, {card.created_at}",
        **{f"parameter {name}": _summary(value) for name, value in parameters.items()},
    }
    notes = (*card.fit.bounds_reached, *card.fit.warnings)
    return html_table(f"Calibrator {card.map}: {calibrator.map.summary}", (), rows.items(), notes)


def _summary(values: NDArray[np.float64]) -> str:
    """Return the numbers of a small array, or the shape of a large one."""
    if values.size > _MAX_NUMBERS:
        return f"array of shape {values.shape}"
    return np.array2string(values, precision=4)
