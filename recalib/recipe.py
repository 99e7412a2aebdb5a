"""The recipe of a training run: TOML, JSON or the body of a request.

A recipe names models, losses and data; it contains no code and no import path. This module does not
import torch, so the server validates a recipe before a worker receives it. The worker checks what
only it knows, such as its registered models, when the run starts.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from recalib.core.violations import accepted_values
from recalib.errors import InputError
from recalib.losses import PRIMARY, SECONDARY, SOFT_LABELS, WHOLE_BATCH

# Literals made from the catalogue of losses, which mypy cannot follow.
if TYPE_CHECKING:
    _Primary: TypeAlias = str
    _Secondary: TypeAlias = str
else:
    _Primary = Literal[tuple(PRIMARY)]
    _Secondary = Literal[tuple(SECONDARY)]

#: Largest size of a recipe file, in characters; known recipes have about a thousandth of it.
_MAX_CHARACTERS = 1 << 20
#: tomllib's memory grows with the square of the parts of a dotted name: 100 kB take 10 GB.
_MAX_DOTS = 2000
#: Largest count of epochs or rows.
_MAX_COUNT = 2**31 - 1


def _to_integer(value: Any) -> Any:
    # JSON has a single number type: 4.0 is accepted as 4, and 4.5 is not.
    return int(value) if isinstance(value, float) and value.is_integer() else value


_Integer = BeforeValidator(_to_integer)
_Positive = Annotated[float, Field(gt=0)]
_NotNegative = Annotated[float, Field(ge=0)]
_Count = Annotated[int, Field(ge=1, le=_MAX_COUNT), _Integer]
_Number = Annotated[int, Field(ge=0, le=_MAX_COUNT), _Integer]
_Decay = Annotated[float, Field(ge=0, lt=1)]
_Fraction = Annotated[float, Field(ge=0, le=1)]


class _Part(BaseModel):
    """Base class of the parts of a recipe. Strict: no type conversion, no unknown fields."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Schedule(_Part):
    """A number that changes during a run.

    `at` lists fractions of the run, increasing from 0, and `values` a number for each. With `step`
    each value is used from its fraction on; with `linear` values are interpolated, and the last one
    stays constant.
    """

    #: A number for each part of the run.
    values: list[float] = Field(min_length=1)
    #: Fractions of the run, increasing from 0.
    at: list[_Fraction] = Field(min_length=1)
    #: Whether values are constant or interpolated.
    shape: Literal["step", "linear"] = "step"

    @model_validator(mode="after")
    def _check(self) -> Schedule:
        increasing = all(a < b for a, b in zip(self.at, self.at[1:], strict=False))
        if len(self.at) != len(self.values) or self.at[0] != 0 or not increasing:
            raise ValueError("`at` should increase from 0 and have as many numbers as `values`")
        return self

    def value(self, progress: float) -> float:
        """Return the value at a fraction of the run."""
        # 100/350 is not exact in binary: rounding must not delay a value by a step.
        last = max(i for i, start in enumerate(self.at) if progress + 1e-9 >= start)
        if self.shape == "step" or last + 1 == len(self.at):
            return self.values[last]
        share = (progress - self.at[last]) / (self.at[last + 1] - self.at[last])
        return self.values[last] + max(share, 0.0) * (self.values[last + 1] - self.values[last])


class LossPart(_Part):
    """The training objective: primary + beta × secondary. docs/losses.md lists the names."""

    #: A primary loss.
    primary: _Primary = "cross_entropy"
    #: Options of the primary loss, such as `{gamma = 3.0}`.
    options: dict[str, Any] = {}
    #: A regulariser: the objective is primary + `beta` × secondary.
    secondary: _Secondary | None = None
    #: Options of the regulariser.
    secondary_options: dict[str, Any] = {}
    #: Weight of the regulariser; default 1.
    beta: _NotNegative | None = None
    #: Whether a step minimises the mean over its rows, the default, or the sum: the mean times the
    #: weight of its rows, or for a loss of the whole batch times their number.
    reduction: Literal["mean", "sum"] | None = None
    #: Numbers that change during the run: `beta`, `primary.<option>`, `secondary.<option>`.
    schedules: dict[str, Schedule] = {}

    @model_validator(mode="after")
    def _check(self) -> LossPart:
        if self.secondary is None and (self.secondary_options or self.beta is not None):
            raise ValueError("beta and secondary_options should come with a `secondary`")
        return self


class ModelPart(_Part):
    """The network: a registered architecture, with random weights or weights from a file."""

    #: A registered name; or, on the command line only, `package.module:function` or
    #: `file.py:function`, which makes the network.
    name: str
    #: Options of the architecture, such as `width`.
    options: dict[str, Any] = {}
    #: A file with initial weights, below the data folder: safetensors, or `.pth` of torch.save.
    weights: str | None = None
    #: Whether tensors of `weights` that do not fit are left out, instead of an error.
    partial_weights: bool = False
    #: Whether the last layer starts from random weights, for other classes than in `weights`.
    new_head: bool = False
    #: `head` trains only the last layer and requires `weights`.
    train: Literal["all", "head"] = "all"

    @model_validator(mode="after")
    def _check(self) -> ModelPart:
        fields = {
            "train": self.train == "head",
            "new_head": self.new_head,
            "partial_weights": self.partial_weights,
        }
        needs_weights = [field for field, is_set in fields.items() if is_set]
        if self.weights is None and needs_weights:
            raise ValueError(f"`{needs_weights[0]}` should come with `weights`")
        return self


class Optimiser(_Part):
    """The optimiser and its learning rate schedule.

    `weight_decay` is the papers' λ: SGD, Adam and Adagrad add λ·w to the gradient, AdamW decays w
    separately. `steps` multiplies the rate by `factor` at each of `milestones`, in epochs; `cosine`
    decreases it to 0. Both start after `warmup_epochs` of linear increase.
    """

    #: The optimiser.
    name: Literal["sgd", "adamw", "adam", "adagrad"] = "sgd"
    #: Default 0.1 for SGD, 0.05 for Adagrad, 0.001 for Adam and AdamW.
    learning_rate: _Positive | None = None
    #: The papers' λ.
    weight_decay: _NotNegative = 5e-4
    #: For SGD; default 0.9.
    momentum: _Decay | None = None
    #: For SGD.
    nesterov: bool = False
    #: For Adam and AdamW; default 0.9 and 0.999.
    betas: Annotated[list[_Decay], Field(min_length=2, max_length=2)] | None = None
    #: How the rate falls: at `milestones`, to 0, or not.
    schedule: Literal["steps", "cosine", "constant"] = "steps"
    #: Epochs at which `steps` multiplies the rate by `factor`.
    milestones: list[_Positive] = []
    #: Of `steps`.
    factor: Annotated[float, Field(gt=0, le=1)] = 0.1
    #: Epochs of linear increase before the schedule.
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
        """The initial learning rate."""
        defaults = {"sgd": 0.1, "adagrad": 0.05, "adam": 1e-3, "adamw": 1e-3}
        return defaults[self.name] if self.learning_rate is None else self.learning_rate


class Mixing(_Part):
    """Batches of mixtures of two rows, with probabilities as labels; `training.engine.mixing`."""

    #: `mixup`: λ of a row and 1 − λ of the other; `cutmix`: a box of the other image.
    method: Literal["mixup", "cutmix"]
    #: Of Beta(α, α); 1 is uniform.
    alpha: _Positive = 1.0
    #: Share of the batches that are mixed.
    probability: _Fraction = 1.0


class Interleave(_Part):
    """Interleaved training: the primary loss on most rows, then the secondary on held-out rows.

    `auto` starts without it. Once the training error and the training ECE are below `below`, and
    the validation ECE is more than twice the training ECE, the network has memorised its training
    rows, and the run restarts with interleaving. Source: paper 000, appendix B.
    """

    #: When a run is interleaved.
    when: Literal["never", "always", "auto"] = "never"
    #: The fraction of the training rows that only the secondary loss uses.
    held_out: Annotated[float, Field(gt=0, lt=1)] = 0.1
    #: For `auto`: error and ECE of the training rows below which the run restarts.
    below: Annotated[float, Field(gt=0, lt=1)] = 0.01


class Stop(_Part):
    """Early stopping and the choice of the final weights.

    `best` keeps the weights of the epoch with the best score on validation rows: the smallest NLL
    or Brier score, or the largest accuracy, with which paper 004 chooses. A run ends
    after `patience` epochs without improvement; 0 disables early stopping. Neither counts the
    epochs of a warm-up, of which paper 002 keeps none.
    """

    #: The weights that are delivered.
    keep: Literal["last", "best"] = "last"
    #: The score of validation rows.
    score: Literal["nll", "brier", "accuracy"] = "nll"
    #: Epochs without a better score after which the run ends; 0 for no limit.
    patience: _Number = 0
    #: Epochs at the start that are not chosen; paper 002 has 40 of 200.
    warmup_epochs: _Number = 0


class Dense(_Part):
    """Predictions of a class for each pixel."""

    #: Pixels of the validation and of the test images whose logits are written, a uniform sample.
    logit_pixels: _Count = 100_000
    #: Pixels of a step that losses quadratic in pixels see.
    loss_pixels: _Count = 4096
    #: Half-width of the boundary band that is measured, in pixels.
    boundary: Annotated[int, Field(ge=1, le=1000), _Integer] = 3


class Calibrate(_Part):
    """A calibrator that is fitted to the validation logits after the run.

    With a registry it becomes a version of `model`.
    """

    #: A map.
    map: str = "temperature"
    #: What the fit minimises.
    objective: str = "nll"
    #: Options of the map.
    options: dict[str, Any] = {}
    #: On a server: the model of the registry that gets the calibrator.
    model: str | None = None
    #: On a server: whether it becomes the champion.
    promote: bool | Literal["if_better"] = "if_better"


class Range(_Part):
    """The ends of a range of positive values; Optuna searches it on a logarithmic scale."""

    #: Lower end.
    low: _Positive
    #: Upper end.
    high: _Positive

    @model_validator(mode="after")
    def _check(self) -> Range:
        if self.low >= self.high:
            raise ValueError("`low` should be less than `high`")
        return self


class Tune(_Part):
    """A search for numbers of the recipe: a list for each, or with Optuna also a `Range`.

    `sequential` tries the values of one option after the other, with the other options at their
    best, in the order of paper 000, appendix G: `kappa` and `temperature` of the secondary loss,
    `beta`, `weight_decay`, then the fields of `values`. `grid` tries all combinations; `optuna`
    proposes `trials` of them.

    The best trial is selected on validation rows. `error_within_accuracy`, the rule of paper 000,
    takes the lowest `error` among trials whose accuracy is within `accuracy_within` of the best;
    `nll` takes the lowest negative log-likelihood.
    """

    #: How trials are proposed.
    search: Literal["sequential", "grid", "optuna"] = "sequential"
    #: For Optuna: the number of trials.
    trials: _Count | None = None
    #: Values for the secondary loss.
    kappa: list[_Positive] | Range = []
    #: Values for the secondary loss.
    temperature: list[_Positive] | Range = []
    #: Values.
    beta: list[_NotNegative] | Range = []
    #: Values.
    weight_decay: list[_NotNegative] | Range = []
    #: Values of any other field, by its name, as `optimiser.learning_rate` or `loss.options.gamma`.
    values: dict[str, list[int | float] | Range] = {}
    #: For Optuna: whether a trial ends after an epoch with a worse NLL than the median of others.
    prune: bool = False
    #: The rule that selects the best trial.
    select: Literal["error_within_accuracy", "nll"] = "error_within_accuracy"
    #: The error of a trial.
    error: Literal["ece", "ece_l2_equal_mass", "ece_equal_mass"] = "ece_l2_equal_mass"
    #: How far below the best accuracy a trial may be.
    accuracy_within: _Fraction = 0.01

    @model_validator(mode="after")
    def _check(self) -> Tune:
        named = (self.kappa, self.temperature, self.beta, self.weight_decay)
        options = (*named, *self.values.values())
        if not any(options):
            raise ValueError("at least one option should have values to try")
        if (self.trials is not None) != (self.search == "optuna"):
            raise ValueError("`trials` should come with search `optuna`, and only with it")
        if self.search != "optuna" and any(isinstance(values, Range) for values in options):
            raise ValueError("a range should come with search `optuna`; others try lists of values")
        if self.prune and (self.search, self.select) != ("optuna", "nll"):
            raise ValueError("`prune` should come with search `optuna` and select `nll`")
        return self


class Recipe(_Part):
    """A training run."""

    #: Name of the run, and of its folder in `runs`.
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._\-]*$", max_length=100)] = "run"
    #: The fields of `training.data.DataSpec`; files are below the data folder.
    data: dict[str, Any]
    #: The network.
    model: ModelPart
    #: The loss.
    loss: LossPart = LossPart()
    #: The optimiser.
    optimiser: Optimiser = Optimiser()
    #: Mixup or CutMix.
    mixing: Mixing | None = None
    #: Training with held-out rows.
    interleave: Interleave = Interleave()
    #: Which weights are kept.
    stop: Stop = Stop()
    #: A class for each pixel.
    dense: Dense = Dense()
    #: A fit after training.
    calibrate: Calibrate | None = None
    #: Options to try.
    tune: Tune | None = None
    #: Number of epochs.
    epochs: _Count = 30
    #: Rows of an optimiser step, over all processes and all parts of `accumulate`.
    batch_size: _Count = 128
    #: Parts that a batch is split into, to bound memory.
    accumulate: _Count = 1
    #: Largest ℓ2 norm of the gradient of a step; by default gradients are not clipped.
    clip_norm: _Positive | None = None
    #: Decay of the exponential moving average of the weights; by default there is none.
    ema_decay: Annotated[float, Field(gt=0, lt=1)] | None = None
    #: Of weights, order of rows, augmentation and dropout.
    seed: _Number = 1
    #: `auto` is bf16 on an accelerator that supports it, otherwise 32. fp16 scales gradients.
    precision: Literal["auto", "32", "bf16", "fp16"] = "auto"
    #: `auto` (a CUDA GPU or the CPU), `cpu`, `cuda`, a GPU by its number, as `cuda:1`, or `mps`,
    #: Apple's GPUs, which have no float64: sums are in float32 there.
    device: Annotated[str, Field(pattern=r"^(auto|cpu|mps|cuda(:\d{1,3})?)$")] = "auto"
    #: Whether kernels are used that give the same bits each time, and float32 instead of TF32.
    deterministic: bool = True
    #: Whether images are stored with their channels last, which convolutions on GPUs prefer.
    channels_last: bool = False
    #: `torch.compile` of the network in training: its mode. `reduce-overhead` uses CUDA graphs.
    compile: Literal["none", "default", "reduce-overhead", "max-autotune"] = "none"
    #: Random augmentation of training rows: a name in `training.data.AUGMENTATIONS`.
    augmentation: str = "none"
    #: Processes that load batches: read, decode and augment; 0 loads them where they are used.
    workers: Annotated[int, Field(ge=0, le=64), _Integer] = 0
    #: Training rows that are evaluated after each epoch, without augmentation; 0 for all.
    measured_rows: _Number = 5000
    #: Epochs from one evaluation to the next; the last epoch has one.
    measure_every: _Count = 1
    #: Whether `curves.html` and `report.html` are written.
    report: bool = True
    #: Steps between checkpoints; 0 for one at the end of each epoch.
    checkpoint_steps: _Number = 0

    @model_validator(mode="after")
    def _check(self) -> Recipe:
        if self.interleave.when != "never" and self.loss.secondary is None:
            raise ValueError("interleaved training should come with a secondary loss")
        if self.accumulate > self.batch_size:
            raise ValueError("`accumulate` should be at most `batch_size`")
        batch_losses = sorted(WHOLE_BATCH & {self.loss.primary, self.loss.secondary})
        if self.accumulate > 1 and batch_losses:
            raise ValueError(
                f"`accumulate` should be 1: {batch_losses[0]} is a loss of the whole batch"
            )
        if self.compile == "max-autotune" and self.deterministic:
            raise ValueError(
                "`deterministic` should be false: max-autotune chooses kernels by their time"
            )
        if self.mixing is not None:
            self._check_soft_labels("primary", self.loss.primary, PRIMARY)
            self._check_soft_labels("secondary", self.loss.secondary, SECONDARY)
        return self

    def _check_soft_labels(self, field: str, name: str | None, names: Iterable[str]) -> None:
        if name is not None and name not in SOFT_LABELS:
            accepted = ", ".join(other for other in names if other in SOFT_LABELS)
            raise ValueError(
                f"`mixing` should come with a {field} loss that accepts probabilities as labels, "
                f"not {name}: {accepted}"
            )

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Recipe:
        """Return the recipe of a parsed TOML or JSON document.

        Raises
        ------
        InputError: an unknown field, or a value that its field does not accept; names the field.
        """
        try:
            return cls.model_validate(dict(document))
        except ValidationError as error:
            raise _as_input_error(error) from None


def read_recipe(path: Path) -> Recipe:
    """Return the recipe in a .toml or .json file; raise `InputError` if it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise InputError(
            "config", found=f"{path} ({reason})", accepted="a .toml or .json file"
        ) from None
    dots = max((line.count(".") for line in text.splitlines()), default=0)
    if len(text) > _MAX_CHARACTERS or dots > _MAX_DOTS:
        found = f"{path}: {len(text)} characters, {dots} dots in a line"
        accepted = f"at most {_MAX_CHARACTERS}, and {_MAX_DOTS}"
        raise InputError("config", found=found, accepted=accepted)
    parsers = {".toml": tomllib.loads, ".json": json.loads}
    if path.suffix not in parsers:
        raise InputError("config", found=str(path), accepted="a name ending in .toml or .json")
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
    # Rules of a table are located at the table; rules of the recipe have no location.
    field = ".".join(str(part) for part in first["loc"]) or "recipe"
    if first["type"] == "missing":
        return InputError(field, found="nothing", accepted="a value; it has no default")
    if first["type"] == "extra_forbidden":
        return InputError(field, found="unknown field", accepted="a field of docs/training.md")
    found = f"{first['input']!r:.80}" if not isinstance(first["input"], dict) else "this table"
    return InputError(field, found=found, accepted=accepted_values(first))
