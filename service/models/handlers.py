"""What can be done with models; no transport here."""

from __future__ import annotations

from collections import Counter

from recalib.errors import InputError
from recalib.registry import Transaction
from service.idempotency import once
from service.models.schemas import Model, ModelCreate, ModelPage
from service.pagination import decode_cursor, next_cursor

__all__ = ["create_model", "get_model", "list_models"]


def create_model(tx: Transaction, wanted: ModelCreate, key: str | None, actor: str) -> Model:
    """Register a classifier by the number of its classes, or by their labels.

    Raises
    ------
    InputError: a name that is not one, or labels that repeat.
    ConflictError: the name is taken, or `key` came with another request.
    """

    def act() -> Model:
        model = _created(tx, wanted, actor)
        tx.audit.record(actor, "create_model", model.name, model.name, f"{model.classes} classes")
        return model

    return once(tx, key, "create_model", wanted, 201, Model, act)


def list_models(tx: Transaction, limit: int, cursor: str | None) -> ModelPage:
    """Return a page of classifiers, by name."""
    found = tx.models.page(decode_cursor(cursor), limit + 1)
    more = next_cursor(found, limit, lambda model: model.name)
    return ModelPage(items=[Model.of(one) for one in found[:limit]], next_cursor=more)


def get_model(tx: Transaction, name: str) -> Model:
    """Return one classifier, or raise `NotFoundError`."""
    return Model.of(tx.models.get(name))


def _created(tx: Transaction, wanted: ModelCreate, actor: str) -> Model:
    classes, monitoring = wanted.classes, wanted.monitoring.monitoring()
    if isinstance(classes, int):
        return Model.of(tx.models.create(wanted.name, None, classes, actor, monitoring))
    label, times = Counter(classes).most_common(1)[0]
    if times > 1:
        raise InputError(
            "classes", found=f"label {label!r} {times} times", accepted="labels that differ"
        )
    labels = tuple(classes)
    return Model.of(tx.models.create(wanted.name, labels, len(labels), actor, monitoring))
