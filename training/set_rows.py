"""The rows of monitoring of prediction sets: predictions with sampled logits and a label."""

from __future__ import annotations

import numpy as np

from recalib.calibrator import Calibrator
from recalib.core.card import PredictionSets
from recalib.drift import Cohort
from recalib.registry import Model, Registry
from recalib.sets import prediction_sets
from training.logit_samples import MAX_COHORT_ROWS, read_labelled_sample


def read_covered(
    registry: Registry,
    model: Model,
    version: int,
    start: float,
    end: float,
    sets: PredictionSets | None,
) -> Cohort | None:
    """Return whether sets have the labels of predictions from `start` until before `end`.

    A prediction id has no set, so only predictions with sampled logits count. None without sets or
    such predictions.
    """
    if sets is None:
        return None
    limit = MAX_COHORT_ROWS
    sample = read_labelled_sample(registry, model, version, start, end, max_rows=limit)
    if not sample.sampled:
        return None
    with registry.reading() as tx:
        parameters = tx.calibrators.parameters(model, version)
    p_nk = Calibrator.from_bytes(parameters).predict_float64(sample.logits)
    covered = prediction_sets(p_nk, sets)[np.arange(len(sample)), sample.labels]
    promised = np.full(len(sample), sets.coverage)
    return Cohort([sample.sampled], promised, covered, times=sample.times, groups=sample.groups)
