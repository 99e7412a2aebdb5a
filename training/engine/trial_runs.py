"""Run trials: in this process, or in several processes at once.

Both ways take candidates from an iterable when there is a free place, and yield each trial when it
is finished. A trial that the study has is not run again. Only this process finishes trials, so a
search that is killed at any moment resumes: other trials continue from their checkpoints.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import wait as wait_for
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch

from recalib.errors import UnavailableError
from training.engine.artifacts import LoadedData
from training.engine.checkpoints import FolderCheckpoints
from training.engine.divergence import DivergedError
from training.engine.loop import Position, Watcher, train
from training.engine.trials import Candidate, Trial

if TYPE_CHECKING:  # Optuna is not in every installation
    from training.engine.study import TrialStudy

#: Seconds between two looks at the messages of the processes.
_POLL_SECONDS = 0.2

#: Returns data and weights, the same in every process.
Load = Callable[[], LoadedData]


class Runner(Protocol):
    """Runs candidates."""

    def run(self, candidates: Iterable[Candidate]) -> Iterator[Trial]:
        """Yield the trial of each candidate, in the order in which they finish."""
        ...


@contextmanager
def open_runner(
    load: Load,
    loaded: LoadedData,
    study: TrialStudy,
    watcher: Watcher,
    *,
    error: str,
    total: int,
    jobs: int,
) -> Iterator[Runner]:
    """Yield what runs the trials of a search.

    Parameters
    ----------
    load: returns `loaded`; called once in each process. It can be pickled.
    error: the metric of validation rows that a trial records as its error.
    total: number of trials of the search.
    jobs: number of trials at a time. Above 1, each has a process of its own. The processes share
        the threads of torch, and have a GPU in turn.
    """
    progress = _Progress(watcher, total)
    if jobs == 1:
        yield _InThisProcess(loaded, study, progress, error)
        return
    context = multiprocessing.get_context("spawn")
    stop, messages = context.Event(), context.Queue()
    threads = max(1, torch.get_num_threads() // jobs)
    arguments = (load, stop, messages, threads, context.Value("i", 0))
    with ProcessPoolExecutor(jobs, context, _start_process, arguments) as pool:
        try:
            yield _InProcesses(loaded, study, progress, error, jobs, pool, messages)
        except BaseException:
            stop.set()  # running trials save a checkpoint and end
            raise


@dataclass
class _InThisProcess:
    loaded: LoadedData
    study: TrialStudy
    progress: _Progress
    error: str

    def run(self, candidates: Iterable[Candidate]) -> Iterator[Trial]:
        for candidate in candidates:
            run = candidate.run(self.loaded)
            trial = self.study.start(candidate, run)
            if trial is None:
                progress = self.progress
                watcher = _TrialWatcher(progress.watcher.check, progress.report, candidate.number)
                folder = self.study.folder(run)
                trial = _train(candidate, run, self.loaded, folder, watcher, self.error)
            yield self._finish(trial)

    def _finish(self, trial: Trial) -> Trial:
        self.study.finish(trial)
        self.progress.finish(trial.number)
        return trial


@dataclass
class _InProcesses(_InThisProcess):
    jobs: int
    pool: ProcessPoolExecutor
    messages: Any

    def run(self, candidates: Iterable[Candidate]) -> Iterator[Trial]:
        source = iter(candidates)
        running: dict[str, tuple[Future[Trial], list[Candidate]]] = {}
        while True:
            while sum(len(waiting) for _, waiting in running.values()) < self.jobs:
                candidate = next(source, None)
                if candidate is None:
                    break
                run = candidate.run(self.loaded)
                trial = self.study.start(candidate, run)
                if trial is not None:
                    yield self._finish(trial)
                elif run in running:  # an equal run has the same checkpoints: wait for it
                    running[run][1].append(candidate)
                else:
                    folder = self.study.folder(run)
                    future = self.pool.submit(_train_in_process, candidate, run, folder, self.error)
                    running[run] = future, [candidate]
            if not running:
                return
            self._wait([future for future, _ in running.values()])
            for run, (future, waiting) in list(running.items()):
                if future.done():
                    del running[run]
                    yield self._finish(_result(future))
                    for candidate in waiting[1:]:
                        equal = self.study.start(candidate, run)
                        assert equal is not None  # noqa: S101 - finished above
                        yield self._finish(equal)

    def _wait(self, futures: list[Future[Trial]]) -> None:
        """Wait until a trial is finished; report positions and check for a stop meanwhile."""
        while True:
            finished, _ = wait(futures, _POLL_SECONDS, FIRST_COMPLETED)
            self.progress.watcher.check()
            while True:
                try:
                    number, message = self.messages.get_nowait()
                except queue.Empty:
                    break
                self.progress.report(number, message)
            if finished:
                return


def _result(future: Future[Trial]) -> Trial:
    try:
        return future.result()
    except BrokenProcessPool:
        raise UnavailableError(
            "the process of a trial ended; the same command resumes the search"
        ) from None


def _train(
    candidate: Candidate, run: str, loaded: LoadedData, folder: Path, watcher: Watcher, error: str
) -> Trial:
    """Train a candidate, from its newest checkpoint where one exists."""
    checkpoints = FolderCheckpoints(folder)
    if candidate.pruner is not None:
        watcher = _PrunedWatcher(watcher, candidate)
    try:
        trained = train(candidate.recipe, loaded.splits, checkpoints, watcher, loaded.weights)
    except _PrunedError as pruned:
        return candidate.trial(run, pruned=pruned.epochs)
    except DivergedError as divergence:
        return candidate.trial(run, diverged=str(divergence.found))
    metrics = trained.validation.measures
    results = {"accuracy": metrics["accuracy"], "error": metrics[error], "nll": metrics["nll"]}
    return candidate.trial(run, **results)


class _PrunedError(Exception):
    """A run ends after some epochs."""

    def __init__(self, epochs: int) -> None:
        self.epochs = epochs


class _PrunedWatcher:
    """A watcher that ends a run where the pruner of its candidate does."""

    def __init__(self, watcher: Watcher, candidate: Candidate) -> None:
        self._watcher, self._candidate = watcher, candidate
        self.check, self.at = watcher.check, watcher.at

    def epoch_over(self, history: list[dict[str, Any]]) -> None:
        self._watcher.epoch_over(history)
        pruner = self._candidate.pruner
        is_last = history[-1]["epoch"] == self._candidate.recipe.epochs
        if not is_last and pruner is not None and pruner(history):
            raise _PrunedError(len(history))


class _Progress:
    """The progress of all trials of a search."""

    def __init__(self, watcher: Watcher, total: int) -> None:
        self.watcher = watcher
        self._total = total
        self._fractions: dict[int, float] = {}

    def report(self, number: int, message: Position | dict[str, Any]) -> None:
        """Report the position of a trial, or the record of an epoch."""
        label = f"trial {number + 1} of {self._total}, "
        if isinstance(message, dict):
            self.watcher.epoch_over([{**message, "label": label}])
            return
        # A late message of a finished trial does not lower its fraction.
        self._fractions[number] = max(message.fraction, self._fractions.get(number, 0.0))
        # The last part of the progress is the run that is delivered.
        fraction = sum(self._fractions.values()) / (self._total + 1)
        self.watcher.at(replace(message, label=label, fraction=fraction))

    def finish(self, number: int) -> None:
        """Count a finished trial."""
        self._fractions[number] = 1.0


@dataclass
class _TrialWatcher:
    """A watcher of one trial: in this process, or in one that runs trials."""

    check: Callable[[], None]
    report: Callable[[int, Position | dict[str, Any]], None]
    number: int

    def at(self, position: Position) -> None:
        self.report(self.number, position)

    def epoch_over(self, history: list[dict[str, Any]]) -> None:
        self.report(self.number, history[-1])


class _Process(NamedTuple):
    """The state of a process that runs trials."""

    loaded: LoadedData
    stop: Any
    messages: Any

    def check(self) -> None:
        if self.stop.is_set():
            raise KeyboardInterrupt

    def report(self, number: int, message: Position | dict[str, Any]) -> None:
        self.messages.put((number, message))


_process: _Process | None = None


def _start_process(load: Load, stop: Any, messages: Any, threads: int, counter: Any) -> None:
    """Prepare a process for trials."""
    global _process
    # A signal of the terminal reaches every process; the first one decides when to stop.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    messages.cancel_join_thread()
    torch.set_num_threads(threads)
    with counter.get_lock():
        index, counter.value = counter.value, counter.value + 1
    _choose_gpu(index)
    _process = _Process(load(), stop, messages)


def _end_with_parent() -> None:
    """End this process if its parent is killed: otherwise it would write to the same files."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait_for([parent.sentinel])
        os._exit(1)


def _choose_gpu(index: int) -> None:
    """Show torch one GPU: of several processes, each takes the next."""
    count = torch.cuda.device_count()
    if count > 1:
        default = ",".join(map(str, range(count)))
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", default).split(",")
        os.environ["CUDA_VISIBLE_DEVICES"] = visible[index % count]


def _train_in_process(candidate: Candidate, run: str, folder: Path, error: str) -> Trial:
    assert _process is not None  # noqa: S101 - set by `_start_process`
    watcher = _TrialWatcher(_process.check, _process.report, candidate.number)
    return _train(candidate, run, _process.loaded, folder, watcher, error)
