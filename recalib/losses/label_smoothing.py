"""Cross-entropy with smoothed labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from recalib.core.field_types import Interval
from recalib.losses.base import RowLoss, is_masked, over_labels, take_column


@dataclass(eq=False)
class LabelSmoothing(RowLoss):
    """Cross-entropy against 1 − α on the label and α/(K−1) on each other class; range [0, ∞).

    K is the number of possible classes of the row. Labels that are probabilities are smoothed as
    mixtures of labels.

    −(1 − α) log p_y − α/(K−1) Σ_{k≠y} log p_k. Paper 001, eq. 4, spreads ε over all K classes,
    which is α = ε (K−1)/K here.

    Options: `smoothing` α in [0, 1), default 0.05, the better of the two values in
    paper 004.

    Use it where labels are noisy, or a simple remedy for overconfidence is wanted.

    Source: paper 004, section 5.1.
    """

    name: ClassVar[str] = "label_smoothing"
    summary: ClassVar[str] = "cross-entropy with part of each label spread over the other classes"

    accepts_probabilities: ClassVar[bool] = True

    smoothing: Annotated[float, Interval(ge=0, lt=1)] = 0.05

    def rows(self, logits: Tensor, labels: Tensor) -> Tensor:
        log_p = logits.log_softmax(dim=1)
        masked = is_masked(log_p)
        log_p = torch.where(masked, 0.0, log_p)
        if labels.is_floating_point():
            label = over_labels(log_p, log_p, labels)
        else:
            label = take_column(log_p, labels)
        other_log_p = log_p.sum(dim=1) - label
        other_classes = (~masked).sum(dim=1) - 1
        share = self.smoothing / other_classes.clamp_min(1).to(log_p.dtype)
        return -((1 - self.smoothing) * label + share * other_log_p)
