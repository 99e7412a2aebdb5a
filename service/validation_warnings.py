"""Warnings about a version that cannot stay fresh under the monitoring settings of its model."""

from __future__ import annotations

from contextlib import suppress

import msgspec

from recalib.core.card import Card
from recalib.core.decoding import convert
from recalib.fitting.validation_error import validation_warnings
from recalib.registry import Model, Transaction


def warnings_of(tx: Transaction, model: Model, version: int | None) -> list[str]:
    """Return the warnings about a version; about the settings alone if it is None."""
    if model.is_multilabel:  # its card has no calibration error with an interval
        return []
    card = None
    if version is not None:
        # A card that cannot be read must not prevent a promotion or new settings.
        with suppress(msgspec.ValidationError):
            card = convert(tx.calibrators.get(model, version).card, Card)
    monitoring = model.monitoring
    return validation_warnings(
        card,
        f"version {version}",
        tolerance=monitoring.tolerance,
        objective=monitoring.objective,
    )
