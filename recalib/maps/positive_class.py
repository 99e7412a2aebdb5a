"""The log-odds of class 1 of two, for maps that correct P(y = 1).

The log-odds of a row are s = z₁ − z₀, in nats. With corrected log-odds G, P(y = 1) = σ(G), which
may be on the other side of ½. `Target` says what the curve of such a map is about.

Legend: N rows, K = 2.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from recalib.errors import InputError
from recalib.maps.one_vs_rest import MAX_LOG_ODDS, restore_mask
from recalib.ops.base import Array, Ops

#: None becomes `positive_class` for K = 2 and `top_label` for more classes, when a map is fitted.
Target = TypeVar("Target", bound=str)


def default_target(target: Target | None, classes: int) -> Target | str:
    """Return the target of a fit to K = `classes`.

    Raises
    ------
    InputError: `positive_class` for more than two classes.
    """
    if target is None:
        return "positive_class" if classes == 2 else "top_label"
    if target == "positive_class" and classes != 2:
        found = f"'positive_class' for {classes} classes"
        raise InputError("options.target", found=found, accepted="positive_class for two classes")
    return target


def positive_class_odds(ops: Ops, logits: Array) -> Array:
    """Return s (N, 1), within ±`MAX_LOG_ODDS`; −inf masks a class."""
    odds = ops.matmul(logits, ops.constant(np.array([[-1.0], [1.0]])))
    return MAX_LOG_ODDS - ops.relu(MAX_LOG_ODDS - ops.clip_min(odds, -MAX_LOG_ODDS))


def positive_class_logits(ops: Ops, logits: Array, odds: Array) -> Array:
    """Return logits (N, 2) with log-odds `odds` (N, 1), and −inf where `logits` are."""
    return restore_mask(ops, logits, ops.matmul(odds, ops.constant(np.array([[-0.5, 0.5]]))))
