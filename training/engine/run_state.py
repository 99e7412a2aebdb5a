"""The state of a run: start, checkpoint and resume network, objective, optimiser, counters."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor, nn

from recalib.errors import InputError
from recalib.losses.crl import Crl
from recalib.recipe import ModelPart, Recipe
from training.data import Batch, Splits
from training.data.augmentation import augmentation
from training.engine.batches import seed_of
from training.engine.checkpoint_format import (
    Checkpoint,
    Counters,
    RunIdentity,
    save_state,
    snapshot,
)
from training.engine.checkpoints import Checkpoints
from training.engine.continuation import check_continuation
from training.engine.evaluate import evaluating, forward
from training.engine.kernels import accelerator_of
from training.engine.objective import TrainingObjective
from training.engine.optimizer import optimiser_for
from training.engine.trainer import Trainer
from training.engine.weights import (
    LoadedWeights,
    freeze_all_but_head,
    load_weights,
    trained_parameters,
)
from training.models import build, check_model
from training.models.size import is_about_size

if TYPE_CHECKING:
    from lightning_fabric import Fabric

_LOGGER = logging.getLogger(__name__)
#: Identifier of a random stream; `batches` uses 1 and 2.
_WEIGHTS = 3
#: Arguments of `build` that this module sets.
_OURS = {"name", "classes", "facts"}
#: Fields of a recipe that do not change the trained weights.
_AFTERWARDS: dict[str, Any] = {
    **dict.fromkeys(("name", "calibrate", "tune", "checkpoint_steps", "report", "workers"), True),
    "measure_every": True,
    "dense": {"logit_pixels"},
}


@dataclass(kw_only=True)
class Run(Trainer):
    """The state of a run, with its recipe and data."""

    objective: TrainingObjective
    splits: Splits
    counters: Counters
    #: What the network has taken from the user's weights, if there are any.
    loaded_weights: LoadedWeights | None = None
    #: The weights with the best score so far, where the recipe keeps the best.
    best: dict[str, Tensor] | None = None

    def resume(self, checkpoint: Checkpoint | None) -> None:
        """Resume from a checkpoint; None starts from the beginning.

        Raises
        ------
        InputError: a checkpoint of another recipe or other data; names the field.
        """
        if checkpoint is not None:
            run, self.counters = self.counters.run, checkpoint.counters
            check_continuation(self.counters.run, run, self.recipe, self.objective)
            self.counters.run = run
            self.best = checkpoint.restore(self._modules(), self.optimiser)
            if self.counters.scaler:
                self.fabric.strategy.precision.load_state_dict(self.counters.scaler)
            self.loss_sum.fill_(self.counters.loss_sum)

    def save(self, checkpoints: Checkpoints) -> None:
        """Save a checkpoint; of several processes, the first does.

        Raises
        ------
        InputError: the run has diverged; nothing is written.
        """
        self.read_loss()
        self.counters.scaler = self.fabric.strategy.precision.state_dict()
        if self.fabric.is_global_zero:
            checkpoints.save(save_state(self.counters, self._modules(), self.optimiser, self.best))
        self.fabric.barrier()

    def _modules(self) -> dict[str, nn.Module]:
        """Return the modules of a checkpoint."""
        average = {} if self.average is None else {"average": self.average.module}
        return {"model": self.model, "objective": self.objective, **average}

    def read_loss(self) -> float:
        """Return the mean objective over this epoch so far; `DivergedError` if it diverges."""
        at = f"at epoch {self.counters.epoch + 1}, step {self.counters.step}"
        self.counters.loss_sum = self.read_loss_sum(at)
        return self.counters.loss_sum / max(self.counters.step, 1)

    def weights_now(self) -> dict[str, Tensor]:
        """Return a copy of the current weights, or of their moving average."""
        model = self.model if self.average is None else self.average.module
        return snapshot(model.state_dict())

    def weights(self) -> dict[str, Tensor]:
        """Return the weights that the recipe keeps: the last or the best."""
        return self.best or self.weights_now()

    def start_next_epoch(self) -> None:
        """Count a finished epoch; `DivergedError` if its objective is not finite."""
        self.read_loss()
        self.counters.epoch, self.counters.step = self.counters.epoch + 1, 0
        self.loss_sum.zero_()

    def begin_epoch(self) -> None:
        """Set losses and layers up for the next epoch."""
        self.objective.start_epoch(self.counters.epoch, self.recipe.epochs)
        self.network.train()
        if self.recipe.model.train == "head":
            freeze_all_but_head(self.model)


def begin(
    recipe: Recipe,
    splits: Splits,
    fabric: Fabric,
    initial_weights: dict[str, Tensor] | None,
    *,
    interleaved: bool,
) -> Run:
    """Return a run before its first step.

    Parameters
    ----------
    initial_weights: the user's weights to start from; random by the seed if None.

    Raises
    ------
    InputError: an unknown model or loss, invalid options, or weights that do not fit.
    """
    objective = _objective(recipe, splits, gather=fabric.world_size > 1)
    torch.manual_seed(seed_of(recipe.seed, _WEIGHTS))
    model = _build(recipe, splits)
    _check_inputs(recipe, splits, model)
    loaded = None
    if initial_weights is not None:
        part = recipe.model
        loaded = load_weights(
            model, initial_weights, new_head=part.new_head, partial=part.partial_weights
        )
        if part.partial_weights and fabric.is_global_zero:
            _LOGGER.warning(
                "model.weights: %s", loaded.describe(), extra={"action": "load_weights"}
            )
    if recipe.model.train == "head":
        freeze_all_but_head(model)
    if recipe.channels_last:
        _check_images(splits)
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if fabric.world_size > 1:
        _find_unused_parameters(recipe, splits, fabric, model)
    network = fabric.setup_module(_compile(recipe, model))
    objective.to(fabric.device)
    optimiser = optimiser_for(recipe.optimiser, trained_parameters(model), fabric)
    steps: Any = fabric.setup_optimizers(optimiser)
    counters = Counters(run=_identity(recipe, splits, initial_weights), interleaved=interleaved)
    return Run(
        recipe=recipe,
        fabric=fabric,
        model=model,
        network=network,
        objective=objective,
        optimiser=steps,
        splits=splits,
        counters=counters,
        loaded_weights=loaded,
    )


def _objective(recipe: Recipe, splits: Splits, *, gather: bool) -> TrainingObjective:
    dense = {}
    if splits.is_dense:
        _check_dense(recipe)
        void = splits.ignore_index
        for options in (recipe.loss.options, recipe.loss.secondary_options):
            if options.get("ignore_index", void) != void:
                raise InputError(
                    "loss.options.ignore_index",
                    found=f"{options['ignore_index']}, and {void} in data.options",
                    accepted="nothing: the data determine it",
                )
        # Images with fewer pixels than that give all of theirs.
        places = splits.train.labels[0].size
        count = min(max(1, recipe.dense.loss_pixels // recipe.batch_size), places)
        dense = {"ignore_index": void, "image_pixels": count}
    return TrainingObjective(recipe.loss, len(splits.train), gather=gather, **dense)


def _check_dense(recipe: Recipe) -> None:
    """Raise `InputError` for parts that have no meaning for labels of pixels."""
    if recipe.mixing is not None:
        found = f"{recipe.mixing.method}, for labels of pixels"
        accepted = "none: each pixel has one class"
        raise InputError("mixing.method", found=found, accepted=accepted)
    if recipe.augmentation != "none" and recipe.loss.secondary == Crl.name:
        found = f"{recipe.augmentation}, with the loss crl of pixels"
        accepted = "none: crl keeps a history of each pixel, and pixels move"
        raise InputError("augmentation", found=found, accepted=accepted)


def check_recipe(recipe: Recipe, splits: Splits) -> None:
    """Raise `InputError` for what needs no Fabric: device, loss, name and options of a network."""
    accelerator_of(recipe.device)
    _objective(recipe, splits, gather=False)
    check_network(recipe, splits, max_weights=None)


def check_network(recipe: Recipe, splits: Splits, max_weights: int | None) -> None:
    """Raise `InputError` for a network that is invalid or has more than `max_weights` weights.

    No memory is allocated for the weights; with None, they are not counted.
    """
    with _fields_of_model(recipe.model):
        part = recipe.model
        check_model(part.name, splits.classes, splits.facts, part.options, max_weights)


def _build(recipe: Recipe, splits: Splits) -> nn.Module:
    part = recipe.model
    with _fields_of_model(part):
        try:
            return build(part.name, splits.classes, facts=splits.facts, **part.options)
        except Exception as error:
            is_ours = ":" not in part.name or isinstance(error, InputError)
            if is_ours or is_about_size(error):
                raise
            found = f"{part.name}, which raises {type(error).__name__}: {_line(error)}"
            accepted = "a function that returns a torch module"
            raise InputError("model", found=found, accepted=accepted) from error


@contextmanager
def _fields_of_model(part: ModelPart) -> Iterator[None]:
    """Translate errors to the fields of a recipe."""
    for option in _OURS & set(part.options):
        accepted = "nothing: the data determine it"
        raise InputError(f"model.options.{option}", found="a value", accepted=accepted)
    try:
        yield
    except InputError as error:
        field = "model.name" if error.field == "model" else f"model.{error.field}"
        raise InputError(field, found=error.found, accepted=error.accepted) from None
    except (RuntimeError, OverflowError, TypeError, MemoryError) as error:
        if not is_about_size(error):
            raise
        accepted = "a network that fits into memory"
        raise InputError("model.options", found=_line(error), accepted=accepted) from error


def _check_inputs(recipe: Recipe, splits: Splits, model: nn.Module) -> None:
    """Raise `InputError` where network or augmentation do not suit the rows and labels.

    Examples are images for a text network, and a classifier of images for labels of pixels. Two
    rows are tried before training.
    """
    rows = _first_rows(recipe, splits)
    training = model.training
    try:
        with torch.no_grad():
            shape = tuple(forward(model.eval(), rows).shape)
    except (RuntimeError, IndexError, TypeError, ValueError) as error:
        sizes = ", ".join(str(tuple(tensor.shape[1:])) for tensor in _tensors(rows))
        found = f"{recipe.model.name}, for rows {sizes}: {_line(error)}"
        raise InputError("model.name", found=found, accepted="one for such rows") from error
    finally:
        model.train(training)
    labels = splits.train.labels
    expected = (shape[0], splits.classes, *labels.shape[1:])
    if (splits.is_dense or len(shape) > 2) and shape != expected:
        found = f"{recipe.model.name}, whose logits are {shape}"
        accepted = f"{expected} for labels {labels.shape[1:]}"
        raise InputError("model.name", found=found, accepted=accepted)


def _first_rows(recipe: Recipe, splits: Splits) -> Batch:
    """Return two rows for the network."""
    numbers = np.arange(min(2, len(splits.train)))
    augment = augmentation(recipe.augmentation, splits.ignore_index)
    targets = torch.from_numpy(splits.train.labels[numbers])
    return augment(splits.train.batch(numbers), targets, torch.Generator())[0]


def _find_unused_parameters(
    recipe: Recipe, splits: Splits, fabric: Fabric, model: nn.Module
) -> None:
    """Set several processes up for the parameters from which the logits do not depend, and say so.

    Examples are the pooler of a text network and an auxiliary classifier of images.
    """
    with evaluating(model):
        forward(model, _first_rows(recipe, splits)).sum().backward()  # type: ignore[no-untyped-call]
    parameters = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    unused = [name for name, parameter in parameters if parameter.grad is None]
    model.zero_grad(set_to_none=True)
    if not unused:
        return
    from training.engine.fabric import find_unused_parameters

    find_unused_parameters(fabric)
    if fabric.is_global_zero:
        _LOGGER.warning(
            "model: %d parameters get no gradient and stay as they are, such as %s",
            len(unused), unused[0], extra={"action": "find_unused_parameters"},
        )  # fmt: skip


def _check_images(splits: Splits) -> None:
    """Raise `InputError` where rows are no images, which have a memory format."""
    rows = splits.train.batch(np.arange(1))
    if not isinstance(rows, Tensor) or rows.ndim != 4:
        shape = ", ".join(str(tuple(tensor.shape[1:])) for tensor in _tensors(rows))
        raise InputError(
            "channels_last", found=f"true, for rows {shape}", accepted="images (C, H, W)"
        )


def _compile(recipe: Recipe, model: nn.Module) -> nn.Module:
    """Return the network as the recipe compiles it; its parameters are those of `model`."""
    if recipe.compile == "none":
        return model
    # Batches have few shapes: the last batch of an epoch, or of its second half, is smaller.
    compiled: nn.Module = torch.compile(model, mode=recipe.compile, dynamic=False)  # type: ignore[assignment]
    return compiled


def _tensors(rows: Batch) -> tuple[Tensor, ...]:
    if isinstance(rows, Tensor):
        return (rows,)
    return rows if isinstance(rows, tuple) else tuple(rows.values())


def _line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def _identity(
    recipe: Recipe, splits: Splits, initial_weights: dict[str, Tensor] | None
) -> RunIdentity:
    weights = ""
    if initial_weights is not None:
        tensors = safetensors.torch.save(snapshot(initial_weights))
        weights = hashlib.sha256(tensors).hexdigest()
    return RunIdentity(recipe.model_dump(mode="json", exclude=_AFTERWARDS), splits.digest, weights)
