"""Kernel calibration error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from recalib.core.field_types import AtLeastOne, Positive
from recalib.errors import InputError
from recalib.losses.base import BatchLoss, Regulariser

#: In place of log 0: its exponential is 0, and its product with any parameter is finite.
_MIN_LOG_P = -1e30


@dataclass(eq=False)
class KernelError(BatchLoss, Regulariser):
    """Calibration error with Dirichlet kernels; range [0, 2] canonical, [0, 1] for the top label.

    (1/N Σ_j Σ_k |m_jk − p_jk|^q)^(1/q), where m_j is the mean of all other rows' labels, weighted
    by the density at p_j of a Dirichlet distribution with parameters p_i/h + 1. Weights are
    normalised as logarithms, so they cannot all vanish. It is 0 for a single row. Cost N²·K.

    `variant`: `canonical` compares all probabilities of a row; `top_label` compares confidence and
    correctness, with Beta kernels.

    Options: `bandwidth` h > 0, default 0.1; `order` q ≥ 1, default 1; `variant`. Paper 002 adds
    this loss to cross-entropy (KDE-XE) with β = .3 on CIFAR-10 and .5 on CIFAR-100, and gives no
    bandwidth. The example in the source's code uses .001. The logarithm of a kernel has derivatives
    of order 1/h. With ten classes and in batches of 64 and 128, the gradient of β times this loss
    is longer than that of cross-entropy for β = .3 and h = .001, and for β = 1 and h = .01; it then
    depends on which of a few rows is nearest, and a network learns less or nothing. With the
    default and β = 1 it is half as long (`tests/losses/test_first_steps.py`).

    Use it where the canonical error of few classes is trained on, without bins.

    Source: Popordanoska, Sayer and Blaschko, A consistent and differentiable Lp canonical
    calibration error estimator, NeurIPS 2022; paper 002, section 5 and appendix E.1.
    """

    name: ClassVar[str] = "kde_ece"
    summary: ClassVar[str] = "calibration error with kernels instead of bins"
    cost: ClassVar[str] = "N²·K"

    accepts_probabilities: ClassVar[bool] = True

    bandwidth: Positive = 0.1
    order: AtLeastOne = 1.0
    variant: Literal["canonical", "top_label"] = "canonical"

    def value(self, logits: Tensor, labels: Tensor) -> Tensor:
        # A class that is impossible in two rows adds 0 · log p = 0 to their kernel.
        log_p = logits.log_softmax(dim=1).clamp_min(_MIN_LOG_P)
        if len(log_p) == 1:
            return (log_p * 0).sum()
        if self.variant == "top_label":
            if labels.is_floating_point():
                raise InputError(
                    "labels", found="probabilities", accepted="integers for variant top_label"
                )
            pairs, correct = _top_label_pairs(log_p), logits.argmax(dim=1) == labels
            means = self._kernel_means(pairs, correct[:, None].to(log_p.dtype))
            gaps = means - pairs[:, :1].exp()
        else:
            outcomes = labels
            if not labels.is_floating_point():
                outcomes = torch.zeros_like(log_p).scatter(1, labels[:, None], 1.0)
            gaps = self._kernel_means(log_p, outcomes) - log_p.exp()
        if self.order == 1:
            return gaps.abs().sum(dim=1).mean()
        # The root has no derivative at 0. 1e-18 is far below the noise of any batch.
        return ((gaps.abs() ** self.order).sum(dim=1).mean() + 1e-18) ** (1 / self.order)

    def _kernel_means(self, log_p: Tensor, outcomes: Tensor) -> Tensor:
        """Return the kernel-weighted mean outcome of all other rows, (N, D)."""
        alpha = log_p.exp() / self.bandwidth + 1
        log_beta = torch.lgamma(alpha).sum(dim=1) - torch.lgamma(alpha.sum(dim=1))
        # Row j, column i: the density at p_j of the kernel around p_i.
        log_kernels = log_p @ (alpha - 1).T - log_beta[None, :]
        log_kernels = log_kernels.fill_diagonal_(-torch.inf)
        return log_kernels.softmax(dim=1) @ outcomes


def _top_label_pairs(log_p: Tensor) -> Tensor:
    """Return log c and log(1 − c) of each row, (N, 2)."""
    largest, prediction = log_p.max(dim=1, keepdim=True)
    other_log_p = log_p.scatter(1, prediction, _MIN_LOG_P).logsumexp(dim=1, keepdim=True)
    return torch.cat([largest, other_log_p], dim=1)
