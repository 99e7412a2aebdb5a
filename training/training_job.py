"""The job that trains a network: checkpoints as blobs, files as blobs, and a fit if asked."""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recalib.errors import InputError
from recalib.recipe import Calibrate, Recipe
from recalib.registry import BlobStore, Model
from training.checkpoint_blobs import CheckpointBlobs
from training.fit_job import FIT
from training.worker import Cancelled, JobContext

if TYPE_CHECKING:
    from training.engine.loop import Position

__all__ = ["TRAIN", "training_handler"]

#: The kind of job that this module does.
TRAIN = "train"
_NPZ = "application/x-npz"
_CHUNK = 1 << 20
#: What is left for the files once the last epoch is over.
_TRAINING_SHARE = 0.95


def training_handler(
    folder: Path,
    between: Callable[[], object] = lambda: None,
    every_seconds: float = 0.5,
    *,
    max_weights: int,
) -> Callable[[JobContext], None]:
    """Return what does training jobs.

    Parameters
    ----------
    folder: below which data lie; nothing outside is read.
    between: called between two steps, `every_seconds` at most: a run takes hours, in which a
        worker has other jobs to do. Nothing that it does changes the run's numbers.
    max_weights: of a network that a job may ask for; larger ones are refused before any memory is
        taken.
    """
    return partial(
        _train, folder=folder, pause=_Pause(between, every_seconds), max_weights=max_weights
    )


def _train(context: JobContext, folder: Path, pause: _Pause, max_weights: int) -> None:
    """Train what the payload asks for; files, data set and the wish for a fit appear at once.

    An attempt that ends early leaves its checkpoint, under its fence, and the next goes on there.
    """
    # Here: a worker that waits has not loaded torch.
    try:
        from training.engine.artifacts import load_all, run_recipe
        from training.engine.run_state import check_network
    except ModuleNotFoundError as error:
        accepted = "a worker with `pip install 'recalib[train]'`"
        raise InputError("train", found=f"no package {error.name}", accepted=accepted) from None

    # 1. What is asked for, and the data.
    recipe = Recipe.of(context.payload)
    model = _model(context, recipe.calibrate)
    context.progress(0.0, "reading the data")
    loaded = load_all(recipe, folder, confined=True)
    if model is not None and model.classes != loaded.splits.classes:
        raise InputError(
            "calibrate.model",
            found=f"{model.name!r} with {model.classes} classes",
            accepted=f"a model with {loaded.splits.classes}, as the data have",
        )
    check_network(recipe, loaded.splits, max_weights)
    context.check_cancelled()

    # 2. The run, from where an earlier attempt left it. The map is fitted by a job of its own.
    checkpoints = CheckpointBlobs(context)
    watcher = _Watcher(context, checkpoints, pause)
    without_model = recipe.model_copy(update={"calibrate": None}) if model else recipe
    with tempfile.TemporaryDirectory() as name:
        output = Path(name)
        try:
            summary = run_recipe(without_model, loaded, output, checkpoints, watcher)
        except Cancelled as cancelled:
            if cancelled.reason == "cancelled":
                checkpoints.clear()
            raise
        context.progress(_TRAINING_SHARE, "keeping the files")
        files = {one.name: _keep(context.registry.blobs, one) for one in sorted(output.iterdir())}
        measured = _measured(output / "validation.npz") if model else {}

    # 3. All of it becomes true together.
    _finish(context, recipe, model, {"summary": summary, "files": files}, measured)
    checkpoints.clear()


def _model(context: JobContext, part: Calibrate | None) -> Model | None:
    """Return the model that gets a calibrator, if one does."""
    if part is None or part.model is None:
        return None
    with context.registry.reading() as tx:
        return tx.models.get(part.model)


def _finish(
    context: JobContext,
    recipe: Recipe,
    model: Model | None,
    result: dict[str, Any],
    measured: dict[str, Any],
) -> None:
    with context.finishing() as tx:
        if model is not None and recipe.calibrate is not None:
            stored = result["files"]["validation.npz"]
            name = f"{recipe.name}-{context.lease.job.id[:8]}"
            tx.datasets.create(
                model, name, stored["digest"], measured["rows"], model.classes, stored["bytes"],
                _NPZ, "logits", measured["metrics"],
            )  # fmt: skip
            wish = recipe.calibrate.model_dump(exclude={"model"})
            payload = {"model": model.name, "dataset": name, **wish}
            result |= {"dataset": name, "fit_job": tx.jobs.enqueue(FIT, payload, model=model).id}
        tx.jobs.succeed(context.lease, result)


def _measured(path: Path) -> dict[str, Any]:
    """Return what the registry keeps of a data set: its rows and its uncalibrated metrics."""
    from recalib import files
    from recalib.metrics.evaluate import StreamingEvaluation

    rows = files.read(path)
    evaluation = StreamingEvaluation(rows.logits.shape[1])
    evaluation.add(rows.labels, logits=rows.logits)
    metrics = {name: dataclasses.asdict(one) for name, one in evaluation.finish(0.95).items()}
    return {"rows": len(rows.logits), "metrics": metrics}


def _keep(blobs: BlobStore, path: Path) -> dict[str, Any]:
    """Store a file as a blob."""
    with blobs.writer() as blob, path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            blob.write(chunk)
        size = blob.size
        return {"digest": blob.commit(), "bytes": size}


class _Pause:
    """Does something else now and then."""

    def __init__(self, act: Callable[[], object], every_seconds: float) -> None:
        self._act, self._every_seconds = act, every_seconds
        self._next = 0.0

    def __call__(self) -> None:
        if time.monotonic() >= self._next:
            self._act()
            self._next = time.monotonic() + self._every_seconds


class _Watcher:
    """Tells the job how far its run is, and the run when the job is no longer wanted."""

    def __init__(self, context: JobContext, checkpoints: CheckpointBlobs, pause: _Pause) -> None:
        self._context, self._checkpoints, self._pause = context, checkpoints, pause
        self._last = ""

    def check(self) -> None:
        """Raise `Cancelled` where the run is to end; else let other work be done."""
        self._pause()
        try:
            self._context.check_cancelled()
        except Cancelled as cancelled:
            self._checkpoints.closed = cancelled.reason != "stopping"
            raise

    def at(self, position: Position) -> None:
        """Note how far it is, when it will be done, and what the last epoch came to."""
        message = position.describe() + self._last
        self._context.progress(_TRAINING_SHARE * position.fraction, message)

    def epoch_over(self, history: list[dict[str, Any]]) -> None:
        """Note what the epoch came to."""
        found = history[-1]["validation"]
        accuracy, nll, ece = (found[name] for name in ("accuracy", "nll", "ece"))
        self._last = f"; validation accuracy {accuracy:.2%}, NLL {nll:.4f}, ECE {ece:.2%}"
