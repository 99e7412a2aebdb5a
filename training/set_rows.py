"""The rows of monitoring of promises: predictions with sampled logits and a label."""

from __future__ import annotations

from recalib.calibrator import Calibrator
from recalib.drift import Cohort
from recalib.registry import Model, Registry
from recalib.replay.promises import Promises, kept_of, promised_cohorts
from training.logit_samples import MAX_COHORT_ROWS, read_labelled_sample


def read_promised(
    registry: Registry,
    model: Model,
    version: int,
    start: float,
    end: float,
    promises: Promises,
) -> dict[str, Cohort]:
    """Return whether predictions from `start` until before `end` keep the promises of a version.

    A prediction id has no set and no probabilities of other classes, so only predictions with
    sampled logits count. Empty without promises or such predictions.
    """
    if not promises:
        return {}
    limit = MAX_COHORT_ROWS
    sample = read_labelled_sample(registry, model, version, start, end, max_rows=limit)
    if not sample.sampled:
        return {}
    with registry.reading() as tx:
        parameters = tx.calibrators.parameters(model, version)
    p_nk = Calibrator.from_bytes(parameters).predict_float64(sample.logits)
    kept = kept_of(p_nk, sample.labels, promises)
    return promised_cohorts(
        promises, kept, sample.sampled, times=sample.times, groups=sample.groups
    )
