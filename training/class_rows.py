"""The rows of class-wise monitoring: what is known of the probabilities of labelled predictions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from recalib.calibrator import Calibrator
from recalib.drift import ClassRows
from recalib.registry import LabelColumns, Model, Registry
from training.logit_samples import MAX_COHORT_ROWS, read_labelled_sample


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
    with registry.reading() as tx:
        parameters = tx.calibrators.parameters(model, version)
    others = ClassRows.from_probabilities(
        sample.answers(Calibrator.from_bytes(parameters)),
        sample.labels,
        sample.times,
        classes,
        excluded=sample.predicted,
        groups=sample.groups,
    )
    return ClassRows.concatenate([rows, others]).sort_by_time()
