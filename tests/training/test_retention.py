"""Retention settings of a model, with resources of any age."""

from __future__ import annotations

import logging

import pytest
from sqlalchemy import update

from recalib.core.prediction_ids import Prediction
from recalib.registry import Model, Registry, RetentionSettings, tables
from recalib.registry.datasets import Datasets
from tests.registry.scenes import a_model, a_version, labels_between
from training.retention import apply_retention

_DAY = 86_400.0


def _set_age(registry: Registry, table: str, days: float, **key: object) -> None:
    """Let rows be as old as if the clock had gone on."""
    source = tables.METADATA.tables[table]
    where = [source.c[name] == value for name, value in key.items()]
    with registry.transaction() as tx:
        created_at = tx.clock() - days * _DAY
        tx.connection.execute(update(source).where(*where).values(created_at=created_at))


def _model(registry: Registry, retention: RetentionSettings) -> Model:
    model = a_model(registry)
    for _ in range(4):
        a_version(registry, model)
    with registry.transaction() as tx:
        for version in (2, 3):
            tx.aliases.set(model, "champion", version, "anna", "")
        for name in ("used", "new"):
            tx.datasets.create(model, name, "1" * 64, 5, 2, 9, "text/csv", "logits", {})
        tx.jobs.enqueue("fit", {"dataset": "used"}, model=model)
        now = tx.clock()
        for day in (1, 5, 9):
            made_at, digest = now - day * _DAY, bytes([day]) * 16
            tx.labels.add(model, [(Prediction(model.id, 3, made_at, 0.5, 0.5, 0, digest), 1)])
        tx.edits.model(model, "anna", retention=retention)
    _set_age(registry, "datasets", 5, name="validation")
    _set_age(registry, "datasets", 5, name="used")
    _set_age(registry, "datasets", 2, name="new")
    for version in (1, 2, 3):
        _set_age(registry, "calibrators", 5, version=version)
    with registry.reading() as tx:
        return tx.models.get("resnet")


def _resources(registry: Registry, model: Model) -> tuple[list[str], list[int], int]:
    """Return the data sets, the versions, and the number of labels."""
    with registry.reading() as tx:
        return (
            [dataset.name for dataset in tx.datasets.page(model, None, 9)],
            [version.version for version in tx.calibrators.page(model, None, 9)],
            len(labels_between(tx, model, 3, 0.0, 1e12)),
        )


def test_old_resources_are_deleted(registry: Registry, caplog: pytest.LogCaptureFixture) -> None:
    """Not a data set of an unfinished job, and not a version that ever had an alias."""
    caplog.set_level(logging.INFO, "training.retention")
    model = _model(registry, RetentionSettings(3 * _DAY, 3 * _DAY, 4 * _DAY))
    apply_retention(registry, model)
    assert _resources(registry, model) == (["new", "used"], [2, 3, 4], 1)
    assert [record.action for record in caplog.records] == ["retention_waits"]
    with registry.reading() as tx:
        entries = [entry for entry in tx.audit.page(None, 99) if entry.actor == "retention"]
    assert [entry.action for entry in entries] == ["delete_calibrator", "delete_dataset"]


def test_everything_is_kept_by_default(registry: Registry) -> None:
    model = _model(registry, RetentionSettings())
    before = _resources(registry, model)
    apply_retention(registry, model)
    assert _resources(registry, model) == before == (["new", "used", "validation"], [1, 2, 3, 4], 3)


def test_data_set_that_replaces_an_old_one_is_kept(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user replaces it between the search for old data sets and their deletion."""
    model = _model(registry, RetentionSettings(3 * _DAY))
    find = Datasets.names_before

    def find_before_replacement(datasets: Datasets, model: Model, before: float) -> list[str]:
        names = find(datasets, model, before)
        monkeypatch.setattr(Datasets, "names_before", find)
        with registry.transaction() as tx:
            tx.deletions.dataset(model, "validation", "anna")
            tx.datasets.create(model, "validation", "2" * 64, 5, 2, 9, "text/csv", "logits", {})
        return names

    monkeypatch.setattr(Datasets, "names_before", find_before_replacement)
    apply_retention(registry, model)
    assert "validation" in _resources(registry, model)[0]


def test_settings_of_now_decide(registry: Registry) -> None:
    """A user keeps everything after the monitoring job has read the model."""
    model = _model(registry, RetentionSettings(3 * _DAY, 3 * _DAY, 4 * _DAY))
    before = _resources(registry, model)
    with registry.transaction() as tx:
        tx.edits.model(model, "anna", retention=RetentionSettings())
    apply_retention(registry, model)
    assert _resources(registry, model) == before
