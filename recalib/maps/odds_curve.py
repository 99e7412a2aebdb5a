"""Maps that correct log-odds by one curve: those of class 1 of two, of the top label, or of each.

The log-odds of class 1 of two are s = z₁ − z₀, in nats. With corrected log-odds G, P(y = 1) is
σ(G), which may be on the other side of ½.

Legend: N rows, K classes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

import numpy as np

from recalib.errors import InputError
from recalib.maps.base import Map
from recalib.maps.one_vs_rest import MAX_LOG_ODDS, class_log_odds, restore_mask
from recalib.maps.top_label import split_top_label, top_label_logits, top_label_probabilities
from recalib.ops.base import Array, Ops


@dataclass(frozen=True)
class OddsCurve(Map):
    """A curve of log-odds under softmax(z / T), fitted by its own solver."""

    #: What the curve is about. None becomes `positive_class` for K = 2 and `several_classes`
    #: for more, when a map is fitted.
    target: str | None = None

    #: What None becomes for more than two classes.
    several_classes: ClassVar[str] = "top_label"
    shift_invariant: ClassVar[bool] = True
    passes_masks: ClassVar[bool] = True
    fitted_by: ClassVar[Literal["gradient", "solver"]] = "solver"

    @property
    def _target(self) -> str:
        return self.target or self.several_classes

    @property
    def preserves_accuracy(self) -> bool:  # type: ignore[override]
        return self._target == "top_label"

    def for_classes(self, classes: int) -> Self:
        if self.target is None:
            return replace(self, target="positive_class" if classes == 2 else self.several_classes)
        if self.target == "positive_class" and classes != 2:
            found = f"'positive_class' for {classes} classes"
            accepted = "positive_class for two classes"
            raise InputError("options.target", found=found, accepted=accepted)
        return self

    @abstractmethod
    def curve(self, ops: Ops, odds: Array, parameters: Mapping[str, Array]) -> Array:
        """Return corrected log-odds, or log p for `one_vs_rest`, in the shape of `odds`."""

    def transform(self, ops: Ops, logits: Array, parameters: Mapping[str, Array]) -> Array:
        softened = logits / parameters["temperature"]
        if self._target == "one_vs_rest":
            scores = self.curve(ops, class_log_odds(ops, softened), parameters)
            return restore_mask(ops, logits, scores)
        if self.target == "positive_class":
            odds = self.curve(ops, positive_class_odds(ops, softened), parameters)
            halves = ops.matmul(odds, ops.constant(np.array([[-0.5, 0.5]])))
            return restore_mask(ops, logits, halves)
        parts = split_top_label(ops, softened)
        return top_label_logits(ops, parts, self.curve(ops, parts.odds, parameters))

    def probabilities(self, ops: Ops, logits: Array, parameters: Mapping[str, Array]) -> Array:
        if self._target != "top_label":
            return super().probabilities(ops, logits, parameters)
        parts = split_top_label(ops, logits / parameters["temperature"])
        return top_label_probabilities(ops, parts, self.curve(ops, parts.odds, parameters))


def positive_class_odds(ops: Ops, logits: Array) -> Array:
    """Return s (N, 1) of two classes, within ±`MAX_LOG_ODDS`; −inf masks a class."""
    odds = ops.matmul(logits, ops.constant(np.array([[-1.0], [1.0]])))
    # A difference from the bound would round small log-odds to 4e-6 in float32.
    return 0.0 - ops.clip_min(0.0 - ops.clip_min(odds, -MAX_LOG_ODDS), -MAX_LOG_ODDS)
