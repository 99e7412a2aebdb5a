"""The training objective: primary + beta × secondary."""

from __future__ import annotations

from dataclasses import fields
from typing import Literal

from torch import Tensor, nn

from recalib.core.options import configure
from recalib.errors import InputError
from recalib.losses import LOSSES, QUADRATIC
from recalib.losses.base import BatchLoss, Loss
from recalib.losses.crl import Crl
from recalib.recipe import LossPart, Schedule
from training.engine.pixels import loss_pixels

Terms = Literal["both", "primary", "secondary"]


class TrainingObjective(nn.Module):
    """Primary + β × secondary, the objective of papers 000 and 001; range [0, ∞) for most losses.

    The papers' third term, λ times the squared weights, is the optimiser's weight decay. β and
    every numeric option of a loss may follow a schedule; `set_progress` updates them.

    Parameters
    ----------
    part: names, options, β and schedules.
    samples: rows of the training set, the length of the history of `crl`; 0 if unknown.
    gather: whether losses of a whole batch see the rows of all processes.
    ignore_index: the label of void pixels, for both losses.
    image_pixels: for dense predictions, the pixels of an image that a regulariser of quadratic
        cost sees (`pixels.loss_pixels`); 0 for rows.

    Raises
    ------
    InputError: an option that a loss does not have, or a value that it does not accept; a schedule
        of something that is not a number, or with a value that its option does not accept.
    """

    def __init__(
        self,
        part: LossPart,
        samples: int = 0,
        *,
        gather: bool = False,
        ignore_index: int | None = None,
        image_pixels: int = 0,
    ) -> None:
        super().__init__()
        self.beta = 1.0 if part.beta is None else part.beta
        self._image_pixels = image_pixels
        void = {} if ignore_index is None else {"ignore_index": ignore_index}
        self.primary = make_loss("loss.primary", part.primary, {**void, **part.options})
        self.secondary: Loss | None = None
        if part.secondary is not None:
            options = {**void, **part.secondary_options}
            if part.secondary == Crl.name:
                options = {"samples": samples * max(image_pixels, 1), **options}
            self.secondary = make_loss("loss.secondary", part.secondary, options)
        for loss in (self.primary, self.secondary):
            if isinstance(loss, BatchLoss):
                loss.gather = gather
        self._schedules = part.schedules
        for target, schedule in part.schedules.items():
            self._check_schedule(target, schedule, part)
        self.set_progress(0.0)

    def start_epoch(self, epoch: int, epochs: int) -> None:
        """Start epoch `epoch`, counted from 0, of `epochs`."""
        for loss in (self.primary, self.secondary):
            if loss is not None:
                loss.start_epoch(epoch, epochs)

    def set_progress(self, progress: float) -> None:
        """Set scheduled values for this fraction of the run."""
        for target, schedule in self._schedules.items():
            owner, _, option = target.rpartition(".")
            setattr(getattr(self, owner) if owner else self, option, schedule.value(progress))

    def forward(
        self,
        logits: Tensor,
        labels: Tensor,
        indices: Tensor | None = None,
        terms: Terms = "both",
        share: float = 1.0,
    ) -> Tensor:
        """Return the objective, a scalar.

        Parameters
        ----------
        logits, labels: as for every loss.
        indices: positions of the rows in the training set; only `crl` needs them.
        terms: `primary` alone, or `secondary` times β alone, for interleaved training.
        share: a factor for losses that see these rows alone. A loss that gathers the rows of all
            processes is that of the whole step.
        """
        if self.secondary is None or terms == "primary":
            return _share(self.primary, share) * self.primary(logits, labels)  # type: ignore[no-any-return]
        regulariser = self._regulariser(self.secondary, logits, labels, indices)
        regulariser = self.beta * _share(self.secondary, share) * regulariser
        if terms == "secondary":
            return regulariser
        return _share(self.primary, share) * self.primary(logits, labels) + regulariser  # type: ignore[no-any-return]

    def _regulariser(
        self, loss: Loss, logits: Tensor, labels: Tensor, indices: Tensor | None
    ) -> Tensor:
        needs_indices = isinstance(loss, Crl)
        if self._image_pixels and loss.name in QUADRATIC:
            images = indices if needs_indices else None
            logits, labels, indices = loss_pixels(logits, labels, self._image_pixels, images)
        value: Tensor = (
            loss(logits, labels, indices=indices) if needs_indices else loss(logits, labels)
        )
        return value

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


def _share(loss: Loss, share: float) -> float:
    return 1.0 if isinstance(loss, BatchLoss) and loss.gather else share


def make_loss(field: str, name: str, options: dict[str, object]) -> Loss:
    """Return the loss `name` with options, a mean over the batch; errors name `field`."""
    try:
        loss = configure(LOSSES, name, options, field=field)
        if getattr(loss, "reduction", "mean") != "mean":
            raise InputError("options.reduction", found=repr(loss.reduction), accepted="mean")
        return loss
    except InputError as error:
        if error.field == field:
            raise
        # Both losses have options: name the loss.
        place = f"{field}: {error.field}"
        raise InputError(place, found=error.found, accepted=error.accepted) from None


def _numeric_options(loss: Loss) -> list[str]:
    """Return the options of `loss` that are floats, which a schedule may change."""
    return [field.name for field in fields(loss) if isinstance(getattr(loss, field.name), float)]
