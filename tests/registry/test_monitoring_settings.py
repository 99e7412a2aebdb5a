"""What a model declares to be watched."""

from __future__ import annotations

from typing import Any

import pytest

from recalib.core.watched_classes import MAX_WATCHED_CLASSES
from recalib.errors import ConflictError, InputError, NotFoundError
from recalib.registry import MAX_SEGMENTS, MonitoringSettings, Registry
from tests.registry.scenes import a_model


@pytest.mark.slow
def test_settings_are_stored_with_the_model_and_can_change(registry: Registry) -> None:
    model, settings = (
        a_model(registry),
        MonitoringSettings(alpha=0.01, segments=("eu", "us"), capture=0.25),
    )
    assert model.monitoring == MonitoringSettings()
    with registry.transaction() as tx:
        assert tx.models.set_monitoring("resnet", settings).monitoring == settings
        born = tx.models.create("born", None, 2, "anna", settings)
    with registry.reading() as tx:
        assert tx.models.get("resnet").monitoring == settings
        assert tx.models.monitoring([model.id, born.id, 99]) == {
            model.id: settings,
            born.id: settings,
        }
    for name in ("absent", "no name\0"):
        with pytest.raises(NotFoundError), registry.transaction() as tx:
            tx.models.set_monitoring(name, settings)


def test_segments_keep_their_numbers(registry: Registry) -> None:
    """Ids that are out carry them: a list may grow at its end, and do nothing else."""
    a_model(registry)
    with registry.transaction() as tx:
        tx.models.set_monitoring("resnet", MonitoringSettings(segments=("eu", "us")))
    for bad in ((), ("eu",), ("us", "eu"), ("asia", "eu", "us")):
        with pytest.raises(ConflictError, match="segments"), registry.transaction() as tx:
            tx.models.set_monitoring("resnet", MonitoringSettings(segments=bad))
    with registry.transaction() as tx:
        tx.models.set_monitoring("resnet", MonitoringSettings(segments=("eu", "us", "asia")))


BAD: list[dict[str, Any]] = [
    {"objective": 0},
    {"objective": float("nan")},
    {"tolerance": -0.1},
    {"tolerance": 0.5},
    {"alpha": 1},
    {"maturity_seconds": 0},
    {"cohort_seconds": float("inf")},
    {"least_labels": 1},
    {"window_labels": 1},
    {"capture_seconds": float("nan")},
    {"capture": 1.1},
    {"refit": "always"},
    {"refit_every_seconds": 1},
    {"promote": "yes"},
    {"segments": ("a", "a")},
    {"segments": ("a b",)},
    {"segments": tuple(map(str, range(MAX_SEGMENTS + 1)))},
    {"classes": ("1", "1")},
    {"classes": tuple(map(str, range(MAX_WATCHED_CLASSES + 1)))},
]


@pytest.mark.parametrize("bad", BAD, ids=str)
def test_invalid_settings_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(bad))):
        MonitoringSettings(**bad)


@pytest.mark.parametrize("unknown", [("2",), ("cat",), ("all", "0")], ids=str)
def test_watched_classes_are_those_of_the_model(registry: Registry, unknown: tuple[str, ...]):
    settings = MonitoringSettings(classes=("dog", "0"))
    with registry.transaction() as tx:
        tx.models.create("named", ("cow", "dog"), 2, "anna", settings)
        every = MonitoringSettings(classes=("all",))
        assert tx.models.set_monitoring("named", every).monitoring == every
    with pytest.raises(InputError, match="classes"), registry.transaction() as tx:
        tx.models.set_monitoring("named", MonitoringSettings(classes=unknown))
    with pytest.raises(InputError, match="classes"), registry.transaction() as tx:
        tx.models.create("other", None, 2, "anna", settings)
    with registry.reading() as tx:
        assert tx.models.get("named").monitoring == every


def test_fields_of_a_later_version_are_ignored() -> None:
    stored = {**MonitoringSettings(segments=("eu",)).to_dict(), "unheard_of": 1}
    assert MonitoringSettings.of(stored) == MonitoringSettings(segments=("eu",))
    assert MonitoringSettings.of(None) == MonitoringSettings()
