"""Saved logits are buffered, written, expired, and read with their labels."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from recalib.core.prediction_ids import mint, read_ids, summarise_predictions
from recalib.registry import (
    MonitoringSettings,
    Registry,
)
from service.serving.logit_sampling import Captures, write_captures
from tests.training.watched import CAPTURING, a_champion, serve
from training.logit_samples import read_labelled_sample
from training.monitoring_job import tidy


@pytest.mark.slow
def test_logits_are_buffered_written_and_expired(registry: Registry) -> None:
    """A share of the rows with ids is sampled; a failed write is retried."""
    model = a_champion(registry, CAPTURING)
    captures = Captures()
    logits = np.random.default_rng(0).normal(size=(1_000, 4)).astype(np.float32)
    with registry.transaction() as tx:
        key = tx.signing_keys.first()
        now = tx.clock()
    ids: list[str | None] = list(
        mint(key, model.id, 1, now - 200, summarise_predictions(logits, np.full_like(logits, 0.25)))
    )
    captures.keep(model.id, 1.0, [None] * 1_000, logits)
    assert write_captures(registry, captures, 0.0) == 0
    captures.keep(model.id, 0.5, [*ids[:500], *[None] * 500], logits)
    assert write_captures(registry, captures, 3_600.0) == 0
    broken = Registry("sqlite:////nowhere/at/all.db", registry.blobs.url)
    with pytest.raises(Exception, match="database"):
        write_captures(broken, captures, 0.0)
    assert write_captures(registry, captures, 0.0) == 1
    with registry.reading() as tx:
        rows, size = tx.captures.totals(model)
        (file,) = tx.captures.between(model, 0, 1e11)
    assert 180 < rows < 320
    assert size > 0
    predictions: Any = read_ids(
        [str(prediction_id) for prediction_id in ids],
        {1: key},
        model=model.id,
        now=now,
        lifetime_seconds=1e9,
    )
    with registry.transaction() as tx:
        tx.labels.add(
            model, [(prediction_id, n % 4) for n, prediction_id in enumerate(predictions)]
        )
    sample = read_labelled_sample(
        registry, replace(model, monitoring=MonitoringSettings()), 1, 0, now + 60
    )
    assert (len(sample), sample.sampled) == (rows, rows)
    where = {row.tobytes(): n for n, row in enumerate(logits)}
    assert [where[row.tobytes()] % 4 for row in sample.logits] == sample.labels.tolist()
    with registry.transaction() as tx:
        tx.models.set_monitoring("resnet", replace(CAPTURING, capture_seconds=1.0))
        model = tx.models.get("resnet")
    threading.Event().wait(2.5)
    tidy(registry, model)
    with registry.reading() as tx:
        assert tx.captures.totals(model) == (0, 0)
    with pytest.raises(Exception, match="blob"):
        registry.blobs.open(file.digest)


@pytest.mark.sqlite_only
@pytest.mark.slow
def test_comparison_advances_with_many_rows_of_the_same_time(registry: Registry) -> None:
    """Files of several processes overlap; each read must advance."""
    model = a_champion(registry, CAPTURING)
    for seed in range(4):
        serve(registry, model, ago=2_000, temperature=3.0, rows=400, seed=seed)
        serve(registry, model, ago=1_300, temperature=3.0, rows=400, seed=10 + seed)
    with registry.reading() as tx:
        now = tx.clock()
    start, sizes = now - 2_100, []
    while start < now - 200:
        sample = read_labelled_sample(registry, model, 1, start, now - 200, max_rows=1_000)
        assert start < sample.end
        start, sizes = sample.end, [*sizes, len(sample)]
    assert sum(sizes) == 8 * 400
    assert len(sizes) == 2
    newest = read_labelled_sample(registry, model, 1, 0, now, newest=True, max_rows=1_000)
    assert 0 < len(newest) <= 1_000
