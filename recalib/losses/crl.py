"""Correctness ranking loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from recalib.errors import InputError
from recalib.losses.base import Regulariser, rows, top
from recalib.options import check_option

__all__ = ["Crl"]


@dataclass(eq=False)
class Crl(Regulariser):
    """Correctness ranking loss: rows more often right should be surer (CRL); range [0, 1].

    The mean over ordered pairs of rows in the batch of max(0, −sgn(h_n − h_m)(c_n − c_m)), where
    h_n is how often sample n has been predicted right so far; 0 in a first epoch, and for a lone
    row. A step in training mode then counts its own predictions. The paper sums; its pairs
    n = m are 0. Cost N².

    The history is part of the module's state, so that a checkpoint holds it. It grows to the
    largest index seen; `samples`, the size of the training set, spares that, and makes an index
    beyond it an error.

    Options: `samples` ≥ 0, by default 0: not known.

    Source: Moon et al., Confidence-aware learning for deep neural networks, ICML 2020, as paper
    001, S1.5, eq. 18, gives it.
    """

    name: ClassVar[str] = "crl"
    summary: ClassVar[str] = "rows that were right more often should be the surer ones"
    cost: ClassVar[str] = "N² + N·K"

    samples: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_option("samples", self.samples, self.samples >= 0, "samples ≥ 0")
        self.history: Tensor
        self.register_buffer("history", torch.zeros(self.samples, dtype=torch.int32))
        self.register_load_state_dict_pre_hook(_make_room)  # type: ignore[no-untyped-call]

    def forward(self, logits: Tensor, labels: Tensor, indices: Tensor | None = None) -> Tensor:
        """Return the mean over pairs, a scalar.

        Parameters
        ----------
        logits: (N, K).
        labels: integers in [0, K), (N,).
        indices: which samples of the training set these are, integers ≥ 0, (N,).

        Raises
        ------
        InputError: as every loss, and indices that are missing, of another shape or out of range.
        """
        if logits.ndim != 2:
            raise InputError(
                "logits", found=str(tuple(logits.shape)), accepted="(N, K): samples have a history"
            )
        logits, labels = rows(logits, labels)
        indices = self._checked(indices, len(labels)).to(self.history.device)
        before = self.history[indices].to(logits.device)
        confidence, right = top(logits, labels)
        if self.training:
            self.history.index_add_(0, indices, right.to(self.history))
        return _ranking(confidence, before)

    def value(self, logits: Tensor, labels: Tensor) -> Tensor:
        raise InputError("indices", found="none", accepted="the samples' places in the data")

    def _checked(self, indices: Tensor | None, count: int) -> Tensor:
        if indices is None or indices.is_floating_point() or indices.shape != (count,):
            found = "none" if indices is None else f"{indices.dtype} {tuple(indices.shape)}"
            raise InputError(
                "indices", found=found, accepted=f"integers ({count},): places in the data"
            )
        if self.samples and indices.device.type != "cpu":
            return indices  # to look at them would stop the accelerator, which checks for itself
        least, most = int(indices.min()), int(indices.max())
        if least < 0 or (self.samples and most >= self.samples):
            below = f"below {self.samples}" if self.samples else "from 0"
            raise InputError("indices", found=f"{least} to {most}", accepted=f"integers {below}")
        if most >= len(self.history):
            more = self.history.new_zeros(max(most + 1, 2 * len(self.history)))
            more[: len(self.history)] = self.history
            self.history = more
        return indices


def _ranking(confidence: Tensor, history: Tensor) -> Tensor:
    order = torch.sign(history[:, None] - history[None, :]).to(confidence.dtype)
    wrong = (-order * (confidence[:, None] - confidence[None, :])).relu()
    return wrong.sum() / max(len(confidence) * (len(confidence) - 1), 1)


def _make_room(module: Crl, state: dict[str, Tensor], prefix: str, *_: object) -> None:
    """Give the history the length that a checkpoint's has."""
    saved = state.get(f"{prefix}history")
    if saved is not None and not module.samples:
        module.history = module.history.new_zeros(saved.shape)
