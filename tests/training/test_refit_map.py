"""A refit of a stale champion does not repeat a refused map while others were not tried."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from recalib.core.card import AutoChoice, Card, MetricValue
from recalib.core.options import options_of
from recalib.drift import ScoreTest
from recalib.fitting.fit import fit
from recalib.maps import MAPS
from recalib.maps.labels import LABEL_MAPS
from recalib.registry import Challenger, Model, MonitoringSettings, Registry
from recalib.registry.job_kinds import REFIT
from tests.fitting.conftest import draw, draw_with_wrong_labels
from tests.training.test_refit_job import candidate, drifted, work
from tests.training.watched import CAPTURING, a_champion, serve
from training.logit_samples import LabelledSample
from training.refit_map import choose_label_map, choose_map, refit_policy, refused_maps

__all__ = ["drifted"]

pytestmark = pytest.mark.sqlite_only


def quiet(stage: str, iteration: int, value: float) -> None: ...


def sample(logits: Any, labels: Any) -> LabelledSample:
    times = np.arange(len(labels), dtype=np.float64)
    end = float(len(labels))
    predicted = logits.argmax(axis=1)
    return LabelledSample(
        logits.astype(np.float32),
        labels,
        predicted,
        times,
        np.zeros(len(labels), np.int64),
        end,
        len(labels),
    )


CARD = fit(*draw(500, 4, 3.0)).card
#: Rows for which temperature scaling is best, and rows for which it is not.
FITTING = sample(*draw(800, 4, 3.0))
MISFIT = sample(*draw_with_wrong_labels(800, 4, 0.3))


def with_error(card: Card, low: float) -> Card:
    return msgspec.structs.replace(card, calibration_error=MetricValue(low + 0.01, low, 0.2))


@pytest.mark.slow
def test_auto_selects_the_map() -> None:
    kept, choice = choose_map(CARD, {}, FITTING, "keep", quiet)
    assert (kept.map.name, choice.map) == ("temperature", "temperature")
    other, choice = choose_map(CARD, {}, MISFIT, "keep", quiet)
    assert other.map.name == choice.map == "stack"
    assert other.map.preserves_accuracy


def test_refused_map_is_replaced_by_the_best_of_the_others() -> None:
    refused = {"temperature": "candidate 2 was no better than version 1"}
    chosen, choice = choose_map(CARD, refused, FITTING, "keep", quiet)
    results = {result.map: result for result in choice.candidates}
    assert chosen.map.name != "temperature"
    others = [
        result.nll.value
        for map, result in results.items()
        if map not in refused and result.nll and MAPS[map]().for_classes(4).preserves_accuracy
    ]
    best = results[chosen.map.name].nll
    assert best is not None
    assert best.value == min(others)
    assert "temperature was refused: candidate 2" in choice.reason
    assert [map for map, result in results.items() if result.chosen] == [chosen.map.name]


@pytest.mark.slow
def test_refused_map_is_repeated_when_no_other_is_left() -> None:
    _, choice = choose_map(CARD, {}, FITTING, "keep", quiet)
    refused = {result.map: "it was no better" for result in choice.candidates}
    chosen, choice = choose_map(CARD, refused, FITTING, "keep", quiet)
    assert chosen.map.name == "temperature"
    assert choice.reason.endswith("but no other map is left")


@pytest.mark.slow
def test_champions_own_options_compete() -> None:
    card = fit(*draw(500, 4, 3.0), map="vector").card
    _, choice = choose_map(card, {}, FITTING, "may_change", quiet)
    maps = {result.map for result in choice.candidates}
    assert {"vector", "structured_matrix"} <= maps
    _, choice = choose_map(CARD, {}, FITTING, "keep", quiet)
    assert choice.predictions == "keep"
    assert all(
        MAPS[result.map]().preserves_accuracy for result in choice.candidates if result.chosen
    )


@pytest.mark.slow
def test_champion_that_is_a_stack_has_a_successor() -> None:
    """A stack is no member of another, and so no candidate."""
    members = [{"map": name, "weight": 0.5} for name in ("temperature", "vector")]
    rows = sample(FITTING.logits[:500], FITTING.labels[:500])
    card = fit(rows.logits, rows.labels, map="stack", members=members).card
    _, choice = choose_map(card, {}, rows, "keep", quiet)
    assert "stack" not in {result.map for result in choice.candidates}


@pytest.mark.slow
def test_weights_of_a_rebalanced_training_stay() -> None:
    """The maps compete without them, on rows as they were in the training."""
    weights = {"class_weight": (1.0, 2.0, 1.0, 4.0)}
    card = fit(*draw(500, 4, 3.0), resampled=weights).card
    chosen, choice = choose_map(card, {}, FITTING, "may_change", quiet)
    np.testing.assert_allclose(options_of(chosen.map)["class_weight"], (0.25, 0.5, 0.25, 1.0))
    assert {"temperature", "vector"} <= {result.map for result in choice.candidates}
    refused = {result.map: "it was no better" for result in choice.candidates}
    again, _ = choose_map(card, refused, FITTING, "may_change", quiet)
    assert again == chosen


def test_refit_changes_what_model_and_champion_allow() -> None:
    """The setting of the model if it keeps something, else what the champion's fit allows."""
    rows = draw(300, 2, 3.0)
    cards = {name: fit(*rows, name).card for name in ("temperature", "quadratic", "isotonic")}
    choice = AutoChoice("temperature", "nll", "", 300, 5, False, (), predictions="may_change")
    chosen = msgspec.structs.replace(cards["temperature"], choice=choice)
    model = Model(1, "m", 2, None, 1, "anna", 0.0, MonitoringSettings())
    for setting in (None, "may_change"):
        owner = replace(model, predictions=setting)
        policies = {name: refit_policy(owner, card) for name, card in cards.items()}
        assert policies == {
            "temperature": "keep", "quadratic": "keep_order", "isotonic": "may_change",
        }  # fmt: skip
        assert refit_policy(owner, chosen) == "may_change"
    for keeping in ("keep_order", "keep"):
        owner = replace(model, predictions=keeping)
        assert {refit_policy(owner, card) for card in (*cards.values(), chosen)} == {keeping}


def test_next_map_of_labels_follows_one_that_is_refused() -> None:
    """A map with its options is fitted again; `identity` has no fit."""
    scores = np.random.default_rng(0).normal(size=(50, 3))

    def chosen(map: str, *refused: str, **options: Any) -> Any:
        card = fit(scores, scores > 0.3, map, task="multilabel", **options).card
        return choose_label_map(card, dict.fromkeys(refused, "no better")).map

    assert chosen("isotonic", "platt", knots=16) == LABEL_MAPS["isotonic"](knots=16)
    names = [("identity",), ("temperature",), ("temperature", "temperature"), ("platt", "platt")]
    expected = ["platt", "temperature", "platt", "beta"]
    assert [chosen(*maps).name for maps in names] == expected
    assert chosen("identity", "platt", "beta", "isotonic").name == "identity"


def test_maps_are_refused_by_their_error_and_by_comparisons(registry: Registry) -> None:
    model = a_champion(registry, CAPTURING)
    lost, undecided = ScoreTest(), ScoreTest()
    lost.update(np.zeros(3_000), np.full(3_000, 0.5))
    assert lost.verdict == "no better"
    states = [(lost, "dropped"), (undecided, "dropped"), (lost, "promoted")]
    with registry.transaction() as tx:
        for map, (test, verdict) in zip(("beta", "isotonic", "spline"), states, strict=True):
            card = msgspec.structs.replace(CARD, map=map).to_dict()
            version = publish(tx, model, card)
            tx.candidates.add(
                model, Challenger(version, 1, 0, 0, 0, 0.05, test.state(), verdict, None)
            )
        assert set(refused_maps(tx, model, 1, CARD)) == {"beta"}
        refused = refused_maps(tx, model, 1, with_error(CARD, 0.03))
        assert set(refused) == {"temperature", "beta"}
        assert set(refused_maps(tx, model, 2, with_error(CARD, 0.01))) == set()


def publish(tx: Any, model: Any, card: dict[str, Any]) -> int:
    job = tx.jobs.enqueue("fit", {})
    lease = tx.jobs.claim("w", ["fit"], 60.0)
    version: int = tx.calibrators.publish(lease, model, None, card, b"numbers", None, "")
    tx.jobs.succeed(lease, {})
    assert job.id == lease.job.id
    return version


@pytest.mark.slow
@pytest.mark.usefixtures("all_folds")
def test_refit_of_a_stale_champion_says_which_map_and_why(registry: Registry, drifted: Any) -> None:
    """The drift is one of temperature, so temperature scaling is fitted again, and wins."""
    work(registry)
    with registry.reading() as tx:
        job = tx.jobs.latest(drifted, REFIT)
        card: Any = tx.calibrators.get(drifted, 2).card
    assert job is not None
    assert job.result is not None
    assert job.result["map"] == card["map"] == card["choice"]["map"]
    assert "temperature: no other map is better on held-out folds" in job.result["reason"]
    assert job.result["warnings"] == []


@pytest.mark.slow
@pytest.mark.usefixtures("all_folds")
def test_second_refit_fits_another_map(registry: Registry, drifted: Any) -> None:
    """The first candidate was no better than the champion."""
    work(registry)
    first = candidate(registry, drifted)
    test = ScoreTest(alpha=first.alpha)
    test.update(np.zeros(3_000), np.full(3_000, 0.5))
    with registry.transaction() as tx:
        dropped = replace(first, turn=first.turn + 1, state=test.state(), verdict="dropped")
        tx.candidates.save(drifted, dropped)
        payload = {"model": drifted.name, "reason": "the calibrator is stale"}
        tx.jobs.enqueue(REFIT, payload, model=drifted)
    work(registry, REFIT)
    with registry.reading() as tx:
        job = tx.jobs.latest(drifted, REFIT)
        maps = [tx.calibrators.get(drifted, version).card["map"] for version in (1, 2, 3)]
    assert maps[:2] == ["temperature", "temperature"]
    assert maps[2] != "temperature"
    assert job is not None
    assert job.result is not None
    assert job.result["map"] == maps[2]
    assert "candidate 2 was no better than version 1" in job.result["reason"]


def test_requested_refit_of_a_champion_that_is_not_stale_keeps_its_map(
    registry: Registry,
) -> None:

    model = a_champion(registry, replace(CAPTURING, refit="manual"))
    serve(registry, model, ago=4_000, temperature=3.0, rows=600)
    with registry.transaction() as tx:
        payload = {"model": model.name, "reason": "requested"}
        tx.jobs.enqueue(REFIT, payload, model=model)
    work(registry, REFIT)
    with registry.reading() as tx:
        card: Any = tx.calibrators.get(model, 2).card
    assert (card["map"], card["choice"]) == ("temperature", None)
