"""The benchmarks of class-wise monitoring and of the segment search, with few streams."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.monitoring import class_wise, label_candidates, label_draws, segment_search


@pytest.mark.parametrize("kind", class_wise.SCENES)
def test_streams_of_classes_are_as_described(kind: str):
    """Truths are probabilities; tolerated ones are within the tolerance; top labels stay right."""
    p = class_wise.draw(np.random.default_rng(0), 20_000, 10)
    truth = class_wise.SCENES[kind].truth(p)
    np.testing.assert_allclose(truth.sum(axis=1), 1)
    assert truth.min() >= 0
    gaps = np.abs(truth - p).max()
    assert gaps <= 0.02 + 1e-12 if class_wise.SCENES[kind].is_null else gaps > 0.1
    rows = np.arange(len(p))
    top = p.argmax(axis=1)
    assert np.mean(truth[rows, top] - p[rows, top]) == pytest.approx(0, abs=0.005)


def test_class_wise_monitoring_finds_what_the_top_label_hides():
    scene = class_wise.SCENES["two classes exchanged below the top label"]
    outcome = class_wise.measure(scene, 1, labels=4_000)
    assert (outcome.class_wise, outcome.top_label) == (1, 0)
    assert class_wise.cost(10, rows=1_000).entries == 10


@pytest.mark.parametrize("kind", segment_search.SCENES)
def test_segments_with_errors_are_named(kind: str):
    scene = segment_search.SCENES[kind]
    outcome = segment_search.measure(scene, 2)
    assert outcome.alarms == outcome.named == (0 if scene.column is None else 2)


def test_drawn_labels_are_evidence_and_all_labels_in_turn_are_not():
    scene = label_draws.SCENES["calibrated, labels that occur together"]
    outcome = label_draws.measure(scene, 1, rows=2_000)
    assert (outcome.drawn, outcome.in_turn) == (0, 1)
    scene = label_draws.SCENES["one label 20 points too sure"]
    assert label_draws.measure(scene, 1, rows=3_000).by_label == 1


def test_candidate_that_is_better_in_one_label_of_few_is_promoted() -> None:
    """One that is the truth with errors of its fit is not."""
    rng = np.random.default_rng(0)
    better = label_candidates.compare(2, 4.0, rng)
    assert better.promoted
    assert better.gain > 0.05
    assert not label_candidates.compare(2, 1.0, rng).promoted
