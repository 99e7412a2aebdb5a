"""The benchmark of class-wise monitoring, with few streams."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.monitoring import class_wise


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
