"""The training job: train a network, store its files, enqueue a fit if requested."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from collections.abc import Callable, Collection
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recalib.core.packages import optional_packages
from recalib.errors import InputError
from recalib.recipe import Calibrate, Recipe
from recalib.registry import BlobWriter, Model
from recalib.registry.job_kinds import FIT
from recalib.registry.server_recipe import check_server_recipe
from training.checkpoint_blobs import CheckpointBlobs
from training.worker import Cancelled, JobContext

if TYPE_CHECKING:
    from training.engine.loop import Position

_NPZ = "application/x-npz"
_CHUNK = 1 << 20
#: Progress at the end of the last epoch; storing the files is the rest.
_TRAINING_FRACTION = 0.95


def run_training(
    context: JobContext,
    pause: Callable[[], object] = lambda: None,
    *,
    folder: Path,
    max_weights: int,
    allowed_imports: Collection[str] = (),
    max_workers: int = 0,
) -> None:
    """Train a network; its files, data set and fit job appear in a single transaction.

    An attempt that ends early leaves a checkpoint, from which the next attempt resumes.

    Parameters
    ----------
    pause: called between two steps, so that a worker can run short jobs during a run of hours. It
        does not affect the numbers of the run.
    folder: the data folder; nothing outside is read.
    max_weights: the largest number of weights of a network; larger networks are refused before
        memory is allocated.
    allowed_imports: packages and functions that recipes may name, as in `check_server_recipe`.
    max_workers: the largest number of processes that load batches.
    """
    # Imported here, so that an idle worker does not load torch.
    with optional_packages("a worker", "recalib[train]"):
        from training.engine.artifacts import load_all, run_recipe
        from training.engine.run_state import check_network

    # 1. The recipe and its data.
    recipe = Recipe.of(context.payload)
    check_server_recipe(recipe, allowed_imports, max_workers)
    model = _model(context, recipe.calibrate)
    context.progress(0.0, "reading the data")
    loaded = load_all(recipe, folder, confined=True)
    if model is not None and model.classes != loaded.splits.classes:
        raise InputError(
            "calibrate.model",
            found=f"{model.name!r} with {model.classes} classes",
            accepted=f"a model with {loaded.splits.classes} classes, like the data",
        )
    check_network(recipe, loaded.splits, max_weights)
    context.check_cancelled()

    # 2. The run, resumed from a checkpoint if there is one. A separate job fits the calibrator.
    checkpoints = CheckpointBlobs(context)
    watcher = _Watcher(context, checkpoints, pause)
    without_model = recipe.model_copy(update={"calibrate": None}) if model else recipe
    with tempfile.TemporaryDirectory() as name:
        output = Path(name)
        try:
            # A process with threads and connections to a database cannot be forked safely.
            summary = run_recipe(
                without_model, loaded, output, checkpoints, watcher, start_method="spawn"
            )
        except Cancelled as cancelled:
            if cancelled.reason == "cancelled":
                checkpoints.clear()
            raise
        context.progress(_TRAINING_FRACTION, "storing the files")
        statistics = _statistics(output / "validation.npz") if model else {}

        # 3. Commit everything at once.
        with ExitStack() as stack:
            blobs = {
                path.name: _copy(path, stack.enter_context(context.registry.blobs.writer()))
                for path in sorted(output.iterdir())
            }
            _finish(context, recipe, model, {"summary": summary}, blobs, statistics)
    checkpoints.clear()


def _model(context: JobContext, part: Calibrate | None) -> Model | None:
    """Return the model that receives a calibrator, if any."""
    if part is None or part.model is None:
        return None
    with context.registry.reading() as tx:
        return tx.models.get(part.model)


def _finish(
    context: JobContext,
    recipe: Recipe,
    model: Model | None,
    result: dict[str, Any],
    blobs: dict[str, BlobWriter],
    statistics: dict[str, Any],
) -> None:
    with context.registry.storing_all(blobs.values(), context.finishing) as tx:
        files = {name: {"digest": blob.digest, "bytes": blob.size} for name, blob in blobs.items()}
        result |= {"files": files}
        if model is not None and recipe.calibrate is not None:
            stored = blobs["validation.npz"]
            name = f"{recipe.name}-{context.lease.job.id[:8]}"
            tx.datasets.create(
                model, name, stored.digest, statistics["rows"], model.classes, stored.size, _NPZ,
                "logits", statistics["metrics"],
            )  # fmt: skip
            options = recipe.calibrate.model_dump(exclude={"model"})
            payload = {"model": model.name, "dataset": name, **options}
            job = tx.jobs.enqueue(FIT, payload, model=model, owner=context.lease.job.owner)
            result |= {"dataset": name, "fit_job": job.id}
        tx.jobs.succeed(context.lease, result)


def _statistics(path: Path) -> dict[str, Any]:
    """Return the row count and the uncalibrated metrics of a data set, for the registry."""
    from recalib import files
    from recalib.metrics.evaluate import StreamingEvaluation

    rows = files.read(path)
    evaluation = StreamingEvaluation(rows.logits.shape[1])
    evaluation.add(rows.labels, logits=rows.logits)
    metrics = {name: dataclasses.asdict(value) for name, value in evaluation.finish(0.95).items()}
    return {"rows": len(rows.logits), "metrics": metrics}


def _copy(path: Path, blob: BlobWriter) -> BlobWriter:
    """Copy a file to a blob; return the blob."""
    with path.open("rb") as file:
        shutil.copyfileobj(file, blob, _CHUNK)
    return blob


class _Watcher:
    """Reports the progress of the run to the job, and ends the run when the job is cancelled."""

    def __init__(
        self, context: JobContext, checkpoints: CheckpointBlobs, pause: Callable[[], object]
    ) -> None:
        self._context, self._checkpoints, self._pause = context, checkpoints, pause
        self._last = ""

    def check(self) -> None:
        """Raise `Cancelled` if the run must end; otherwise run short jobs."""
        self._pause()
        try:
            self._context.check_cancelled()
        except Cancelled as cancelled:
            self._checkpoints.closed = cancelled.reason != "stopping"
            raise

    def at(self, position: Position) -> None:
        """Report progress, remaining time and the metrics of the last epoch."""
        message = position.describe() + self._last
        self._context.progress(_TRAINING_FRACTION * position.fraction, message)

    def epoch_over(self, history: list[dict[str, Any]]) -> None:
        """Keep the metrics of the epoch for the next report."""
        from recalib.metrics.headline import headline_error

        metrics = history[-1]["validation"]
        accuracy, nll, ece = (
            metrics[name] for name in ("accuracy", "nll", headline_error(metrics))
        )
        self._last = f"; validation accuracy {accuracy:.2%}, NLL {nll:.4f}, ECE {ece:.2%}"
