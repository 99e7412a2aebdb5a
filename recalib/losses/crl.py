"""Correctness ranking loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from recalib.core.field_types import Interval
from recalib.errors import InputError
from recalib.losses.base import BatchLoss, Regulariser, flatten_batch, top_prediction
from recalib.losses.processes import gather_rows


@dataclass(eq=False)
class Crl(BatchLoss, Regulariser):
    """Correctness ranking loss (CRL); range [0, 1], as released [0, 2].

    It is the mean over ordered pairs of rows in the batch of max(0, −sgn(h_n − h_m)(c_n − c_m)),
    where h_n counts the correct predictions of sample n so far: samples that were correct more
    often should have more confidence. It is 0 in the first epoch and for a single row. In training
    mode, a step then counts its own predictions. The paper sums; its pairs n = m are 0. Cost N².

    `variant`:

    - `paper`: as above.
    - `released`: as in the source's code, the mean over rows of max(0, |d| − sgn(d)(c_n − c_m)),
      where row m comes after row n in the batch, the first after the last, and d is
      (h_n − h_m) / (E − min h), with the least count of all samples, and E the number of epochs
      before this one, at least 1. `start_epoch` gives E, and `samples` is needed. With `gather`,
      rows of several processes follow each other in the order of the processes, as in the batches
      of a recipe; without it, each process has neighbours of its own.

    The history is a buffer of the module, so a checkpoint contains it. It grows to the largest
    index seen. With `samples`, the size of the training set, it has a fixed length, and a larger
    index is an error. `torch.compile` needs `samples`. `torch.func.grad` needs `eval()`, since it
    refuses to change a history.

    Options: `samples` ≥ 0, default 0: unknown; `variant`.

    Use it where the order of confidences matters, as for rejection.

    Source: Moon et al., Confidence-aware learning for deep neural networks, ICML 2020, as given in
    paper 001, S1.5, eq. 18; daintlab/confidence-aware-learning, train.py and crl_utils.py.
    """

    name: ClassVar[str] = "crl"
    summary: ClassVar[str] = "samples that were correct more often should have more confidence"
    cost: ClassVar[str] = "N² + N·K"

    samples: Annotated[int, Interval(ge=0)] = 0
    variant: Literal["paper", "released"] = "paper"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.variant == "released" and not self.samples:
            accepted = "the number of samples, for variant released"
            raise InputError("options.samples", found="0", accepted=accepted)
        self._epoch = 0
        self.history: Tensor
        self.register_buffer("history", torch.zeros(self.samples, dtype=torch.int32))
        self.register_load_state_dict_pre_hook(_resize_history)  # type: ignore[no-untyped-call]

    def start_epoch(self, epoch: int, epochs: int) -> None:
        self._epoch = epoch

    def forward(self, logits: Tensor, labels: Tensor, indices: Tensor | None = None) -> Tensor:
        """Return the mean over pairs, a scalar.

        Parameters
        ----------
        logits: (N, K).
        labels: integers in [0, K), (N,).
        indices: the positions of the rows in the training set, integers ≥ 0, (N,).

        Raises
        ------
        InputError: as for every loss; indices that are missing, of another shape or out of range.
        """
        if logits.ndim != 2:
            raise InputError(
                "logits",
                found=str(tuple(logits.shape)),
                accepted="(N, K): each sample has a history",
            )
        logits, labels = flatten_batch(logits, labels, self.ignore_index)
        if indices is not None and self.ignore_index is not None and len(indices) == len(labels):
            counts = labels != self.ignore_index
            logits, labels, indices = (
                logits[counts],
                labels[counts],
                indices.to(labels.device)[counts],
            )
        if indices is not None and self.gather:
            rows = self.process_rows if self.ignore_index is None else None
            indices = indices.to(labels.device)
            logits, labels, indices = gather_rows(logits, labels, indices, rows=rows)
        if not len(labels):
            return logits.sum()
        indices = self._check_indices(indices, len(labels)).to(self.history.device)
        before = self.history[indices].to(logits.device)
        lowest = self.history.min().to(logits.device) if self.variant == "released" else None
        confidence, correct = top_prediction(logits, labels)
        if self.training:
            self.history.index_add_(0, indices, correct.to(self.history))
        if lowest is None:
            return _ranking(confidence, before)
        most = (max(self._epoch, 1) - lowest).clamp_min(1)
        return _neighbour_ranking(confidence, (before - lowest).to(confidence.dtype) / most)

    def value(self, logits: Tensor, labels: Tensor) -> Tensor:
        raise InputError(
            "indices", found="none", accepted="the positions of the samples in the data"
        )

    def _check_indices(self, indices: Tensor | None, count: int) -> Tensor:
        if indices is None or indices.is_floating_point() or indices.shape != (count,):
            found = "none" if indices is None else f"{indices.dtype} {tuple(indices.shape)}"
            raise InputError(
                "indices", found=found, accepted=f"integers ({count},): positions in the data"
            )
        is_compiling = torch.compiler.is_compiling()
        if self.samples and (is_compiling or indices.device.type != "cpu"):
            return indices  # reading them would synchronise the device, which checks bounds itself
        if is_compiling:
            raise InputError(
                "options.samples", found="0, under torch.compile", accepted="the number of samples"
            )
        lowest, highest = int(indices.min()), int(indices.max())
        if lowest < 0 or (self.samples and highest >= self.samples):
            below = f"below {self.samples}" if self.samples else "from 0"
            found = f"{lowest} to {highest}"
            raise InputError("indices", found=found, accepted=f"integers {below}")
        if highest >= len(self.history):
            longer = self.history.new_zeros(max(highest + 1, 2 * len(self.history)))
            longer[: len(self.history)] = self.history
            self.history = longer
        return indices


def _ranking(confidence: Tensor, history: Tensor) -> Tensor:
    order = torch.sign(history[:, None] - history[None, :]).to(confidence.dtype)
    violations = (-order * (confidence[:, None] - confidence[None, :])).relu()
    return violations.sum() / max(len(confidence) * (len(confidence) - 1), 1)


def _neighbour_ranking(confidence: Tensor, counts: Tensor) -> Tensor:
    margin = counts - counts.roll(-1)
    gaps = torch.sign(margin) * (confidence - confidence.roll(-1))
    return (margin.abs() - gaps).relu().mean()


def _resize_history(module: Crl, state: dict[str, Tensor], prefix: str, *_: object) -> None:
    """Resize the history to its length in a checkpoint."""
    saved = state.get(f"{prefix}history")
    if saved is not None and not module.samples:
        module.history = module.history.new_zeros(saved.shape)
