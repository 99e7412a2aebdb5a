"""Run a recipe and write the files of the run."""

from __future__ import annotations

import dataclasses
import json
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch

import recalib
from recalib.core.card import DataSummary
from recalib.errors import InputError, UnavailableError
from recalib.files import LabelledData, digest, write_atomically
from recalib.fitting.fit import fit
from recalib.fitting.request import resolve_fit
from recalib.recipe import Calibrate, Recipe
from recalib.reporting.html_report import Source, create_report
from recalib.reporting.plots import save, training_curves
from training.data import Splits
from training.engine.checkpoints import Checkpoints
from training.engine.evaluate import Prediction, measure
from training.engine.loading import StartMethod
from training.engine.loop import Position, TrainingResult, Watcher, train
from training.engine.recipe_data import LoadedData, load_all
from training.engine.run_state import check_recipe
from training.engine.weights import weights_bytes

__all__ = ["FILES", "LoadedData", "load_all", "run_recipe", "write_lines"]

#: The files that a finished run may leave in its folder.
FILES = (
    "recipe.json", "metrics.jsonl", "weights.safetensors", "validation.npz", "test.npz",
    "calibrator.calib", "curves.html", "report.html", "result.json",
)  # fmt: skip
#: The calibrators that the report compares; `recalib report` compares all of them.
_COMPARED = (("temperature", "nll"), ("temperature", "sb_ece"), ("structured_vector", "nll"))


def run_recipe(
    recipe: Recipe,
    loaded: LoadedData,
    output: Path,
    checkpoints: Checkpoints,
    watcher: Watcher,
    start_method: StartMethod = "fork",
) -> dict[str, Any]:
    """Train, write the files of the run into `output`, and return its summary.

    `FILES` lists the files. Logits are ready for `recalib fit`; rows of dense predictions are a
    sample of pixels. Under torchrun only the first process writes.

    Parameters
    ----------
    start_method: of the recipe's workers, see `BatchLoader`.

    Raises
    ------
    InputError: an invalid recipe; raised before training where possible.
    UnavailableError: the disk is full, or a worker was killed.
    """
    if recipe.calibrate is not None:
        resolve_fit(recipe.calibrate.map, recipe.calibrate.objective, recipe.calibrate.options)
    check_recipe(recipe, loaded.splits)
    # Fabric takes seconds to import, so the recipe is checked before.
    from training.engine.fabric import launch_fabric

    fabric = launch_fabric(recipe)
    is_new = not output.exists()
    if fabric.is_global_zero:
        output.mkdir(parents=True, exist_ok=True)
        watcher = _Recording(watcher, output)
    try:
        trained = train(
            recipe, loaded.splits, checkpoints, watcher, loaded.weights, fabric, start_method
        )
    except BaseException:
        if fabric.is_global_zero and is_new:
            with suppress(OSError):  # files of the run remain
                output.rmdir()
        raise
    if not fabric.is_global_zero:
        return {}
    return _deliver(recipe, loaded.splits, trained, output, str(fabric.device))


def _deliver(
    recipe: Recipe, splits: Splits, trained: TrainingResult, output: Path, device: str
) -> dict[str, Any]:
    _write(output / "recipe.json", recipe.model_dump_json(indent=2))
    # Only training can produce these again, so they are written before calibrator and pages.
    weights = weights_bytes(trained.weights, recipe.model.name)
    _write(output / "weights.safetensors", weights)
    write_lines(output / "metrics.jsonl", trained.history)
    validation = _logits_file(output / "validation.npz", trained.validation)
    test = _logits_file(output / "test.npz", trained.test)
    summary: dict[str, Any] = {
        "name": recipe.name,
        "epochs": trained.history[-1]["epoch"],
        "best_epoch": trained.best_epoch,
        "interleaved": trained.interleaved,
        "data": {"digest": splits.digest, "repeated": splits.repeated, **splits.digests},
        "validation": trained.validation.measures,
        "test": trained.test.measures,
        "recalib": recalib.__version__,
        "torch": torch.__version__,
        "device": device,
    }
    if trained.loaded_weights is not None:
        summary["weights"] = dataclasses.asdict(trained.loaded_weights)
    if splits.names is not None:
        summary["classes"] = list(splits.names)
    for name, prediction in (("validation", trained.validation), ("test", trained.test)):
        if prediction.dense is not None:
            summary.setdefault("dense", {})[name] = prediction.dense.to_dict()
    if recipe.calibrate is not None:
        summary["calibrated"] = _calibrate(recipe.calibrate, validation, test, splits.names, output)
    summary["warnings"] = []
    if recipe.report:
        save(training_curves(trained.history, recipe.name), output / "curves.html")
        summary["warnings"] = _report(
            recipe, validation, test, splits.names, output / "report.html"
        )
    _write(output / "result.json", json.dumps(summary, indent=2, allow_nan=False))
    return summary


def _calibrate(
    part: Calibrate,
    validation: Source,
    test: Source,
    names: tuple[str, ...] | None,
    output: Path,
) -> dict[str, float | None]:
    """Fit to the validation logits; return metrics on the test rows."""
    rows = validation.data
    calibrator = fit(
        rows.logits,
        rows.labels,
        part.map,
        part.objective,
        measure=True,
        data=DataSummary(len(rows.logits), validation.digest, validation.name),
        class_labels=names,
        **part.options,
    )
    calibrator.save(output / "calibrator.calib")
    with np.errstate(divide="ignore"):  # a probability of 0 is a masked class
        logs = np.log(calibrator.predict(test.data.logits))
    return measure(logs, test.data.labels)


def _report(
    recipe: Recipe,
    validation: Source,
    test: Source,
    names: tuple[str, ...] | None,
    path: Path,
) -> list[str]:
    """Write the report; return its warnings, or the reason why there is no report."""
    try:
        report = create_report(validation, test, _COMPARED, class_names=names, title=recipe.name)
        report.save(path)
    except InputError as error:
        # A run with too few rows for a report still succeeds.
        return [f"no report: {error}"]
    return report.warnings


def _logits_file(path: Path, prediction: Prediction) -> Source:
    logits, labels = prediction.logits, prediction.labels
    buffer = BytesIO()
    np.savez(buffer, logits=logits, labels=labels)
    _write(path, buffer.getvalue())
    return Source(path.name, digest(path), LabelledData(logits, labels))


def write_lines(path: Path, records: list[dict[str, Any]]) -> None:
    """Write one line of JSON for each record, atomically."""
    _write(path, "".join(json.dumps(record, allow_nan=False) + "\n" for record in records))


def _write(path: Path, content: str | bytes) -> None:
    data = content.encode() if isinstance(content, str) else content
    try:
        write_atomically(path, data)
    except InputError as error:
        raise UnavailableError(f"{path.name} cannot be written: {error.found}") from error


class _Recording:
    """A watcher that also keeps `metrics.jsonl` up to date."""

    def __init__(self, watcher: Watcher, output: Path) -> None:
        self._watcher, self._path = watcher, output / "metrics.jsonl"

    def check(self) -> None:
        self._watcher.check()

    def at(self, position: Position) -> None:
        self._watcher.at(position)

    def epoch_over(self, history: list[dict[str, Any]]) -> None:
        write_lines(self._path, history)
        self._watcher.epoch_over(history)
