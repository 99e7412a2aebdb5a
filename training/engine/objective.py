"""The training objective: primary + beta × secondary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Literal, TypeAlias, get_type_hints

import torch
from torch import Tensor, nn

from recalib.core.options import configure
from recalib.errors import InputError
from recalib.losses import LOSSES, QUADRATIC
from recalib.losses.base import BatchLoss, Loss
from recalib.losses.crl import Crl
from recalib.recipe import LossPart, Schedule
from training.engine.pixels import loss_pixels

Terms = Literal["both", "primary", "secondary"]
_Number: TypeAlias = float | Tensor


class LossSum(nn.Module):
    """Primary + β × secondary, the objective of papers 000 and 001; range [0, ∞) for most losses.

    The papers' third term, λ times the squared weights, is the optimiser's weight decay.

    Parameters
    ----------
    primary, secondary: losses of Recalib, or modules that map logits and labels to a scalar.
    beta: β, by default 1.
    image_pixels: for dense predictions, the pixels of an image that a regulariser of quadratic
        cost sees (`pixels.loss_pixels`); 0 for rows.
    """

    def __init__(
        self,
        primary: nn.Module,
        secondary: nn.Module | None,
        beta: float | None,
        image_pixels: int = 0,
    ) -> None:
        super().__init__()
        self.primary, self.secondary = primary, secondary
        self.beta = 1.0 if beta is None else beta
        self.image_pixels = image_pixels

    def start_epoch(self, epoch: int, epochs: int) -> None:
        """Start epoch `epoch`, counted from 0, of `epochs`."""
        for loss in (self.primary, self.secondary):
            if isinstance(loss, Loss):
                loss.start_epoch(epoch, epochs)

    def forward(
        self,
        logits: Tensor,
        labels: Tensor,
        indices: Tensor | None = None,
        terms: Terms = "both",
        shares: Sequence[_Number] = (1.0, 1.0),
    ) -> Tensor:
        """Return the objective, a scalar; `InputError` if a loss returns something else.

        Parameters
        ----------
        logits, labels: as for every loss.
        indices: positions of the rows in the training set; only `crl` needs them.
        terms: `primary` alone, or `secondary` times β alone, for interleaved training.
        shares: a factor of each of the two losses, as of `TrainingObjective.shares`.
        """
        if self.secondary is None or terms == "primary":
            return shares[0] * _scalar(self.primary(logits, labels))
        regulariser = _scalar(self._regulariser(self.secondary, logits, labels, indices))
        regulariser = self.beta * shares[1] * regulariser
        if terms == "secondary":
            return regulariser
        return shares[0] * _scalar(self.primary(logits, labels)) + regulariser

    def _regulariser(
        self, loss: nn.Module, logits: Tensor, labels: Tensor, indices: Tensor | None
    ) -> object:
        is_crl = isinstance(loss, Crl)
        if self.image_pixels and getattr(loss, "name", "") in QUADRATIC:
            images = indices if is_crl else None
            logits, labels, indices = loss_pixels(logits, labels, self.image_pixels, images)
        return loss(logits, labels, indices=indices) if is_crl else loss(logits, labels)


class TrainingObjective(LossSum):
    """The objective of a recipe.

    β and every numeric option of a loss may follow a schedule; `set_progress` updates them.

    Parameters
    ----------
    part: names, options, β and schedules.
    samples: rows of the training set, the length of the history of `crl`; 0 if unknown.
    gather: whether losses of a whole batch see the rows of all processes.
    ignore_index: the label of void pixels, for both losses.
    image_pixels: as of `LossSum`.

    Raises
    ------
    InputError: an option that a loss does not have, or a value that it does not accept; a schedule
        of something that is not a number, or with a value that its option does not accept.
    """

    primary: Loss
    secondary: Loss | None

    def __init__(
        self,
        part: LossPart,
        samples: int = 0,
        *,
        gather: bool = False,
        ignore_index: int | None = None,
        image_pixels: int = 0,
    ) -> None:
        void = {} if ignore_index is None else {"ignore_index": ignore_index}
        primary = make_loss("loss.primary", part.primary, {**void, **part.options})
        secondary: Loss | None = None
        if part.secondary is not None:
            options = {**void, **part.secondary_options}
            if part.secondary == Crl.name:
                options = {"samples": samples * max(image_pixels, 1), **options}
            secondary = make_loss("loss.secondary", part.secondary, options)
        super().__init__(primary, secondary, part.beta, image_pixels)
        for loss in (primary, secondary):
            if isinstance(loss, BatchLoss):
                loss.gather = gather
        self._is_sum = part.reduction == "sum"
        self._schedules = part.schedules
        for target, schedule in part.schedules.items():
            self._check_schedule(target, schedule, part)
        self.set_progress(0.0)

    def set_process_rows(self, rows: Sequence[int]) -> None:
        """Tell losses of a whole batch how many rows each process has in the next step."""
        for loss in (self.primary, self.secondary):
            if isinstance(loss, BatchLoss):
                loss.process_rows = rows  # type: ignore[misc]

    @property
    def is_weighted(self) -> bool:
        """Whether labels have different weights, as of classes and void pixels."""
        return any(
            loss is not None and (loss.ignore_index, getattr(loss, "weight", None)) != (None, None)
            for loss in (self.primary, self.secondary)
        )

    def total_weights(self, labels: Tensor) -> Tensor:
        """Return the weight of all labels in each of the losses, (2,); see `Loss.total_weight`."""
        losses = (self.primary, self.secondary or self.primary)
        return torch.stack([loss.total_weight(labels) for loss in losses])

    def shares(
        self, weights: Sequence[_Number], totals: Sequence[_Number], processes: int
    ) -> list[_Number]:
        """Return the factors of a part of a step, with which parts add up to the whole step.

        A loss that gathers the rows of all processes is that of the whole step already.

        Parameters
        ----------
        weights, totals: the weights of the labels of the part and of the step in each loss, two.
        processes: their number, over which `DistributedDataParallel` takes the mean of gradients.
        """
        result = []
        losses = (self.primary, self.secondary)
        for loss, weight, total in zip(losses, weights, totals, strict=True):
            divisor = total + (total == 0)  # a step whose labels all are void
            share = 1.0 if isinstance(loss, BatchLoss) else weight * processes / divisor
            result.append(share * total if self._is_sum else share)
        return result

    def set_progress(self, progress: float) -> None:
        """Set scheduled values for this fraction of the run."""
        for target, schedule in self._schedules.items():
            owner, _, option = target.rpartition(".")
            setattr(getattr(self, owner) if owner else self, option, schedule.value(progress))

    def _check_schedule(self, target: str, schedule: Schedule, part: LossPart) -> None:
        """Raise `InputError` unless the target accepts every value of the schedule."""
        field = f"loss.schedules.{target}"
        owner, _, option = target.rpartition(".")
        if target == "beta" and self.secondary is not None:
            if min(schedule.values) < 0:
                raise InputError(field, found=f"{min(schedule.values):g}", accepted="beta ≥ 0")
            return
        loss = {"primary": self.primary, "secondary": self.secondary}.get(owner)
        if loss is None or option not in _numeric_options(loss):
            accepted = self._schedule_targets()
            raise InputError(field, found="not a numeric option of these losses", accepted=accepted)
        options = part.options if owner == "primary" else part.secondary_options
        for value in schedule.values:
            make_loss(field, loss.name, {**options, option: value})

    def _schedule_targets(self) -> str:
        losses = {"primary": self.primary, "secondary": self.secondary}
        targets = [
            f"{owner}.{option}"
            for owner, loss in losses.items()
            if loss is not None
            for option in _numeric_options(loss)
        ]
        return ", ".join([*(["beta"] if self.secondary is not None else []), *targets]) or "none"


def _scalar(value: object) -> Tensor:
    if not isinstance(value, Tensor) or value.ndim:
        found = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)
        raise InputError("loss", found=found, accepted="a scalar tensor")
    return value


def make_loss(field: str, name: str, options: dict[str, object]) -> Loss:
    """Return the loss `name` with options, a mean over the batch; errors name `field`."""
    try:
        loss = configure(LOSSES, name, options, field=field)
        if getattr(loss, "reduction", "mean") != "mean":
            accepted = "mean; `reduction` of a recipe's `[loss]` is mean or sum"
            raise InputError("options.reduction", found=repr(loss.reduction), accepted=accepted)
        return loss
    except InputError as error:
        if error.field == field:
            raise
        # Both losses have options: name the loss.
        place = f"{field}: {error.field}"
        raise InputError(place, found=error.found, accepted=error.accepted) from None


def _numeric_options(loss: Loss) -> list[str]:
    """Return the options of `loss` that are floats, which a schedule may change."""
    hints = get_type_hints(type(loss))
    return [field.name for field in fields(loss) if hints[field.name] in (float, float | None)]
