"""What can be said and asked about the watch over a model; no transport here."""

from __future__ import annotations

from recalib.registry import Transaction
from service.models.schemas import Model
from service.monitoring.schemas import MonitoringSettings

__all__ = ["set_monitoring"]


def set_monitoring(tx: Transaction, model: str, settings: MonitoringSettings) -> Model:
    """Say what of a model is watched, and how, from now on.

    Server processes follow within seconds. Another `alpha` or `tolerance`, or a segment more,
    begins the test anew, with what the tests before it have left of `alpha`.

    Raises
    ------
    NotFoundError: no such model.
    InputError: segments that would change their numbers, which ids carry.
    """
    return Model.of(tx.models.watch(model, settings.watching()))
