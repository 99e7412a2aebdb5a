"""Retention of a model: delete data sets, versions and labels that are older than its settings."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from recalib.errors import ConflictError, NotFoundError
from recalib.registry import Model, Registry, Transaction

__all__ = ["apply_retention"]

log = logging.getLogger(__name__)

#: The actor in the audit trail.
_ACTOR = "retention"


def apply_retention(registry: Registry, model: Model) -> None:
    """Delete what is older than the model's retention settings; what is in use waits."""
    retention = model.retention
    with registry.reading() as tx:
        now = tx.clock()
        datasets, versions = [], []
        if retention.dataset_seconds is not None:
            datasets = tx.datasets.names_before(model, now - retention.dataset_seconds)
        if retention.version_seconds is not None:
            versions = tx.calibrators.unpromoted(model, now - retention.version_seconds)
    for name in datasets:
        with _deletion(registry, model) as tx:
            tx.deletions.dataset(model, name, _ACTOR)
    for version in versions:
        with _deletion(registry, model) as tx:
            tx.deletions.calibrator(model, version, _ACTOR)
    deleted = 0 if retention.label_seconds is None else 1
    while deleted:  # short transactions: in SQLite, all other writers wait
        with registry.transaction() as tx:
            deleted = tx.labels.purge_model(model, retention.label_seconds or 0.0)


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
