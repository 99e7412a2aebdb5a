"""Label shift in shadow in the monitoring job: states from sampled logits, scored by labels."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from recalib.calibrator import Calibrator
from recalib.core.decoding import convert
from recalib.registry import Model, Registry
from recalib.shift import Shadow, ShadowState
from tests.training.watched import CAPTURING, Stream, a_champion, serve
from training.logit_samples import brier_scores, read_labelled_sample
from training.monitoring_job import watch
from training.shadow_adaptation import adapt_in_shadow

pytestmark = pytest.mark.sqlite_only

_SHARES = (0.75, 0.15, 0.05, 0.05)


def _shadow(registry: Registry, model: Model) -> Shadow | None:
    with registry.reading() as tx:
        row = tx.monitors.find(model, 1)
    assert row is not None
    return None if row.adaptation is None else Shadow.of(row.adaptation)


@pytest.mark.slow
def test_states_come_from_windows_and_the_weight_from_matured_labels(registry: Registry) -> None:
    model = a_champion(registry, replace(CAPTURING, adaptation="shadow"))
    serve(registry, model, ago=9_000, temperature=3.0, rows=1_000)
    watch(registry, model)
    adapt_in_shadow(registry, model)
    assert _shadow(registry, model) is None  # half a window
    serve(registry, model, ago=8_000, temperature=3.0, rows=1_000, seed=2)
    adapt_in_shadow(registry, model)
    first = _shadow(registry, model)
    assert first is not None
    assert first.report()["number"] == 0
    np.testing.assert_allclose(first.before, 0.25, atol=0.03)

    serve(registry, model, ago=6_000, temperature=3.0, rows=2_000, seed=3, shares=_SHARES)
    adapt_in_shadow(registry, model)
    shadow = _shadow(registry, model)
    assert shadow is not None
    assert [state.number for state in shadow.states] == [1]
    np.testing.assert_allclose(shadow.states[0].priors, _SHARES, atol=0.05)
    assert shadow.share.labels == 0  # all predictions were made before the state
    adapt_in_shadow(registry, model)
    again = _shadow(registry, model)
    assert again is not None
    assert (again.states, again.share) == (shadow.states, shadow.share)  # nothing is new

    # As if the state had been there 7,000 seconds ago, and no label had been read since.
    with registry.transaction() as tx:
        row = tx.monitors.find(model, 1)
        assert row is not None
        stored = shadow.to_dict()
        stored["states"][0]["since"] -= 7_000
        stored["through"] -= 7_000
        tx.monitors.adapt(model, row, stored)
    adapt_in_shadow(registry, model)
    scored = _shadow(registry, model)
    assert scored is not None
    assert scored.share.labels == 2_000
    assert scored.share.weight > 0.99
    assert scored.share.evidence > 100

    watch(registry, model)  # a step of the monitor keeps the adaptation
    assert _shadow(registry, model) == scored


@pytest.mark.slow
def test_served_states_have_the_weight_of_labels_and_score_their_own_answers(
    registry: Registry,
) -> None:
    """Monitoring and the comparison with candidates have the adapted answers."""
    model = a_champion(registry, replace(CAPTURING, adaptation="label_shift"), with_dataset=True)
    serve(registry, model, ago=9_000, temperature=3.0, rows=2_000, seed=3, shares=_SHARES)
    watch(registry, model)
    adapt_in_shadow(registry, model)
    shadow = _shadow(registry, model)
    assert shadow is not None
    (first,) = shadow.states
    assert (first.number, first.applied) == (1, 0)  # no label has confirmed it
    with registry.reading() as tx:
        assert tx.adaptations.serving() == {(model.id, 1): 1}

    # Its answers are not adapted yet; their labels give it a weight.
    serve(registry, model, ago=7_000, temperature=3.0, seed=4, shares=_SHARES, state=first)
    adapt_in_shadow(registry, model)
    with registry.reading() as tx:
        number = tx.adaptations.serving()[model.id, 1]
        stored = tx.adaptations.states(model.id, 1, [number])[number]
    state = convert(stored, ShadowState)
    assert state.number > 1
    assert state.applied > 0.9

    serve(registry, model, ago=5_000, temperature=3.0, seed=5, shares=_SHARES, state=state)
    shadow = _shadow(registry, model)
    assert shadow is not None
    assert shadow.served == 0  # the first state had no weight in its answers
    with registry.transaction() as tx:  # as if no later label had been read
        row, now = tx.monitors.find(model, 1), tx.clock()
        assert row is not None
        stored = msgspec.structs.replace(shadow, through=now - 5_500).to_dict()
        tx.monitors.adapt(model, row, stored)
    adapt_in_shadow(registry, model)
    shadow = _shadow(registry, model)
    assert shadow is not None
    with registry.reading() as tx:
        calibrator = Calibrator.from_bytes(tx.calibrators.parameters(model, 1))
    rows = read_labelled_sample(registry, model, 1, now - 5_500, now)
    assert set(rows.adaptations) == {state.number}
    index = np.arange(len(rows)), rows.labels
    plain, given = calibrator.predict_float64(rows.logits), rows.answers(calibrator)
    gain = np.log(given[index]).sum() - np.log(plain[index]).sum()
    assert gain > 50
    assert shadow.served == pytest.approx(gain)
    with registry.reading() as tx:  # monitoring reads the confidences of these answers
        confidences = tx.labels.columns(model, 1, now - 5_500, now).confidence
    np.testing.assert_allclose(confidences, given.max(axis=1), atol=1e-6)
    before, after = (brier_scores(calibrator, rows, given=g).mean() for g in (False, True))
    assert after < before

    with registry.transaction() as tx:
        model = tx.models.set_monitoring("resnet", replace(CAPTURING, adaptation="shadow"))
        assert tx.adaptations.serving() == {}
    adapt_in_shadow(registry, model)
    shadow = _shadow(registry, model)
    assert shadow is not None
    assert shadow.report()["applied"] == 0


def test_lost_files_of_logits_end_nothing(registry: Registry) -> None:
    model = a_champion(registry, replace(CAPTURING, adaptation="shadow"))
    serve(registry, model, ago=6_000, temperature=3.0, rows=2_000)
    watch(registry, model)
    with registry.reading() as tx:
        files = tx.captures.between(model, 0.0, tx.clock())
    for file in files:
        registry.blobs.remove(file.digest)
    adapt_in_shadow(registry, model)
    assert _shadow(registry, model) is None


@pytest.mark.slow
@pytest.mark.parametrize("names", [None, ("cat", "dog", "fox", "owl")])
def test_a_shift_since_the_calibration_set_is_seen_in_the_first_window(
    registry: Registry, names: tuple[str, ...] | None
) -> None:
    """Columns and labels of the data set may have the names of the classes."""
    settings = replace(CAPTURING, adaptation="shadow")
    model = a_champion(registry, settings, with_dataset=True, names=names)
    serve(registry, model, ago=6_000, temperature=3.0, rows=2_000, seed=3, shares=_SHARES)
    watch(registry, model)
    adapt_in_shadow(registry, model)
    shadow = _shadow(registry, model)
    assert shadow is not None
    np.testing.assert_allclose(shadow.before, 0.25, atol=0.03)
    assert [state.number for state in shadow.states] == [1]
    np.testing.assert_allclose(shadow.states[0].priors, _SHARES, atol=0.05)


def test_without_the_setting_nothing_is_estimated(registry: Registry) -> None:
    model = a_champion(registry, CAPTURING)
    serve(registry, model, ago=9_000, temperature=3.0, rows=2_000)
    watch(registry, model)
    adapt_in_shadow(registry, model)
    assert _shadow(registry, model) is None


def test_a_monitor_that_was_written_meanwhile_is_left_alone(registry: Registry) -> None:
    model = a_champion(registry, CAPTURING)
    serve(registry, model, ago=9_000, temperature=3.0, rows=300)
    watch(registry, model)
    with registry.reading() as tx:
        row = tx.monitors.find(model, 1)
    assert row is not None
    with registry.transaction() as tx:
        tx.monitors.adapt(model, replace(row, turn=row.turn - 1), {"states": []})
    assert _shadow(registry, model) is None


def test_one_of_two_workers_writes_the_adaptation(registry: Registry) -> None:
    """Both have read the same: a state would have two meanings. The monitor goes on after it."""
    model = a_champion(registry, CAPTURING)
    Stream(registry, model).send(300, ago=4_000)
    watch(registry, model)
    with registry.reading() as tx:
        row = tx.monitors.find(model, 1)
    assert row is not None
    for end, is_first in ((1.0, True), (2.0, False)):
        with registry.transaction() as tx:
            adaptation = Shadow((0.25,) * 4, end, end).to_dict()
            assert tx.monitors.adapt(model, row, adaptation) is is_first
    Stream(registry, model).send(300, ago=3_000)
    assert watch(registry, model)
    shadow = _shadow(registry, model)
    assert shadow is not None
    assert shadow.through == 1.0
