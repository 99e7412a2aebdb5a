"""Train a torch module on data loaders of the user, with the losses of Recalib."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Optimizer

from recalib.core.options import unknown_name
from recalib.errors import InputError
from recalib.losses import PRIMARY, SECONDARY
from recalib.recipe import Recipe
from training.engine.batches import seed_of
from training.engine.dense import DensePrediction, dense_measures
from training.engine.divergence import DivergedError
from training.engine.evaluate import (
    Prediction,
    evaluating,
    forward,
    measure,
)
from training.engine.loading import to_device
from training.engine.objective import LossSum, make_loss
from training.engine.optimizer import optimiser_for
from training.engine.trainer import Trainer

_LOADERS = ("train", "validation", "test")
#: Logits (n, K, ...) and labels (n, ...).
_Output = tuple[NDArray[np.float32], NDArray[np.int64]]


@dataclass(frozen=True)
class TrainedModel:
    """A trained module, and what it predicts; N rows, K classes.

    For labels (N, H, W), rows are a uniform sample of the pixels, and the metrics in `history` are
    those of all pixels. Rows whose label is the loss's `ignore_index` are left out.
    """

    #: In evaluation mode, on the device of the training.
    model: nn.Module
    #: For each epoch: `epoch` from 1, the mean `loss`, `seconds`, and the metrics of `validation`.
    history: list[dict[str, Any]]
    #: float32 (N, K), and int64 (N,).
    validation_logits: NDArray[np.float32]
    validation_labels: NDArray[np.int64]
    #: None without a loader `test`.
    test_logits: NDArray[np.float32] | None = None
    test_labels: NDArray[np.int64] | None = None


def train(
    model: nn.Module,
    loaders: Mapping[str, Iterable[Any]],
    *,
    loss: str | nn.Module = "cross_entropy",
    options: Mapping[str, Any] | None = None,
    secondary: str | nn.Module | None = None,
    secondary_options: Mapping[str, Any] | None = None,
    beta: float | Mapping[str, Any] | None = None,
    optimiser: str | Mapping[str, Any] | Optimizer = "sgd",
    epochs: int = 30,
    clip_norm: float | None = None,
    ema_decay: float | None = None,
    dense: Mapping[str, Any] | None = None,
    seed: int = 1,
    device: str = "auto",
    precision: Literal["auto", "32", "bf16", "fp16"] = "auto",
    deterministic: bool = True,
    progress: Callable[[dict[str, Any]], object] = lambda record: None,
) -> TrainedModel:
    """Train `model` in place on the objective loss + β × secondary, in one process.

    The same seed gives the same weights, on the same kind of machine with the same number of
    threads: it determines dropout, and the order of the rows in a loader without a generator.
    The initial weights are those of `model`. Parameters without `requires_grad` stay.

    Parameters
    ----------
    model: returns logits (N, K) or (N, K, ...), log-odds (N,) or (N, 1) of class 1 of 2, or an
        object or a dictionary with `logits`.
    loaders: `train`, `validation`, and optionally `test`: torch `DataLoader`s, or any iterables
        that can be read once per epoch. A batch is (inputs, labels), (input, input, ..., labels),
        or a dictionary with `labels`, whose other entries are keyword arguments of `model`.
    loss, options: the name of a primary loss of docs/losses.md with its options, or a module that
        maps logits and labels to a scalar.
    secondary, secondary_options: the same for a regulariser; none by default.
    beta: β ≥ 0, the weight of `secondary`; 1 by default. Or the fields of a schedule of a recipe,
        such as `{"values": [0, 1], "at": [0, 0.5], "shape": "linear"}`, `at` being fractions of the
        epochs.
    optimiser: `sgd`, `adamw`, `adam` or `adagrad`; or the fields of a recipe's `[optimiser]`; or an
        optimiser of torch with the parameters of `model`, whose learning rate stays as it is.
    clip_norm: the largest ℓ2 norm of a step's gradient; by default gradients are not clipped.
    ema_decay: decay in (0, 1) of an exponential moving average of weights and running statistics,
        which is measured and returned; by default there is none.
    dense: the fields of a recipe's `[dense]`, for labels (N, H, W).
    device: `cpu`, `cuda`, or `cuda:1` and so on; `auto` is a GPU if there is one.
    precision: `auto` is bf16 on a GPU that supports it, otherwise 32; `fp16` scales gradients, for
        older GPUs. Predictions are float32.
    deterministic: on a GPU, whether kernels are used that give the same bits each time, without
        TF32; it holds for the process.
    progress: called after each epoch with its record in the history, such as `print`.

    Raises
    ------
    InputError: an invalid argument or batch; it names the argument. Or a run that diverges.

    Example
    -------
    >>> result = train(network, {"train": rows, "validation": held_out}, loss="focal")
    >>> calibrator = recalib.fit(result.validation_logits, result.validation_labels)
    """
    # 1. Check the arguments. A recipe checks its fields.
    is_schedule = isinstance(beta, Mapping)
    recipe = _recipe(
        optimiser,
        loss={"schedules": {"beta": beta} if is_schedule else {}},
        dense=dict(dense or {}),
        epochs=epochs,
        clip_norm=clip_norm,
        ema_decay=ema_decay,
        seed=seed,
        device=device,
        precision=precision,
        deterministic=deterministic,
    )
    _check_loaders(loaders)
    for value in recipe.loss.schedules["beta"].values if is_schedule else [beta]:
        _check_beta(value, secondary)
    objective = LossSum(
        _term("loss", PRIMARY, loss, options),
        None if secondary is None else _term("secondary", SECONDARY, secondary, secondary_options),
        None if isinstance(beta, Mapping) else beta,
    )
    parameters = [p for p in model.parameters() if p.requires_grad]
    if not parameters:
        raise InputError("model", found="no parameter with requires_grad", accepted="one or more")

    # 2. Each epoch: steps, then the metrics of the validation rows.
    from training.engine.fabric import launch_fabric  # seconds, after the checks

    fabric = launch_fabric(recipe)
    objective.to(fabric.device)
    is_scheduled = not isinstance(optimiser, Optimizer)
    if not isinstance(optimiser, Optimizer):
        optimiser = optimiser_for(recipe.optimiser, parameters, fabric)
    network, steps = fabric.setup(model, optimiser)
    run = _Run(
        recipe=recipe,
        fabric=fabric,
        model=model,
        network=network,
        objective=objective,
        optimiser=steps,
        is_scheduled=is_scheduled,
    )
    network.train()  # a pretrained network often is in evaluation mode
    history: list[dict[str, Any]] = []
    devices = [fabric.device] if fabric.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        for epoch in range(epochs):
            torch.manual_seed(seed_of(seed, epoch))
            started = time.monotonic()
            objective.start_epoch(epoch, epochs)
            mean_loss = run.epoch(loaders["train"], epoch)
            seconds = round(time.monotonic() - started, 3)
            with run.averaged():
                validation = run.predict(loaders, "validation")
            record = {"epoch": epoch + 1, "loss": mean_loss, "seconds": seconds}
            history.append({**record, "validation": validation.measures})
            progress(history[-1])
        # 3. The averaged weights, and the logits of the test rows.
        if run.average is not None:
            model.load_state_dict(run.average.module.state_dict())
        test = run.predict(loaders, "test") if "test" in loaders else None
    return TrainedModel(
        model.eval(),
        history,
        validation.logits,
        validation.labels,
        None if test is None else test.logits,
        None if test is None else test.labels,
    )


@dataclass(kw_only=True)
class _Run(Trainer):
    """The state of a training."""

    #: Whether the recipe determines the learning rate.
    is_scheduled: bool

    def epoch(self, loader: Iterable[Any], epoch: int) -> float:
        """Train an epoch, and return the mean of the objective over its steps."""
        count, steps = 0, _length(loader)
        self.loss_sum.zero_()
        self.optimiser.zero_grad()
        for count, batch in enumerate(loader, 1):
            inputs, labels = to_device(self.fabric, _inputs_and_labels("train", batch))
            position, step = (epoch + (count - 1) / steps, 1 / steps) if steps else (epoch, 1)
            if self.is_scheduled:
                self.schedule(position, step)
            if (beta := self.recipe.loss.schedules.get("beta")) is not None:
                self.objective.beta = beta.value(position / self.recipe.epochs)
            if labels.ndim > 1:
                self.objective.image_pixels = max(1, self.recipe.dense.loss_pixels // len(labels))
            self.backward(self.objective(forward(self.network, inputs), labels))
            self.step()
        if not count:
            raise _no_batch("train", f"no batch in epoch {epoch + 1}")
        return self.read_loss_sum(f"in epoch {epoch + 1}") / count

    def predict(self, loaders: Mapping[str, Iterable[Any]], name: str) -> Prediction:
        """Return the prediction for a loader."""
        void = getattr(self.objective.primary, "ignore_index", None)
        with evaluating(self.network), torch.inference_mode():
            batches = self._outputs(loaders, name)
            first = next(batches, None)
            if first is None:
                raise _no_batch(name, "no row")
            batches = chain([first], batches)
            if first[1].ndim == 3:
                return self._predict_pixels(batches, first[0].shape[1], void)
            parts = [_as_rows(*batch) for batch in batches]
        logits, labels = map(np.concatenate, zip(*parts, strict=True))
        counts = labels != void
        logits, labels = logits[counts], labels[counts]
        if not len(labels):
            raise _no_batch(name, "no row")
        if not np.isfinite(logits).all():
            raise DivergedError("a network whose logits are not finite")
        return Prediction(logits, labels, measure(logits, labels))

    def _predict_pixels(
        self, batches: Iterable[_Output], classes: int, void: int | None
    ) -> Prediction:
        recipe, count = self.recipe, 0
        prediction = DensePrediction(classes, void, recipe.dense, recipe.seed)
        for logits, labels in batches:
            prediction.add(range(count, count + len(labels)), logits, labels)
            count += len(labels)
        result = prediction.finish()
        return Prediction(*prediction.rows(), dense_measures(result), result)

    def _outputs(self, loaders: Mapping[str, Iterable[Any]], name: str) -> Iterator[_Output]:
        """Yield the logits (n, K, ...) and labels (n, ...) of each batch."""
        for batch in loaders[name]:
            inputs, labels = _inputs_and_labels(name, batch)
            if labels.is_floating_point():
                found = f"labels {labels.dtype}"
                raise InputError(f"loaders.{name}", found=found, accepted="integers")
            logits = forward(self.network, to_device(self.fabric, inputs)).float()
            if logits.ndim == 1:  # the log-odds of class 1 of 2
                logits = torch.stack([torch.zeros_like(logits), logits], dim=1)
            yield logits.cpu().numpy(), labels.cpu().numpy().astype(np.int64)


def _as_rows(
    logits: NDArray[np.float32], labels: NDArray[np.int64]
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return logits (N, K) and labels (N,) of logits (n, K, ...) and labels (n, ...)."""
    return np.moveaxis(logits, 1, -1).reshape(-1, logits.shape[1]), labels.reshape(-1)


def _recipe(optimiser: str | Mapping[str, Any] | Optimizer, **fields: Any) -> Recipe:
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        accepted = "one; `torchrun --no-python recalib train RECIPE` trains in several"
        raise InputError("processes", found=os.environ["WORLD_SIZE"], accepted=accepted)
    if isinstance(optimiser, str):
        fields["optimiser"] = {"name": optimiser}
    elif isinstance(optimiser, Mapping):
        fields["optimiser"] = dict(optimiser)
    elif not isinstance(optimiser, Optimizer):
        accepted = "a name, fields of a recipe's `[optimiser]`, or an optimiser of torch"
        raise InputError("optimiser", found=type(optimiser).__name__, accepted=accepted)
    return Recipe.of({"data": {}, "model": {"name": "model"}, **fields})


def _check_beta(beta: object, secondary: object) -> None:
    is_number = isinstance(beta, int | float) and 0 <= beta < math.inf
    if beta is not None and (secondary is None or not is_number):
        found = f"{beta}" if secondary is not None else f"{beta} without a secondary loss"
        raise InputError("beta", found=found, accepted="a number ≥ 0, with a secondary loss")


def _check_loaders(loaders: Mapping[str, Iterable[Any]]) -> None:
    accepted = "a mapping with `train`, `validation`, and optionally `test`"
    if not isinstance(loaders, Mapping):
        raise InputError("loaders", found=type(loaders).__name__, accepted=accepted)
    if not {"train", "validation"} <= set(loaders) <= set(_LOADERS):
        found = ", ".join(map(str, loaders)) or "nothing"
        raise InputError("loaders", found=found, accepted=accepted)


def _term(
    field: str,
    names: Mapping[str, str],
    loss: str | nn.Module,
    options: Mapping[str, Any] | None,
) -> nn.Module:
    if not isinstance(loss, str):
        if options or not isinstance(loss, nn.Module):
            found = "a module with options" if options else type(loss).__name__
            accepted = "a name with options, or a torch module"
            raise InputError(field, found=found, accepted=accepted)
        return loss
    if loss not in names:
        raise unknown_name(field, loss, names)
    if loss == "crl":
        accepted = "another loss: loaders do not give the positions of rows, which crl needs"
        raise InputError(field, found="crl", accepted=accepted)
    return make_loss(field, loss, dict(options or {}))


def _inputs_and_labels(name: str, batch: Any) -> tuple[Any, Tensor]:
    inputs: Any = None
    labels: Any = None
    if isinstance(batch, Mapping):
        inputs = {key: value for key, value in batch.items() if key != "labels"}
        labels = batch.get("labels")
    elif isinstance(batch, (tuple, list)) and len(batch) > 1:
        *parts, labels = batch
        inputs = parts[0] if len(parts) == 1 else tuple(parts)
    if not isinstance(labels, Tensor):
        found = f"a batch that is a {type(batch).__name__} without a tensor of labels"
        raise _no_batch(name, found)
    return inputs, labels


def _no_batch(name: str, found: str) -> InputError:
    accepted = "batches (inputs, labels), or dictionaries with `labels`, in each epoch"
    return InputError(f"loaders.{name}", found=found, accepted=accepted)


def _length(loader: Any) -> int | None:
    try:
        return len(loader)
    except TypeError:  # a loader of an iterable data set
        return None
