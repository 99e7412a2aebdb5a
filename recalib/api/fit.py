"""The public function `fit`: the fit of `recalib.fitting`, with the warnings of its card shown."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

from recalib.calibrator import Calibrator
from recalib.fitting.fit import fit as _fit
from recalib.fitting.fit_card import show_warnings

P = ParamSpec("P")


def _show_warnings(function: Callable[P, Calibrator]) -> Callable[P, Calibrator]:
    @wraps(function)
    def fit(*arguments: P.args, **options: P.kwargs) -> Calibrator:
        calibrator = function(*arguments, **options)
        show_warnings(calibrator.card, stacklevel=3)
        return calibrator

    return fit


fit = _show_warnings(_fit)
