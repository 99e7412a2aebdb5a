"""Names, descriptions, tags and retention settings, and the search of models."""

from __future__ import annotations

import pytest

from recalib.errors import ConflictError, ExistsError, InputError, NotFoundError
from recalib.registry import MonitoringSettings, MonitorRow, Registry, RetentionSettings
from tests.registry.scenes import a_model, a_version


def test_what_is_not_changed_stays(registry: Registry) -> None:
    """Of a model, a data set and a version; the audit trail names what has changed."""
    model = a_model(registry)
    a_version(registry, model)
    with registry.transaction() as tx:
        tx.edits.model(model, "anna", description="of the shop", tags=["vision", "ä,b"])
        changed = tx.edits.model(model, "anna", tags=["vision"])
        assert (changed.description, changed.tags) == ("of the shop", ("vision",))
        assert tx.audit.page(None, 1)[0].detail == "tags"
        tx.edits.dataset(model, "validation", "anna", description="of May")
        dataset = tx.edits.dataset(model, "validation", "anna", tags=["x"])
        assert (dataset.description, dataset.tags) == ("of May", ("x",))
        tx.edits.calibrator(model, 1, "anna", tags=["y"])
        version = tx.edits.calibrator(model, 1, "anna", description="for May")
        assert (version.description, version.tags) == ("for May", ("y",))
        assert tx.calibrators.page(model, None, 9) == [version]
        assert tx.datasets.page(model, None, 9) == [dataset]
        tx.deletions.calibrator(model, 1, "anna")
        with pytest.raises(NotFoundError):
            tx.edits.calibrator(model, 1, "anna", tags=[])


@pytest.mark.parametrize("tags", [["a", "a"], [""], ["a" * 101], [str(n) for n in range(51)]])
def test_invalid_tags_are_rejected(registry: Registry, tags: list[str]) -> None:
    model = a_model(registry)
    with registry.transaction() as tx, pytest.raises(InputError, match="tags"):
        tx.edits.model(model, "anna", tags=tags)


def test_renamed_model_leaves_its_old_name(registry: Registry) -> None:
    """Its versions and data sets stay; servers drop what they serve under the old name."""
    model = a_model(registry)
    a_version(registry, model)
    with registry.transaction() as tx:
        revision = tx.aliases.revision()
        renamed = tx.edits.model(model, "anna", name="vit")
        assert (renamed.id, renamed.name) == (model.id, "vit")
        assert tx.aliases.buried_since(revision) == [("resnet", None)]
        assert tx.calibrators.get(tx.models.get("vit"), 1).dataset == "validation"
        with pytest.raises(NotFoundError):
            tx.models.get("resnet")
        with pytest.raises(NotFoundError):
            tx.jobs.enqueue("fit", {}, model=model)  # read before the change
        tx.models.create("resnet", None, 2, "ben")
        with pytest.raises(ExistsError):
            tx.edits.model(renamed, "anna", name="resnet")


def test_served_or_used_model_is_not_renamed(registry: Registry) -> None:
    """Requests and the payloads of jobs have its name."""
    model = a_model(registry)
    with registry.transaction() as tx:
        job = tx.jobs.enqueue("fit", {}, model=model)
        with pytest.raises(ConflictError, match=job.id):
            tx.edits.model(model, "anna", name="vit")
        tx.jobs.cancel(job.id)
    a_version(registry, model, promote="champion")
    with registry.transaction() as tx, pytest.raises(ConflictError, match="champion"):
        tx.edits.model(model, "anna", name="vit")


def test_models_are_found_by_name_tag_and_state(registry: Registry) -> None:
    """Filters combine, and pages continue after a name; `_` and `%` are themselves."""
    states = {"a_One": "stale", "b-one": "fresh", "c": "stale"}
    for name, state in states.items():
        model = a_model(registry, name)
        a_version(registry, model, promote="champion")
        status = {"state": state}
        with registry.transaction() as tx:
            tx.monitors.save(model, MonitorRow(1, 1, 1, {}, 0.0, {}, status, {}, 0, 0.0))
            tx.edits.model(model, "anna", tags=["ä%", state])
    a_model(registry, "d")

    def names(after: str | None = None, limit: int = 9, **filters: str) -> list[str]:
        with registry.reading() as tx:
            return [model.name for model in tx.models.page(after, limit, **filters)]

    assert names(name="ONE") == ["a_One", "b-one"]
    assert (names(name="_"), names(name="%")) == (["a_One"], [])
    assert names(tag="ä%") == ["a_One", "b-one", "c"]
    assert names(tag="ä%", limit=1, after="a_One") == ["b-one"]
    assert (names(tag="ä"), names(tag="fresh", name="one")) == ([], ["b-one"])
    assert (names(state="stale"), names(state="stale", name="one")) == (["a_One", "c"], ["a_One"])
    assert names(state="unverified") == ["d"]


def test_labels_are_kept_until_monitoring_has_read_them(registry: Registry) -> None:
    """Whichever of the two settings changes."""
    model = a_model(registry)
    day = 86_400.0
    with registry.transaction() as tx:
        with pytest.raises(InputError, match="label_seconds"):
            tx.edits.model(model, "anna", retention=RetentionSettings(label_seconds=day))
        changed = tx.edits.model(model, "anna", retention=RetentionSettings(label_seconds=2 * day))
        assert changed.retention == RetentionSettings(label_seconds=2 * day)
        with pytest.raises(InputError, match="label_seconds"):
            tx.models.set_monitoring("resnet", MonitoringSettings(maturity_seconds=2 * day))
        tx.models.set_monitoring("resnet", MonitoringSettings(maturity_seconds=1.9 * day))
        # The caller has read the model before this change.
        with pytest.raises(InputError, match="label_seconds"):
            tx.edits.model(model, "anna", retention=RetentionSettings(label_seconds=1.5 * day))
        tx.models.set_monitoring("resnet", MonitoringSettings(maturity_seconds=60.0))
