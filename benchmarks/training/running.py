"""One run: train a network with one objective and one seed, and cache it as one file."""

from __future__ import annotations

import io
import json
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from torch import Tensor, nn

from benchmarks.data import folder_with
from benchmarks.training.features import Features, feature_splits
from benchmarks.training.networks import FACTORIES
from benchmarks.training.objectives import INTERLEAVED, OBJECTIVES
from recalib.errors import InputError
from recalib.files import write_atomically
from recalib.recipe import Interleave, ModelPart, Optimiser, Recipe
from training.data import DataSpec, Split, Splits, load
from training.data.corruption import CORRUPTIONS, SEVERITIES, corrupted
from training.engine.evaluate import predict
from training.engine.fabric import launch_fabric
from training.engine.loop import Position, train
from training.engine.recipe_data import LoadedData
from training.models import build

#: Validation rows, as papers 000 and 004 keep them.
_VALIDATION = 5000
#: Rows that are measured after each epoch: these numbers are only looked at.
_LOOKED_AT = 200


@dataclass(frozen=True)
class Budget:
    """What every objective is given, the same for all.

    `width` of the first stage, or 0 for the model's own; `size` of images, `rows` to train on;
    `shifted`, test rows that each corruption is tried on, or 0 for no shift. The model `mlp`
    trains on fixed features of the images (`features`).
    """

    model: str = "resnet8"
    size: int = 16
    rows: int = 1500
    epochs: int = 24
    shifted: int = 500
    device: str = "auto"
    batch: int = 64
    rate: float | None = None
    width: int = 8

    @property
    def under_trained(self) -> bool:
        """Whether this is less than what a claim about the papers' networks needs."""
        return self.size < 32 or self.rows < 45_000 or self.epochs < 60


@dataclass(frozen=True)
class Finished:
    """What a run left: logits (N, K), shifted ones (corruption, severity, N, K), and its story.

    `story` holds objective, seed, history, seconds and device; where the run diverged, `diverged`
    with the reason, and no logits.
    """

    story: dict[str, Any]
    arrays: dict[str, NDArray[Any]]


def prepare(folder: Path, budget: Budget, cache: Path) -> Splits:
    """Return CIFAR-10 as the budget has it; features of images are kept in `cache`."""
    options = {
        "train": "cifar10-train.parquet",
        "test": "cifar10-test.parquet",
        "size": budget.size,
    }
    rows = budget.rows if budget.rows < 45_000 else None
    spec = DataSpec("images", options, validation=_VALIDATION, rows=rows)
    splits = load(spec, folder)
    return feature_splits(splits, cache) if budget.model == "mlp" else splits


def prepare_all(budget: Budget, cache: Path) -> LoadedData:
    """Return `prepare` of the folder of CIFAR-10, as what a search loads."""
    return LoadedData(prepare(folder_with("cifar10-train.parquet"), budget, cache), None)


def recipe_for(objective: str, seed: int, budget: Budget) -> Recipe:
    """Return what is trained: the papers' optimiser and schedule, at the budget's length.

    Paper 004, appendix D: SGD, momentum .9, rate .1, divided by 10 after 150 and 250 of 350 epochs,
    and batches of 128, which `batch` may change; decay 5e-4 as in paper 001. Its code clips the
    gradient of a sum to a norm of 2. Crops and flips are
    for images of 32: a small network should come to know its rows by heart in a short time.
    """
    epochs, loss = budget.epochs, OBJECTIVES[objective]
    # Named only where they are used, so that what a run is known by does not change.
    parts: dict[str, Any] = {}
    if objective in INTERLEAVED:
        parts["interleave"] = Interleave(when="always")
    if loss.reduction == "sum":
        parts["clip_norm"] = 2.0
    options = {"width": budget.width} if budget.width else {}
    rate = {} if budget.rate is None else {"learning_rate": budget.rate}
    return Recipe(
        data={},
        model=ModelPart(name=FACTORIES.get(budget.model, budget.model), options=options),
        loss=loss,
        optimiser=Optimiser(milestones=[epochs * 150 / 350, epochs * 250 / 350], **rate),
        epochs=epochs,
        batch_size=budget.batch,
        seed=seed,
        device=budget.device,  # type: ignore[arg-type]
        augmentation="crop_flip" if budget.size >= 32 and budget.model != "mlp" else "none",
        measured_rows=_LOOKED_AT,
        **parts,
    )


def finish(
    cache: Path,
    splits: Splits,
    objective: str,
    recipe: Recipe,
    measured: Callable[[dict[str, NDArray[Any]]], Any],
    shifted: int = 0,
    *,
    again: bool = False,
    initial_weights: dict[str, Tensor] | None = None,
    run: Callable[[], Finished] | None = None,
) -> Finished:
    """Return a run's results: from its file, or from training, which then leaves the file.

    Parameters
    ----------
    objective: what the run is called by.
    measured: called with the arrays; what it returns is kept in the story.
    shifted: as in `Budget`.
    again: whether `measured` is called for the arrays of a run that has a file too.
    initial_weights: as in `training.engine.loop.train`; `recipe.model.weights` is their name.
    run: trains in another way; `recipe.name` tells such a run apart.
    """
    name = "".join(character if character.isalnum() else "_" for character in objective)
    path = cache / f"{name}-{recipe.seed}-{_digest(recipe, splits, shifted)}.npz"
    if path.is_file():
        with np.load(path) as file:
            arrays = {name: file[name] for name in file.files if name != "story"}
            finished = Finished(json.loads(str(file["story"])), arrays)
        if not again:
            return finished
    elif run is not None:
        finished = run()
    else:
        finished = _trained(recipe, splits, objective, shifted, initial_weights)
    if finished.arrays:
        finished.story["measured"] = measured(finished.arrays)
    buffer = io.BytesIO()
    np.savez(buffer, story=json.dumps(finished.story), **finished.arrays)
    cache.mkdir(parents=True, exist_ok=True)
    write_atomically(path, buffer.getvalue())
    return finished


@contextmanager
def record_run(objective: str, recipe: Recipe, splits: Splits) -> Iterator[dict[str, Any]]:
    """Yield the story of a run; it gets the seconds of the block, and why the run diverges."""
    story: dict[str, Any] = {
        "objective": objective, "seed": recipe.seed, "epochs": recipe.epochs,
        "classes": splits.classes,
    }  # fmt: skip
    started, used = time.time(), time.process_time()
    try:
        yield story
    except InputError as error:
        story["diverged"] = str(error)
    story["seconds"] = round(time.time() - started, 1)
    story["processor_seconds"] = round(time.process_time() - used, 1)


def _trained(
    recipe: Recipe,
    splits: Splits,
    objective: str,
    shifted: int,
    initial_weights: dict[str, Tensor] | None,
) -> Finished:
    fabric = launch_fabric(recipe)
    subset = replace(splits, test=splits.test.subset(range(min(_LOOKED_AT, len(splits.test)))))
    if recipe.stop.keep == "last":  # then validation rows decide nothing
        validation = splits.validation.subset(range(min(_LOOKED_AT, len(splits.validation))))
        subset = replace(subset, validation=validation)
    arrays: dict[str, NDArray[Any]] = {}
    with record_run(objective, recipe, splits) as story:
        trained = train(recipe, subset, _NoStore(), NoOp(), initial_weights, fabric)
        part = recipe.model
        network = build(part.name, splits.classes, facts=splits.facts, **part.options)
        network.load_state_dict(trained.weights)
        arrays = _message(fabric, fabric.setup_module(network), splits, shifted)
        story["history"] = trained.history
    story["device"] = _device(fabric.device)
    return Finished(story, arrays)


def _message(
    fabric: Fabric, network: nn.Module, splits: Splits, shifted: int
) -> dict[str, NDArray[Any]]:
    """Return what a network says of validation and test rows, and of shifted ones."""
    arrays: dict[str, NDArray[Any]] = {}
    for name, split in (("validation", splits.validation), ("test", splits.test)):
        arrays[f"{name}_logits"] = predict(fabric, network, split)
        arrays[f"{name}_labels"] = split.labels
    if shifted:
        values = [
            [predict(fabric, network, split) for split in severities]
            for severities in _shifted(splits.test, shifted)
        ]
        arrays["shifted_logits"] = np.array(values)
        arrays["shifted_labels"] = splits.test.labels[:shifted]
    return arrays


def _corrupted(split: Split, name: str, severity: int) -> Split:
    if isinstance(split.inputs, Features):
        return split.inputs.corrupted(split.rows, name, severity)
    return corrupted(split, name, severity)


_SHIFTED: dict[tuple[str, int], list[list[Split]]] = {}


def _shifted(test: Split, rows: int) -> list[list[Split]]:
    """Return the first test rows under each corruption at each severity; made once."""
    key = (test.digest, rows)
    if key not in _SHIFTED:
        sample = test.subset(range(rows))
        _SHIFTED[key] = [
            [_corrupted(sample, name, severity) for severity in SEVERITIES] for name in CORRUPTIONS
        ]
    return _SHIFTED[key]


def _digest(recipe: Recipe, splits: Splits, shifted: int) -> str:
    """Return what tells apart runs that may not be mixed."""
    parts = (recipe.model_dump_json(exclude_unset=True), splits.digest, str(shifted))
    return sha256("".join(parts).encode()).hexdigest()[:16]


def _device(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU {platform.machine()}, {torch.get_num_threads()} thread"


class NoOp:
    """Watches nothing."""

    def check(self) -> None:
        return None

    def at(self, position: Position) -> None:
        return None

    def epoch_over(self, history: list[dict[str, Any]]) -> None:
        return None


class _NoStore:
    """Stores no checkpoints: a run takes minutes."""

    def load(self) -> None:
        return None

    def save(self, data: bytes) -> None:
        return None
