"""Adaptation to label shift: estimated from sampled logits, scored by their labels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from recalib.calibrator import Calibrator
from recalib.errors import CorruptError, NotFoundError
from recalib.files import MEDIA_TYPES, DataSelection
from recalib.files.fragments import list_fragments
from recalib.registry import Model, Registry
from recalib.scale.label_shares import label_shares
from recalib.shift import Shadow, begin_shadow, window_rows
from training.logit_samples import read_labelled_sample, read_newest_logits


def adapt_in_shadow(registry: Registry, model: Model) -> None:
    """Read new labels and, if enough rows are new, a window of the champion's answers.

    With the setting `label_shift` servers adapt answers by the states that this writes.
    π⁰ are the class shares in the data set of the version; without one, those of the first window.
    Nothing is written if the monitor changes at the same time: the next call reads the same rows.
    """
    if model.monitoring.adaptation == "none":
        return
    with registry.reading() as tx:
        now, champion = tx.clock(), tx.aliases.find(model, "champion")
        row = None if champion is None else tx.monitors.find(model, champion.version)
        if row is None:
            return
        files = tx.captures.between(model, 0.0, now)
        calibrator = Calibrator.from_bytes(tx.calibrators.parameters(model, row.version))
    if calibrator.card.segments is not None:  # kept logits without a label have no segment
        return
    shadow = before = None if row.adaptation is None else Shadow.of(row.adaptation)
    # 1. Labels score the states of before.
    matured = now - model.monitoring.maturity_seconds
    if shadow is not None and matured > shadow.through:
        where = row.version, shadow.through, matured
        rows = read_labelled_sample(registry, model, *where)
        p = calibrator.predict_float64(rows.logits)
        labels = rows.labels.astype(np.int64)
        shadow = shadow.confirm(rows.times, p, labels, rows.end, rows.adaptations, rows.states)
    # 2. A window of answers makes the next state.
    size, since = window_rows(model.classes), 0.0 if shadow is None else shadow.window_end
    new_rows = sum(file.rows for file in files if file.last_at > since)
    if new_rows >= size if shadow is None else shadow.is_due(new_rows):
        logits, end = read_newest_logits(registry, files, size), max(file.last_at for file in files)
        if len(logits) > 1:  # files may be lost or damaged
            window = calibrator.predict_float64(logits)
            if shadow is None:
                shadow = begin_shadow(
                    window, end, _shares(registry, model, row.version, calibrator)
                )
            shadow = shadow.renew(window, end, now)
    serves = model.monitoring.adaptation == "label_shift"
    if shadow is not None:
        shadow = shadow.apply(now, shadow.share.applied if serves else 0.0)
    if shadow is not None and shadow != before:
        with registry.transaction() as tx:
            if tx.monitors.adapt(model, row, shadow.to_dict()) and serves:
                tx.adaptations.add(model, row.version, shadow.to_dict()["states"])


def _shares(
    registry: Registry, model: Model, version: int, calibrator: Calibrator
) -> NDArray[np.float64] | None:
    """Return the class shares (K,) of the data set of a version; None without one that is here.

    None also for a version with weights of classes: its rows may be resampled, and the card does
    not tell.
    """
    if calibrator.card.options.get("class_weight"):
        return None
    with registry.reading() as tx:
        name = tx.calibrators.get(model, version).dataset
        dataset = None if name is None else tx.datasets.find(model, name)
    if dataset is None or dataset.uri is not None:
        return None
    try:
        registry.blobs.verify(dataset.digest)
        location, format = registry.blobs.location(dataset.digest), MEDIA_TYPES[dataset.media_type]
        selection = DataSelection.of_classes(model.labels)
        fragments = list_fragments(location, format=format, selection=selection)
        return label_shares(fragments, dataset.input, model.classes)
    except (CorruptError, NotFoundError):
        return None
