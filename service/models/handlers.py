"""What can be done with models; no transport here."""

from __future__ import annotations

from collections import Counter

from recalib.errors import InputError
from recalib.registry import Model, Transaction

__all__ = ["create_model"]


def create_model(tx: Transaction, name: str, classes: int | list[str], actor: str) -> Model:
    """Register a classifier by the number of its classes, or by their labels.

    Raises
    ------
    InputError: a name that is not one, or labels that repeat.
    ConflictError: the name is taken.
    """
    if isinstance(classes, int):
        return tx.models.create(name, None, classes, actor)
    label, times = Counter(classes).most_common(1)[0]
    if times > 1:
        raise InputError(
            "classes", found=f"label {label!r} {times} times", accepted="labels that differ"
        )
    return tx.models.create(name, tuple(classes), len(classes), actor)
