"""Predictions with sampled logits and a label, for the monitoring of classes and of promises."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from recalib.drift import ClassRows, Cohort
from recalib.registry import LabelColumns, Model, Registry
from recalib.replay.promises import Promises, kept_of, promised_cohorts
from training.logit_samples import MAX_COHORT_ROWS, read_calibrator, read_labelled_sample


def read_class_rows(
    registry: Registry,
    model: Model,
    version: int,
    labels: LabelColumns,
    start: float,
    end: float,
    classes: Sequence[int],
) -> ClassRows:
    """Return the class rows of predictions from `start` until before `end`, by time.

    A prediction id has the probability of the predicted class only, so each label counts for that
    class. A prediction with sampled logits counts for the other classes too: their probabilities
    are those of the answer that was given, also if it was adapted to label shift. A multilabel row
    counts for its drawn label.

    Parameters
    ----------
    labels: of these predictions, those that arrived in time.
    classes: indices of the watched classes, (W,).
    """
    columns = labels.confidence, labels.predicted, labels.label, labels.predicted_at
    rows = ClassRows.from_top_labels(*columns, classes, labels.group.astype(np.int64))
    if model.is_multilabel:  # its captured logits serve refits only: a row counts for one label
        return rows
    sample = read_labelled_sample(registry, model, version, start, end, max_rows=MAX_COHORT_ROWS)
    if not len(sample):
        return rows
    others = ClassRows.from_probabilities(
        sample.answers(read_calibrator(registry, model, version)),
        sample.labels,
        sample.times,
        classes,
        excluded=sample.predicted,
        groups=sample.groups,
    )
    return ClassRows.concatenate([rows, others]).sort_by_time()


def read_promised(
    registry: Registry,
    model: Model,
    version: int,
    start: float,
    end: float,
    promises: Promises,
    *,
    label_share: float = 1.0,
) -> dict[str, Cohort]:
    """Return whether predictions from `start` until before `end` keep the promises of a version.

    A prediction id has no set and no probabilities of other classes, so only predictions with
    sampled logits count. Empty without promises or such predictions with a label.

    Parameters
    ----------
    label_share: of the predictions of this time, with or without sampled logits. Files of logits
        also have rows of other versions and times, so they do not tell it.
    """
    if not promises:
        return {}
    sample = read_labelled_sample(registry, model, version, start, end, max_rows=MAX_COHORT_ROWS)
    if not len(sample):
        return {}
    p_nk = read_calibrator(registry, model, version).predict_float64(sample.logits)
    kept = kept_of(p_nk, sample.labels, promises)
    traffic = round(len(sample) / label_share)
    return promised_cohorts(promises, kept, traffic, times=sample.times, groups=sample.groups)
