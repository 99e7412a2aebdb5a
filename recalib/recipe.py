"""What a training run is to do, as a user writes it: TOML, JSON or the body of a request.

A recipe names models, losses and data; it never holds a path of code. Nothing here loads torch, so
that a server checks a recipe before a worker sees it. What only a worker knows, such as which
models are registered there, is checked when the run begins.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from recalib.errors import InputError
from recalib.losses import PRIMARY, SECONDARY

__all__ = [
    "Calibrate",
    "Interleave",
    "LossPart",
    "ModelPart",
    "Optimiser",
    "Recipe",
    "Schedule",
    "Stop",
    "Tune",
    "read_recipe",
]

# Literals made from the catalogue of losses, which mypy cannot follow.
if TYPE_CHECKING:
    _Primary: TypeAlias = str
    _Secondary: TypeAlias = str
else:
    _Primary = Literal[tuple(PRIMARY)]
    _Secondary = Literal[tuple(SECONDARY)]

#: Characters of a recipe, a thousand times those of any that we know of.
_LONGEST = 1 << 20
#: tomllib takes the square of the parts of a dotted name in memory: 100 kB of them take 10 GB.
_MOST_DOTS = 2000
#: What a count may be; a run of more would end after us all.
_MOST = 2**31 - 1


def _whole(value: Any) -> Any:
    # JSON knows one kind of number: 4.0 is 4, and 4.5 is none.
    return int(value) if isinstance(value, float) and value.is_integer() else value


_Whole = BeforeValidator(_whole)
_Positive = Annotated[float, Field(gt=0)]
_NotNegative = Annotated[float, Field(ge=0)]
_Count = Annotated[int, Field(ge=1, le=_MOST), _Whole]
_Number = Annotated[int, Field(ge=0, le=_MOST), _Whole]
_Decay = Annotated[float, Field(ge=0, lt=1)]
_Share = Annotated[float, Field(ge=0, le=1)]


class _Part(BaseModel):
    """Strict: "1" is no number, and a name that is not listed is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Schedule(_Part):
    """A number that changes while a run goes on.

    `at` lists shares of the run, from 0 and rising, and `values` a number for each: with `step`
    each counts from its share on, with `linear` what lies between two is interpolated, and the
    last stays.
    """

    values: list[float] = Field(min_length=1)
    at: list[_Share] = Field(min_length=1)
    shape: Literal["step", "linear"] = "step"

    @model_validator(mode="after")
    def _check(self) -> Schedule:
        rising = all(a < b for a, b in zip(self.at, self.at[1:], strict=False))
        if len(self.at) != len(self.values) or self.at[0] != 0 or not rising:
            raise ValueError("`at` should rise from 0, with as many numbers as `values`")
        return self

    def value(self, progress: float) -> float:
        """Return the number at a share of the run."""
        # A little early rather than a step late: 100/350 is not exact.
        last = max(i for i, start in enumerate(self.at) if progress + 1e-9 >= start)
        if self.shape == "step" or last + 1 == len(self.at):
            return self.values[last]
        share = (progress - self.at[last]) / (self.at[last + 1] - self.at[last])
        return self.values[last] + max(share, 0.0) * (self.values[last + 1] - self.values[last])


class LossPart(_Part):
    """What is minimised: primary + beta × secondary, names as in docs/losses.md."""

    primary: _Primary = "cross_entropy"
    options: dict[str, Any] = {}
    secondary: _Secondary | None = None
    secondary_options: dict[str, Any] = {}
    #: By default 1.
    beta: _NotNegative | None = None
    #: By `beta`, `primary.<option>` or `secondary.<option>`.
    schedules: dict[str, Schedule] = {}

    @model_validator(mode="after")
    def _check(self) -> LossPart:
        if self.secondary is None and (self.secondary_options or self.beta is not None):
            raise ValueError("beta and secondary_options should come with a `secondary`")
        return self


class ModelPart(_Part):
    """What is trained: a registered architecture, from random weights or from the user's."""

    name: str
    options: dict[str, Any] = {}
    #: A safetensors file to start from, below the folder of the data.
    weights: str | None = None
    #: Whether the last layer begins anew: for other classes than those of `weights`.
    new_head: bool = False
    #: `head` trains the last layer alone, and needs `weights`.
    train: Literal["all", "head"] = "all"

    @model_validator(mode="after")
    def _check(self) -> ModelPart:
        if self.weights is None and (self.train == "head" or self.new_head):
            raise ValueError("a head goes on top of `weights`, which should be given")
        return self


class Optimiser(_Part):
    """How the weights move, and how the learning rate falls.

    `weight_decay` is the papers' λ: SGD and Adagrad add λ·w to the gradient, AdamW shrinks w
    beside it. `steps` multiplies the rate by `factor` at each of `milestones`, in epochs; `cosine`
    lets it fall to 0. Either follows on `warmup_epochs` of linear rise.
    """

    name: Literal["sgd", "adamw", "adam", "adagrad"] = "sgd"
    #: By default 0.1 for SGD, 0.05 for Adagrad and 0.001 for Adam and AdamW.
    learning_rate: _Positive | None = None
    weight_decay: _NotNegative = 5e-4
    #: Of SGD, by default 0.9.
    momentum: _Decay | None = None
    nesterov: bool = False
    #: Of Adam and AdamW, by default 0.9 and 0.999.
    betas: Annotated[list[_Decay], Field(min_length=2, max_length=2)] | None = None
    schedule: Literal["steps", "cosine", "constant"] = "steps"
    milestones: list[_Positive] = []
    factor: Annotated[float, Field(gt=0, le=1)] = 0.1
    warmup_epochs: _NotNegative = 0.0

    @model_validator(mode="after")
    def _check(self) -> Optimiser:
        if self.milestones and self.schedule != "steps":
            raise ValueError("`milestones` should come with schedule `steps`")
        if self.nesterov and (self.name != "sgd" or self.momentum == 0):
            raise ValueError("`nesterov` should come with `sgd` and a momentum")
        if self.momentum is not None and self.name != "sgd":
            raise ValueError("`momentum` should come with `sgd`")
        if self.betas is not None and self.name not in ("adam", "adamw"):
            raise ValueError("`betas` should come with `adam` or `adamw`")
        return self

    @property
    def rate(self) -> float:
        """The learning rate that the schedule begins from."""
        usual = {"sgd": 0.1, "adagrad": 0.05, "adam": 1e-3, "adamw": 1e-3}
        return usual[self.name] if self.learning_rate is None else self.learning_rate


class Interleave(_Part):
    """Interleaved training: each epoch first primary on most rows, then secondary on the others.

    `auto` begins without; once the training rows' ECE is below `below` and the validation rows'
    more than twice as large, the network has memorised them, and the run begins anew, interleaved.
    Source: paper 000, appendix B.
    """

    when: Literal["never", "always", "auto"] = "never"
    #: The share of the training rows that the secondary loss has to itself.
    held_out: Annotated[float, Field(gt=0, lt=1)] = 0.1
    below: Annotated[float, Field(gt=0, lt=1)] = 0.01


class Stop(_Part):
    """Which weights are delivered, and when a run ends early.

    `best` are those of the epoch with the smallest score on validation rows; `patience` is how
    many epochs without a better one end the run, 0 for none.
    """

    keep: Literal["last", "best"] = "last"
    score: Literal["nll", "brier"] = "nll"
    patience: _Number = 0


class Calibrate(_Part):
    """A calibrator fitted to the validation logits once the run is over.

    With a registry it becomes a version of `model`, which is created where there is none.
    """

    map: str = "temperature"
    objective: str = "nll"
    options: dict[str, Any] = {}
    model: str | None = None
    promote: bool | Literal["if_better"] = "if_better"


class Tune(_Part):
    """Values to try for options, one option after the other, each keeping the best so far.

    Paper 000, appendix G, tunes `kappa` and `temperature` of the secondary loss, `beta` and
    `weight_decay`, in this order. The best is the lowest `error` on validation rows among trials
    whose accuracy is within `accuracy_within` of the best accuracy.
    """

    kappa: list[_Positive] = []
    temperature: list[_Positive] = []
    beta: list[_NotNegative] = []
    weight_decay: list[_NotNegative] = []
    error: Literal["ece", "ece_l2_equal_mass", "ece_equal_mass"] = "ece_l2_equal_mass"
    accuracy_within: _Share = 0.01

    @model_validator(mode="after")
    def _check(self) -> Tune:
        if not (self.kappa or self.temperature or self.beta or self.weight_decay):
            raise ValueError("at least one option should have values to try")
        return self


class Recipe(_Part):
    """All of a training run."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._\-]*$", max_length=100)] = "run"
    #: As `training.data` describes it; its files lie below one folder.
    data: dict[str, Any]
    model: ModelPart
    loss: LossPart = LossPart()
    optimiser: Optimiser = Optimiser()
    interleave: Interleave = Interleave()
    stop: Stop = Stop()
    calibrate: Calibrate | None = None
    tune: Tune | None = None
    epochs: _Count = 30
    #: Rows of one step of the optimiser, over all processes and all of `accumulate`.
    batch_size: _Count = 128
    #: Into how many parts a batch is cut, so that it fits into memory.
    accumulate: _Count = 1
    seed: _Number = 1
    #: `auto` is bf16 where an accelerator computes in it, and otherwise 32.
    precision: Literal["auto", "32", "bf16"] = "auto"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    #: What is done to training rows by chance, as `training.data` lists it.
    augmentation: str = "none"
    #: Training rows that are measured after each epoch, without augmentation; 0 for all.
    measured_rows: _Number = 5000
    #: Whether pages are written: `curves.html` and `report.html`.
    report: bool = True
    #: Steps between checkpoints; 0 for one at the end of each epoch.
    checkpoint_steps: _Number = 0

    @model_validator(mode="after")
    def _check(self) -> Recipe:
        if self.interleave.when != "never" and self.loss.secondary is None:
            raise ValueError("interleaved training should come with a secondary loss")
        if self.accumulate > self.batch_size:
            raise ValueError("`accumulate` should be at most `batch_size`")
        return self

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Recipe:
        """Return the recipe in a document as TOML and JSON give it.

        Raises
        ------
        InputError: a field that there is none of, or a value that it cannot have; names it.
        """
        try:
            return cls.model_validate(dict(document))
        except ValidationError as error:
            raise _as_input_error(error) from None


def read_recipe(path: Path) -> Recipe:
    """Return the recipe in a .toml or .json file; `InputError` where there is none."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "not UTF-8"
        raise InputError(
            "config", found=f"{path} ({why})", accepted="a .toml or .json file"
        ) from None
    dots = max((line.count(".") for line in text.splitlines()), default=0)
    if len(text) > _LONGEST or dots > _MOST_DOTS:
        found = f"{path}: {len(text)} characters, {dots} dots in a line"
        accepted = f"at most {_LONGEST}, and {_MOST_DOTS}"
        raise InputError("config", found=found, accepted=accepted)
    parsers = {".toml": tomllib.loads, ".json": json.loads}
    if path.suffix not in parsers:
        raise InputError("config", found=str(path), accepted="a name that ends in .toml or .json")
    try:
        document = parsers[path.suffix](text)
    except (ValueError, RecursionError) as error:
        accepted = f"{path.suffix[1:].upper()}"
        raise InputError("config", found=f"{path}: {error}", accepted=accepted) from None
    if not isinstance(document, dict):
        raise InputError("config", found=f"{path}: no table", accepted="the fields of a recipe")
    return Recipe.of(document)


def _as_input_error(error: ValidationError) -> InputError:
    first = error.errors(include_url=False)[0]
    # A table's own rules have the table's name, and the whole recipe's have none.
    field = ".".join(str(one) for one in first["loc"]) or "recipe"
    if first["type"] == "missing":
        return InputError(field, found="nothing", accepted="a value; it has no default")
    if first["type"] == "extra_forbidden":
        return InputError(field, found="a field that there is none of", accepted="see the docs")
    found = f"{first['input']!r:.80}" if not isinstance(first["input"], dict) else "this table"
    return InputError(field, found=found, accepted=first["msg"].removeprefix("Value error, "))
