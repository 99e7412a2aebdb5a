"""The committed logits: small files that match the benchmark's table."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import recalib
from recalib.files import read

_ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("name", "objective"), [("cross-entropy", "CE"), ("focal", "FLSD-53")])
def test_logits_match_the_benchmark(name: str, objective: str) -> None:
    """Metrics of the float16 files equal those of seed 1 in the committed table."""
    runs = json.loads((_ROOT / "benchmarks/training/cifar10.json").read_text())["runs"]
    (run,) = [entry for entry in runs if (entry["objective"], entry["seed"]) == (objective, 1)]
    paths = [
        _ROOT / f"examples/cifar10-resnet8-{name}-{split}.npz" for split in ("validation", "test")
    ]
    assert all(path.stat().st_size < 2**20 for path in paths)
    validation, test = (read(path) for path in paths)
    assert (len(validation.labels), len(test.labels)) == (5000, 10_000)
    fitted = recalib.fit(validation.logits, validation.labels, map="temperature")
    logits = test.logits.astype(np.float32)
    before = recalib.evaluate(test.labels, logits=logits)
    after = recalib.evaluate(test.labels, probabilities=fitted.predict(logits))
    for metrics, map_ in ((before, ""), (after, "TS")):
        output = run["measured"][map_]["test"]
        # In float16 the two largest logits of a few rows of 10,000 are equal.
        assert metrics["accuracy"] == pytest.approx(output["accuracy"], abs=5e-4)
        assert metrics["nll"] == pytest.approx(output["nll"], abs=2e-4)
        assert metrics["ece"] == pytest.approx(output["ece"], abs=1e-3)
