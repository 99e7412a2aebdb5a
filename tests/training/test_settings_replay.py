"""Other monitoring settings are tried on the labels and counts that are retained."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from recalib.registry import Model, MonitoringSettings, Registry
from recalib.registry.job_kinds import REPLAY
from tests.training.test_replay_job import (
    columns_of,
    history_of,
    job_of,
    live_predictions,
    monitor_of,
    work,
)
from tests.training.watched import a_champion
from training.monitoring_job import watch

_SETTINGS = MonitoringSettings(
    objective=0.15, maturity_seconds=3_600.0, least_labels=200, window_labels=1_000, refit="manual"
)


def _tried(registry: Registry, model: Model, settings: MonitoringSettings) -> dict[str, Any]:
    """Return the result of a replay with other settings."""
    payload = {"model": model.name, "version": 1, "settings": settings.to_dict()}
    with registry.transaction() as tx:
        job = tx.jobs.enqueue(REPLAY, payload, model=model)
    assert work(registry)
    result = job_of(registry, job).result
    assert result is not None
    return result


@pytest.mark.sqlite_only
def test_present_settings_give_the_states_that_were_and_others_their_own(
    registry: Registry,
) -> None:
    model = a_champion(registry, _SETTINGS)
    live_predictions(
        registry, model, columns_of(registry, model, 1_500, slope=0.1), np.zeros(1_500)
    )
    assert watch(registry, model)
    before = monitor_of(registry, model)
    history = history_of(registry, model)
    result = _tried(registry, model, replace(_SETTINGS, tolerance=0.45))
    states = [state for state, _ in itertools.groupby(item.state for item in history)]
    assert [event["state"] for event in result["present"]["events"]] == [
        state for position, state in enumerate(states) if position or state != "unverified"
    ]
    assert result["present"]["state"] == history[-1].state == "stale"
    assert result["proposed"]["state"] != "stale"
    assert result["changes"] == {"tolerance": [0.02, 0.45]}
    assert result["not_replayed"] == []
    assert monitor_of(registry, model) == before
    for run in (result["present"], result["proposed"]):
        assert run["labels"] == sum(before.totals["labelled"])
        assert run["cohorts"] == len(history)


@pytest.mark.sqlite_only
def test_what_cannot_be_replayed_is_said(registry: Registry) -> None:
    model = a_champion(registry, _SETTINGS)
    live_predictions(registry, model, columns_of(registry, model, 1_000), np.zeros(1_000))
    assert watch(registry, model)
    with registry.transaction() as tx:
        tx.labels.delete_version(model.id, 1, 300)
    settings = replace(
        _SETTINGS, segments=("eu",), classes=("1",), cohort_seconds=600.0, promote="manual"
    )
    result = _tried(registry, model, settings)
    said = " ".join(result["not_replayed"])
    lost = sum(monitor_of(registry, model).totals["labelled"]) - result["present"]["labels"]
    for text in (f"{lost} labels", "segments", "Other classes", "promote", "whole hours"):
        assert text in said
