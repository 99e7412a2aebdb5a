"""The objective of a training run: primary + beta × secondary."""

from __future__ import annotations

from dataclasses import fields
from typing import Literal

from torch import Tensor, nn

from recalib.errors import InputError
from recalib.losses import LOSSES
from recalib.losses.base import Loss
from recalib.losses.crl import Crl
from recalib.options import configure
from recalib.recipe import LossPart, Schedule

__all__ = ["Composition", "Terms"]

Terms = Literal["both", "primary", "secondary"]


class Composition(nn.Module):
    """Primary + β × secondary, the objective of papers 000 and 001; range [0, ∞) for most losses.

    The papers' third term, λ times the squared weights, is the optimiser's weight decay. β and any
    number among the losses' options may follow a schedule over the run: `at` sets them.

    Parameters
    ----------
    part: names, options, β and schedules.
    samples: rows of the training set, which `crl` keeps a history of; 0 where not known.

    Raises
    ------
    InputError: options that a loss does not have or cannot have; a schedule of something that is
        no number, or with a value that the option cannot have.
    """

    def __init__(self, part: LossPart, samples: int = 0) -> None:
        super().__init__()
        self.beta = 1.0 if part.beta is None else part.beta
        self.primary = _made("loss.primary", part.primary, part.options)
        self.secondary: Loss | None = None
        if part.secondary is not None:
            options = part.secondary_options
            if part.secondary == Crl.name:
                options = {"samples": samples, **options}
            self.secondary = _made("loss.secondary", part.secondary, options)
        self._schedules = part.schedules
        for target, schedule in part.schedules.items():
            self._check(target, schedule, part)
        self.at(0.0)

    @property
    def has_history(self) -> bool:
        """Whether a loss keeps a history of samples, which several processes would not share."""
        return isinstance(self.secondary, Crl)

    def start_epoch(self, epoch: int, epochs: int) -> None:
        """Tell the losses that the epoch of this number, from 0, of so many begins."""
        for loss in (self.primary, self.secondary):
            if loss is not None:
                loss.start_epoch(epoch, epochs)

    def at(self, progress: float) -> None:
        """Set what follows a schedule to its value at this share of the run."""
        for target, schedule in self._schedules.items():
            owner, _, option = target.rpartition(".")
            setattr(getattr(self, owner) if owner else self, option, schedule.value(progress))

    def forward(
        self,
        logits: Tensor,
        labels: Tensor,
        indices: Tensor | None = None,
        terms: Terms = "both",
    ) -> Tensor:
        """Return the objective, a scalar.

        Parameters
        ----------
        logits, labels: as every loss takes them.
        indices: which samples of the training set these are; only `crl` asks.
        terms: `primary` or `secondary`, times β, alone, as interleaved training has it.
        """
        if self.secondary is None or terms == "primary":
            return self.primary(logits, labels)  # type: ignore[no-any-return]
        if isinstance(self.secondary, Crl):
            regulariser = self.secondary(logits, labels, indices=indices)
        else:
            regulariser = self.secondary(logits, labels)
        if terms == "secondary":
            return self.beta * regulariser  # type: ignore[no-any-return]
        return self.primary(logits, labels) + self.beta * regulariser  # type: ignore[no-any-return]

    def _check(self, target: str, schedule: Schedule, part: LossPart) -> None:
        """Raise `InputError` unless every value of the schedule is one that its target can have."""
        field = f"loss.schedules.{target}"
        owner, _, option = target.rpartition(".")
        if target == "beta" and self.secondary is not None:
            if min(schedule.values) < 0:
                raise InputError(field, found=f"{min(schedule.values):g}", accepted="beta ≥ 0")
            return
        loss = {"primary": self.primary, "secondary": self.secondary}.get(owner)
        if loss is None or option not in _numbers(loss):
            raise InputError(field, found="no number of these losses", accepted=self._targets())
        options = part.options if owner == "primary" else part.secondary_options
        for value in schedule.values:
            _made(field, loss.name, {**options, option: value})

    def _targets(self) -> str:
        named = {"primary": self.primary, "secondary": self.secondary}
        found = [
            f"{owner}.{option}"
            for owner, loss in named.items()
            if loss is not None
            for option in _numbers(loss)
        ]
        return ", ".join([*(["beta"] if self.secondary is not None else []), *found]) or "none"


def _made(field: str, name: str, options: dict[str, object]) -> Loss:
    try:
        return configure(LOSSES, name, options, field=field)
    except InputError as error:
        if error.field == field:
            raise
        # Of which loss: both have options.
        place = f"{field}: {error.field}"
        raise InputError(place, found=error.found, accepted=error.accepted) from None


def _numbers(loss: Loss) -> list[str]:
    """Return the options of `loss` that are numbers, and may therefore change step by step."""
    return [one.name for one in fields(loss) if isinstance(getattr(loss, one.name), float)]
