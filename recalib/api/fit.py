"""The public function `fit`: the fit of `recalib.fitting`, with the warnings of its card shown."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

from recalib.calibrator import Calibrator
from recalib.errors import RecalibWarning
from recalib.fitting.fit import fit as _fit

P = ParamSpec("P")


def _show_warnings(function: Callable[P, Calibrator]) -> Callable[P, Calibrator]:
    @wraps(function)
    def fit(*arguments: P.args, **options: P.kwargs) -> Calibrator:
        calibrator = function(*arguments, **options)
        summary = calibrator.card.fit
        for message in (*summary.bounds_reached, *summary.warnings):
            warnings.warn(message, RecalibWarning, stacklevel=2)
        return calibrator

    return fit


fit = _show_warnings(_fit)
