"""The alert of a stale champion: how wrong it is since the onset, where, and what to do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from recalib.calibrator import Calibrator
from recalib.contract.alerts import Alert
from recalib.registry import Model, Registry
from recalib.shift import ShadowState
from tests.registry.scenes import a_lease
from tests.training.watched import CAPTURING, WATCHING, Stream, a_champion, serve
from training.alert import Links
from training.monitoring_job import watch

pytestmark = pytest.mark.sqlite_only

_LINKS = Links(
    "https://recalib.example.com",
    "https://runbooks.example.com/recalib",
    "https://grafana.example.com/d/recalib-calibration",
)


def status_of(registry: Registry, model: Model) -> dict[str, Any]:
    watch(registry, model, _LINKS)
    with registry.reading() as tx:
        row = tx.monitors.find(model, tx.aliases.get(model, "champion").version)
    assert row is not None
    return row.status


def labels_since(registry: Registry, model: Model, start: float) -> Any:
    with registry.reading() as tx:
        row = tx.monitors.find(model, 1)
        assert row is not None
        return tx.labels.columns(model, 1, start, row.through)


def test_alert_describes_the_labels_since_the_onset(registry: Registry) -> None:
    model = a_champion(registry, replace(WATCHING, segments=("eu", "us")))
    stream = Stream(registry, model)
    stream.send(900, ago=4_000, seconds=1_000)
    stream.send(900, ago=4_000, seconds=1_000, segment=1)
    assert status_of(registry, model).get("alert") is None  # fresh
    stream.send(600, ago=2_400, seconds=1_000, shift=-1.0, segment=1, predicted=2)
    stream.send(600, ago=2_400, seconds=1_000, segment=2)
    status = status_of(registry, model)
    alert = Alert.model_validate(status["alert"])
    assert status["state"] == "stale"
    assert alert.direction == "too_high"
    # The estimate of the onset is rather late than early.
    assert 2_500 > stream.now - alert.onset.timestamp() > 1_900
    rows = labels_since(registry, model, status["onset"])
    rows = rows.select(rows.segment == 1) if status["segment"] == "eu" else rows
    assert alert.labels == len(rows.label)
    assert alert.accuracy == pytest.approx(rows.correct.mean())
    assert alert.confidence == pytest.approx(rows.confidence.mean())
    gap = alert.confidence - alert.accuracy
    assert gap > 0.03
    assert alert.low < gap < alert.high < gap + 0.15
    places = {(place.kind, place.name) for place in alert.places}
    assert ("class", "2") in places
    assert ("class", "1") not in places
    assert ("segment", "us") not in places
    assert f"too sure by {100 * gap:.1f} points" in alert.summary
    assert alert.command == "recalib monitoring resnet --server https://recalib.example.com"
    assert alert.runbook == "https://runbooks.example.com/recalib#calibratorstale"
    assert alert.dashboard.endswith("/d/recalib-calibration?var-model=resnet")


def test_event_of_the_state_has_the_alert(registry: Registry) -> None:
    model = a_champion(registry)
    Stream(registry, model).send(1_500, ago=4_000, seconds=1_000, shift=-0.5)
    status = status_of(registry, model)
    with registry.reading() as tx:
        events = tx.events.page(100, types=["monitoring"])
    assert events[-1].data["evidence"]["alert"] == status["alert"]


def test_underconfidence_has_the_other_direction(registry: Registry) -> None:
    model = a_champion(registry)
    Stream(registry, model).send(2_000, ago=4_000, seconds=1_000, shift=0.7)
    alert = Alert.model_validate(status_of(registry, model)["alert"])
    assert (alert.direction, alert.high < 0) == ("too_low", True)
    assert "not sure enough by" in alert.summary


def publish(registry: Registry, model: Model, temperature: float) -> int:
    """Publish and promote the champion's map with another temperature."""
    with registry.reading() as tx:
        first = Calibrator.from_bytes(tx.calibrators.parameters(model, 1))
    other = Calibrator({"temperature": np.array(temperature)}, first.card)
    lease = a_lease(registry)
    with registry.transaction() as tx:
        version = tx.calibrators.publish(
            lease, model, None, other.card.to_dict(), other.to_bytes(), "champion", "for a test"
        )
        tx.jobs.succeed(lease, {})
    return version


def test_earlier_versions_are_compared_on_the_same_labels(registry: Registry) -> None:
    """Version 1 has the temperature of the rows, 2 is as wrong as 3: the command promotes 1."""
    model = a_champion(registry, CAPTURING)
    for temperature in (1.05, 1.0):
        publish(registry, model, temperature)
    serve(registry, model, ago=4_000, temperature=3.0, version=3)
    alert = Alert.model_validate(status_of(registry, model)["alert"])
    second, first = alert.versions
    assert (second.version, first.version) == (2, 1)
    assert first.labels == 1_500
    assert 0 < first.low < first.difference < first.high
    assert 0 < second.difference < 0.2 * first.difference
    assert alert.command == "recalib promote resnet 1 --server https://recalib.example.com"


def test_the_champion_is_compared_by_the_answers_that_were_given(registry: Registry) -> None:
    """Version 2 has the map of 1, but its answers were adapted to a label shift that was none."""
    model = a_champion(registry, CAPTURING)
    with registry.reading() as tx:
        first = Calibrator.from_bytes(tx.calibrators.parameters(model, 1))
    publish(registry, model, float(first.parameters["temperature"]))
    state = ShadowState(1, 0.0, (30.0, 1.0, 1.0, 1.0), (0.25,) * 4, 2_000, 0.0, applied=1.0)
    with registry.transaction() as tx:
        tx.adaptations.add(model, 2, [msgspec.to_builtins(state)])
    serve(registry, model, ago=4_000, temperature=3.0, version=2, state=state)
    alert = Alert.model_validate(status_of(registry, model)["alert"])
    (comparison,) = alert.versions
    assert comparison.version == 1
    assert comparison.low > 0
