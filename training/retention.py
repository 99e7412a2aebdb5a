"""Retention of a model: delete data sets, versions and labels that are older than its settings."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from recalib.errors import ConflictError, NotFoundError
from recalib.registry import Model, Registry, RetentionSettings, Transaction

log = logging.getLogger(__name__)

#: The actor in the audit trail.
_ACTOR = "retention"


def apply_retention(registry: Registry, model: Model) -> None:
    """Delete what is older than the model's retention settings; what is in use waits."""
    with registry.reading() as tx:
        datasets, versions = _old_datasets(tx, model), _old_versions(tx, model)
        keeps_labels = _settings(tx, model).label_seconds is None
    # Each deletion checks again: meanwhile the settings may have changed, the version may have been
    # promoted, and the name may have been given to other data.
    for name in datasets:
        with _deletion(registry, model) as tx:
            tx.models.hold(model, exclusively=True)
            if name in _old_datasets(tx, model):
                tx.deletions.dataset(model, name, _ACTOR)
    for version in versions:
        with _deletion(registry, model) as tx:
            tx.models.hold(model, exclusively=True)
            if version in _old_versions(tx, model):
                tx.deletions.calibrator(model, version, _ACTOR)
    deleted = 0 if keeps_labels else 1
    while deleted:  # short transactions: in SQLite, all other writers wait
        deleted = 0
        with _deletion(registry, model) as tx:
            seconds = _settings(tx, model).label_seconds
            if seconds is not None:
                deleted = tx.labels.purge_model(model, seconds)


def _settings(tx: Transaction, model: Model) -> RetentionSettings:
    """Return the settings of now: `model` may have been read minutes ago."""
    return tx.models.get(model.name).retention


def _old_datasets(tx: Transaction, model: Model) -> list[str]:
    seconds = _settings(tx, model).dataset_seconds
    return [] if seconds is None else tx.datasets.names_before(model, tx.clock() - seconds)


def _old_versions(tx: Transaction, model: Model) -> list[int]:
    seconds = _settings(tx, model).version_seconds
    return (
        [] if seconds is None else tx.calibrators.unpromoted_versions(model, tx.clock() - seconds)
    )


@contextmanager
def _deletion(registry: Registry, model: Model) -> Iterator[Transaction]:
    """Open a transaction; what was deleted meanwhile, or is in use, is no error."""
    try:
        with registry.transaction() as tx:
            yield tx
    except NotFoundError:
        pass
    except ConflictError as error:
        fields = {"action": "retention_waits", "model": model.name}
        log.info("Retention waits: %s", error, extra=fields)
