"""Adaptation to label shift in shadow: estimated from sampled logits, scored by their labels."""

from __future__ import annotations

import numpy as np

from recalib.calibrator import Calibrator
from recalib.registry import Model, Registry
from recalib.shift import Shadow, begin_shadow, window_rows
from training.logit_samples import read_labelled_sample, read_newest_logits


def adapt_in_shadow(registry: Registry, model: Model) -> None:
    """Read new labels and, if enough rows are new, a window of the champion's answers.

    The first window gives π⁰. Nothing is written if the monitor changes at the same time: the next
    call reads the same rows.
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
    shadow = before = None if row.adaptation is None else Shadow.of(row.adaptation)
    # 1. Labels score the states of before.
    matured = now - model.monitoring.maturity_seconds
    if shadow is not None and matured > shadow.through:
        where = row.version, shadow.through, matured
        rows = read_labelled_sample(registry, model, *where)
        p = calibrator.predict_float64(rows.logits)
        shadow = shadow.confirm(rows.times, p, rows.labels.astype(np.int64), rows.end)
    # 2. A window of answers makes the next state.
    size, since = window_rows(model.classes), 0.0 if shadow is None else shadow.window_end
    new_rows = sum(file.rows for file in files if file.last_at > since)
    if new_rows >= size if shadow is None else shadow.is_due(new_rows):
        window = calibrator.predict_float64(read_newest_logits(registry, files, size))
        end = max(file.last_at for file in files)
        shadow = begin_shadow(window, end) if shadow is None else shadow.renew(window, end, now)
    if shadow is not None and shadow != before:
        with registry.transaction() as tx:
            tx.monitors.adapt(model, row, shadow.to_dict())
