"""States of adaptations to label shift: numbers are final, and kept as long as ids name them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from recalib.core.monitoring_settings import MonitoringSettings
from recalib.registry import Registry
from tests.registry.scenes import a_model, a_version

SETTINGS = MonitoringSettings(capture=0.5, adaptation="label_shift")


def state(number: int, since: float = 1e9) -> dict[str, Any]:
    return {"number": number, "since": since, "weights": [1.0, number]}


def test_number_never_changes_its_meaning(registry: Registry) -> None:
    model = a_model(registry)
    with registry.transaction() as tx:
        tx.adaptations.add(model, 1, [state(1), state(2)])
        tx.adaptations.add(model, 1, [state(2, 5e9), state(3)])
        assert tx.adaptations.states(model.id, 1, [1, 2, 3, 4]) == {n: state(n) for n in (1, 2, 3)}
        assert tx.adaptations.states(model.id, 2, [1]) == {}


def test_states_of_champions_with_the_setting_serve(registry: Registry) -> None:
    model = a_model(registry)
    version = a_version(registry, model, promote="champion")
    with registry.transaction() as tx:
        tx.adaptations.add(model, version, [state(1), state(2)])
        tx.adaptations.add(model, version + 1, [state(9)])
        assert tx.adaptations.serving() == {}
        tx.models.set_monitoring(model.name, SETTINGS)
        assert tx.adaptations.serving() == {(model.id, version): 2}
        tx.models.set_monitoring(model.name, replace(SETTINGS, adaptation="shadow"))
        assert tx.adaptations.serving() == {}


def test_states_are_kept_as_long_as_ids_name_them(registry: Registry) -> None:
    """A state serves until the next one begins."""
    model = a_model(registry)
    with registry.transaction() as tx:
        now = tx.clock()
        ages = {1: 50_000.0, 2: 20_000.0, 3: 5_000.0, 4: 100.0}
        tx.adaptations.add(model, 1, [state(n, now - age) for n, age in ages.items()])
        tx.adaptations.add(model, 2, [state(1, now - 1e6)])
        assert tx.adaptations.purge(10_000) == 1
        assert sorted(tx.adaptations.states(model.id, 1, range(9))) == [2, 3, 4]
        assert sorted(tx.adaptations.states(model.id, 2, range(9))) == [1]
