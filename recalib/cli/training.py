"""The command that trains a network."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recalib.cli.arguments import Json
from recalib.errors import InputError
from recalib.recipe import Recipe, read_recipe
from recalib.terminal import print_json, progress, say, warn

if TYPE_CHECKING:
    from training.engine.loop import Position

__all__ = ["train"]


def train(
    config: Annotated[Path, typer.Argument(help="The recipe: .toml or .json.", show_default=False)],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder for what it delivers; runs/NAME by default."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Where relative names of files start; by default the recipe's folder."),
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(help="Have the worker of the server at this address do it, with its data."),
    ] = None,
    json_output: Json = False,
) -> None:
    """Train a network, and write weights, logits for `fit`, metrics and a report.

    The same command again goes on where an interrupted run stood.
    """
    recipe = read_recipe(config)
    target = output or Path("runs") / recipe.name
    if target.exists() and not target.is_dir():
        raise InputError("output", found=f"{target} (a file)", accepted="a folder, or none yet")
    if server is not None:
        if data is not None:
            raise InputError("data", found=str(data), accepted="none: a server has a folder of its")
        found = _run_there(recipe, server, target, json_output)
        _tell(found, target, json_output)
        return
    if recipe.calibrate is not None and recipe.calibrate.model is not None:
        raise InputError(
            "calibrate.model",
            found=f"{recipe.calibrate.model!r}, and no registry",
            accepted="none: a model is for runs of a server's worker",
        )
    with _told_to_stop() as stop, progress("train", quiet=json_output) as at:
        found = _run(recipe, data or config.parent, target, _Terminal(stop, at, json_output))
    if found:  # of several processes, the first speaks
        _tell(found, target, json_output)


def _tell(found: dict[str, Any], target: Path, json_output: bool) -> None:
    """Say what a run came to."""
    if json_output:
        print_json({"output": str(target), **found})
        return
    for text in found["warnings"]:
        warn(text)
    for one in found.get("trials", []):
        numbers = f"accuracy {one['accuracy']:.2%}, error {one['error']:.2%}"
        say(f"tried {one['option']} = {one['value']:g}: {numbers}")
    for name in ("validation", "test", "calibrated"):
        if name in found:
            say(f"{name}: {_line(found[name])}")
    if "calibrator" in found:
        one = found["calibrator"]
        say(f"{one['model']}, version {one['version']}: {one['reason']}")
    say(f"saved {target}")


def _run(recipe: Recipe, data: Path, target: Path, watcher: _Terminal) -> dict[str, Any]:
    # Here: torch takes seconds to load, and a typo in the recipe is told before.
    try:
        from training.engine.artifacts import load_all, run_recipe
        from training.engine.checkpoints import FolderCheckpoints
        from training.engine.tuning import tune
    except ModuleNotFoundError as error:
        accepted = "pip install 'recalib[train]'"
        raise InputError("train", found=f"no package {error.name}", accepted=accepted) from None

    watcher.say("reading")
    loaded = load_all(recipe, data, confined=False)
    target.mkdir(parents=True, exist_ok=True)
    if recipe.tune is not None:
        return tune(recipe, loaded, target, watcher)
    return run_recipe(recipe, loaded, target, FolderCheckpoints(target), watcher)


def _run_there(recipe: Recipe, server: str, target: Path, quiet: bool) -> dict[str, Any]:
    """Have a server do the run, and fetch its files; return its summary."""
    from recalib.client import Client

    with Client(server) as client, progress("train", quiet=quiet) as at:
        asked = client.train(recipe.model_dump(mode="json"))
        job = client.wait(asked, progress=lambda _, text: at(text))
        result = job.result or {}
        target.mkdir(parents=True, exist_ok=True)
        for name in result["files"]:
            at(f"fetching {name}")
            client.download_run_file(job, name, target / name)
        found: dict[str, Any] = {**result["summary"], "job": job.id}
        if "fit_job" in result:
            fitted = client.wait(result["fit_job"], progress=lambda _, text: at(text)).result
            found["calibrator"] = fitted
    return found


class _Terminal:
    """Shows how far a run is, and ends it between two steps when it is told to."""

    def __init__(self, stop: threading.Event, say: Callable[[str], None], quiet: bool) -> None:
        self.say, self._stop, self._quiet = say, stop, quiet

    def check(self) -> None:
        """Raise `KeyboardInterrupt` if somebody wants the run to end."""
        if self._stop.is_set():
            raise KeyboardInterrupt

    def at(self, position: Position) -> None:
        """Show the position."""
        self.say(position.describe())

    def epoch_over(self, history: list[dict[str, Any]]) -> None:
        """Say what the epoch came to."""
        if not self._quiet:
            last = history[-1]
            where = f"{last.get('label', '')}epoch {last['epoch']}"
            say(f"{where}: loss {last['loss']:.4f}, {_line(last['validation'])}")


@contextmanager
def _told_to_stop() -> Iterator[threading.Event]:
    """Take SIGINT and SIGTERM as a wish to stop after the step; a second one ends it at once."""
    stop = threading.Event()

    def tell(number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        stop.set()

    before = {one: signal.signal(one, tell) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _line(metrics: dict[str, Any]) -> str:
    accuracy, ece = (f"{metrics[name]:.2%}" for name in ("accuracy", "ece"))
    return f"accuracy {accuracy}, NLL {metrics['nll']:.4f}, ECE {ece}"
