"""`recalib train`: train a network, here or on a server."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recalib.cli import options
from recalib.cli.context import check_package, stop_on_signal
from recalib.core.packages import optional_packages
from recalib.errors import InputError
from recalib.recipe import Recipe, read_recipe
from recalib.reporting.terminal import print_json, progress, say, warn

if TYPE_CHECKING:
    from training.engine.loop import Position


def train(
    config: Annotated[Path, typer.Argument(help="The recipe: .toml or .json.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder of the results; runs/NAME by default."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder of relative file names; by default the recipe's folder."),
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(help="Train on a worker of the server at this URL, with the server's data."),
    ] = None,
    jobs: Annotated[
        int, typer.Option(min=1, help="Trials of `tune` at a time, each in its own process.")
    ] = 1,
    key: options.ApiKey = None,
    json_output: options.JsonOutput = False,
) -> None:
    """Train a network.

    The command writes weights, logits for `fit`, metrics and a report. Repeat it to resume an
    interrupted run.
    """
    recipe = read_recipe(config)
    folder = output or Path("runs") / recipe.name
    if folder.exists() and not folder.is_dir():
        raise InputError("output", found=f"{folder} (a file)", accepted="a folder, or a new path")
    if jobs > 1 and (recipe.tune is None or server is not None):
        found = f"{jobs}, and no search on this machine"
        raise InputError(
            "jobs", found=found, accepted="1, or a recipe with `tune` without --server"
        )
    if server is not None:
        if data is not None:
            raise InputError(
                "data", found=str(data), accepted="none: a server uses its own data folder"
            )
        result = _train_on_server(recipe, server, key, folder, json_output)
        _print_result(result, folder, json_output)
        return
    if recipe.calibrate is not None and recipe.calibrate.model is not None:
        raise InputError(
            "calibrate.model",
            found=f"{recipe.calibrate.model!r}, and no registry",
            accepted="none: only runs on a server's worker can name a model",
        )
    with stop_on_signal() as stop, progress("train", quiet=json_output) as update:
        observer = _TerminalObserver(stop, update, json_output)
        result = _train_here(recipe, data or config.parent, folder, jobs, observer)
    if result:  # of several processes, only the first has a result
        _print_result(result, folder, json_output)


def _train_here(
    recipe: Recipe, data: Path, folder: Path, jobs: int, observer: _TerminalObserver
) -> dict[str, Any]:
    check_package("training")
    observer.say("reading")
    with optional_packages("train", "recalib[train]"):
        from training.engine.recipe_data import load_all

        load = partial(load_all, recipe, data, confined=False)
        loaded = load()
        # torch takes seconds to import, so recipe and data are checked before.
        from training.engine.artifacts import run_recipe
        from training.engine.checkpoints import FolderCheckpoints
        from training.engine.tuning import tune

    atexit.register(_leave_processes)
    if recipe.tune is not None:
        return tune(recipe, load, folder, observer, jobs=jobs, loaded=loaded)
    return run_recipe(recipe, loaded, folder, FolderCheckpoints(folder), observer)


def _leave_processes() -> None:
    """End the threads of torch's process group, which abort a Python that ends before them."""
    from torch import distributed

    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()


def _train_on_server(
    recipe: Recipe, server: str, key: str | None, folder: Path, quiet: bool
) -> dict[str, Any]:
    """Run the recipe on a server, download its files, and return its summary."""
    from recalib.client import Client

    with Client(server, api_key=key) as client, progress("train", quiet=quiet) as update:
        queued_job = client.train(recipe.model_dump(mode="json"))
        job = client.wait(queued_job, progress=lambda _, text: update(text))
        result = job.result or {}
        folder.mkdir(parents=True, exist_ok=True)
        for name in result["files"]:
            update(f"fetching {name}")
            client.download_run_file(job, name, folder / name)
        summary: dict[str, Any] = {**result["summary"], "job": job.id}
        if "fit_job" in result:
            fit_job = client.wait(result["fit_job"], progress=lambda _, text: update(text))
            summary["calibrator"] = fit_job.result
    return summary


class _TerminalObserver:
    """Shows the progress of a run, and stops it between two steps when a stop is requested."""

    def __init__(self, stop: threading.Event, say: Callable[[str], None], quiet: bool) -> None:
        self.say, self._stop, self._quiet = say, stop, quiet

    def check(self) -> None:
        """Raise `KeyboardInterrupt` if a stop is requested."""
        if self._stop.is_set():
            raise KeyboardInterrupt

    def at(self, position: Position) -> None:
        """Show the position."""
        self.say(position.describe())

    def epoch_over(self, history: list[dict[str, Any]]) -> None:
        """Print the loss and the metrics of the last epoch."""
        if not self._quiet:
            last = history[-1]
            label = f"{last.get('label', '')}epoch {last['epoch']}"
            say(f"{label}: loss {last['loss']:.4f}, {_format_metrics(last['validation'])}")


def _print_result(result: dict[str, Any], folder: Path, json_output: bool) -> None:
    if json_output:
        print_json({"output": str(folder), **result})
        return
    warn(*result["warnings"])
    for trial in result.get("trials", []):
        outcome = trial["diverged"] and f"diverged: {trial['diverged']}"
        outcome = outcome or (trial["pruned"] and f"pruned after epoch {trial['pruned']}")
        outcome = outcome or f"accuracy {trial['accuracy']:.2%}, error {trial['error']:.2%}"
        values = ", ".join(f"{name} = {value:g}" for name, value in trial["values"].items())
        say(f"tried {values}: {outcome}")
    for name in ("validation", "test", "calibrated"):
        if name in result:
            say(f"{name}: {_format_metrics(result[name])}")
    if "calibrator" in result:
        calibrator = result["calibrator"]
        say(f"{calibrator['model']}, version {calibrator['version']}: {calibrator['reason']}")
    say(f"saved {folder}")


def _format_metrics(metrics: dict[str, Any]) -> str:
    from recalib.metrics.headline import headline_error

    accuracy, ece = (f"{metrics[name]:.2%}" for name in ("accuracy", headline_error(metrics)))
    miou = f", mIoU {metrics['miou']:.2%}" if "miou" in metrics else ""
    return f"accuracy {accuracy}, NLL {metrics['nll']:.4f}, ECE {ece}{miou}"
