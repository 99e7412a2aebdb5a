"""Tuning: the selection rule, the searches, several processes, and resumption."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import psutil
import pytest
import torch
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from recalib.errors import InputError
from recalib.recipe import Recipe, Tune
from tests.training.engine.tiny import Onlooker, load, recipe, splits
from training.engine import trial_runs
from training.engine.artifacts import load_all
from training.engine.trials import Trial, best_of
from training.engine.tuning import tune


def trials(*numbers: tuple[float, float]) -> list[Trial]:
    return [
        Trial(number=i, values={}, accuracy=acc, error=error, nll=1 - acc, run="")
        for i, (acc, error) in enumerate(numbers)
    ]


@pytest.mark.parametrize(
    ("numbers", "best"),
    [
        ([(0.90, 0.05), (0.895, 0.02), (0.88, 0.01)], 1),  # the last gives up two percent
        ([(0.90, 0.05), (0.89, 0.01)], 0),  # one percent is not less than one percent
        ([(0.90, 0.05), (0.90, 0.05)], 0),
        ([(0.10, 0.50)], 0),
    ],
)
def test_the_lowest_error_within_a_percent(numbers: list[tuple[float, float]], best: int) -> None:
    assert best_of(trials(*numbers), Tune(beta=[1])).number == best


def test_other_rules_of_selection() -> None:
    numbers = (0.9, 0.05), (0.9, 0.04), (0.8, 0.01)
    assert best_of(trials(*numbers), Tune(beta=[1], accuracy_within=0.0)).number == 1
    assert best_of(trials((0.8, 0.01), (0.9, 0.5)), Tune(beta=[1], select="nll")).number == 1


_NAMES = ("kappa", "temperature", "beta", "weight_decay")
_TUNE = {
    "kappa": [0.3, 0.6], "temperature": [0.5, 1.0], "beta": [0.1, 1.0], "weight_decay": [0, 0.1]
}  # fmt: skip
_LOSS = {"secondary": "s_avuc", "beta": 0.5}
SEQUENTIAL = recipe(name="tuned", epochs=1, report=False, loss=_LOSS, tune=_TUNE)


def watched(monkeypatch: pytest.MonkeyPatch, die_at: int = -1) -> list[dict[str, float]]:
    """Record the options of each trial; interrupt trial `die_at`."""
    runs: list[dict[str, float]] = []
    train = trial_runs.train

    def noted(config: Any, *more: Any) -> Any:
        if len(runs) == die_at:
            raise KeyboardInterrupt
        options = config.loss.secondary_options
        decay = config.optimiser.weight_decay
        runs.append({**options, "beta": config.loss.beta, "weight_decay": decay})
        return train(config, *more)

    monkeypatch.setattr(trial_runs, "train", noted)
    return runs


def test_options_are_tuned_in_order_and_keep_the_best_so_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """κ, T, β, λ; each later trial has the best of what came before."""
    runs = watched(monkeypatch)
    summary = tune(SEQUENTIAL, load, tmp_path, Onlooker())
    finished = [Trial(**run) for run in summary["trials"]]
    best: dict[str, float] = {}
    for stage, option in enumerate(_NAMES):
        pair = finished[2 * stage : 2 * stage + 2]
        assert [trial.values for trial in pair] == [{**best, option: v} for v in _TUNE[option]]
        best = best_of(pair, SEQUENTIAL.tune).values
    assert [run["kappa"] for run in runs] == [0.3, 0.6] + [best["kappa"]] * 6
    assert [run["beta"] for run in runs] == [0.5] * 4 + [0.1, 1.0] + [best["beta"]] * 2
    # The result is the best run itself, without another training.
    delivered = json.loads((tmp_path / "recipe.json").read_text())
    assert delivered["loss"]["secondary_options"] == {
        name: best[name] for name in ("kappa", "temperature")
    }
    assert delivered["optimiser"]["weight_decay"] == best["weight_decay"]
    # Optuna's own tools read the trials.
    [study] = studies(tmp_path)
    assert [trial.user_attrs["error"] for trial in study.trials] == [t.error for t in finished]
    assert [trial.params for trial in study.trials] == [trial.values for trial in finished]
    last = next(trial for trial in finished if trial.values == best)
    assert summary["validation"]["accuracy"] == last.accuracy
    assert summary["validation"]["ece_l2_equal_mass"] == last.error


@pytest.mark.slow
def test_no_trial_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tuning that is interrupted at the fourth trial resumes with it, with the same result."""
    uninterrupted = tune(SEQUENTIAL, load, tmp_path / "alone", Onlooker())
    with monkeypatch.context() as patch:
        first = watched(patch, die_at=3)
        with pytest.raises(KeyboardInterrupt):
            tune(SEQUENTIAL, load, tmp_path / "in two", Onlooker())
    second = watched(monkeypatch)
    resumed = tune(SEQUENTIAL, load, tmp_path / "in two", Onlooker())
    assert (len(first), len(second)) == (3, 5)
    assert resumed["trials"] == uninterrupted["trials"]
    assert resumed["test"] == uninterrupted["test"]
    # Other data repeat all trials.
    second.clear()
    tune(SEQUENTIAL, partial(load, seed=1), tmp_path / "in two", Onlooker())
    assert len(second) == 8


def test_diverging_trial_is_a_recorded_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not repeated, another value is best, and only if all diverge is it an error."""
    config = recipe(
        epochs=1, report=False, loss={"secondary": "sb_ece"}, tune={"beta": [1e300, 0.1]}
    )
    summary = tune(config, load, tmp_path, Onlooker())
    diverged, finished = (Trial(**run) for run in summary["trials"])
    assert diverged.accuracy is None
    assert "not finite" in diverged.diverged
    assert (finished.values, finished.diverged) == ({"beta": 0.1}, "")
    assert json.loads((tmp_path / "recipe.json").read_text())["loss"]["beta"] == 0.1
    runs = watched(monkeypatch)
    tune(config, load, tmp_path, Onlooker())
    assert runs == []
    config = config.model_copy(update={"tune": config.tune.model_copy(update={"beta": [1e300]})})
    with pytest.raises(InputError, match=r"with each of beta = 1e\+300"):
        tune(config, load, tmp_path, Onlooker())


def test_unknown_option_is_refused_before_any_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = watched(monkeypatch)
    config = recipe(loss={"secondary": "mmce"}, tune={"beta": [1], "kappa": [0.5]})
    with pytest.raises(InputError, match=r"loss.secondary: options.kappa: found an unknown option"):
        tune(config, load, tmp_path, Onlooker())
    assert runs == []


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"optimiser.rate": [1]}, "^optimiser.rate: found unknown field"),
        ({"optimiser.learning_rate": [0.1, -1]}, "^optimiser.learning_rate: found -1"),
        ({"loss.options.gama": [1]}, "^loss.primary: options.gama: found an unknown option"),
        ({"mixing.alpha": [1]}, r"^tune\.values\.mixing\.alpha: found no such field"),
        ({"data.validation": [0.1]}, r"^tune\.values\.data\.validation: "),
        ({"batch_size": {"low": 16, "high": 64}}, "^batch_size: "),
    ],
)
def test_values_of_any_field_are_checked_before_any_trial(
    values: dict[str, Any], message: str, tmp_path: Path
) -> None:
    config = recipe(tune={"search": "optuna", "trials": 1, "values": values})
    with pytest.raises(InputError, match=message):
        tune(config, load, tmp_path, Onlooker())


def test_any_number_of_a_recipe_is_tuned_and_bad_trials_are_pruned(tmp_path: Path) -> None:
    """After five trials, one with a learning rate near 0 ends before its last epoch."""
    rates = {"low": 1e-9, "high": 1.0}
    space = {"values": {"optimiser.learning_rate": rates, "batch_size": [16, 32]}}
    search = {"search": "optuna", "trials": 12, "select": "nll", "prune": True}
    config = recipe(report=False, tune={**search, **space})
    summary = tune(config, load, tmp_path, Onlooker())
    finished = [Trial(**run) for run in summary["trials"]]
    pruned = [trial for trial in finished if trial.pruned]
    assert pruned
    assert all(0 < trial.pruned < 3 and trial.accuracy is None for trial in pruned)
    best = min((t for t in finished if t.nll is not None), key=lambda t: t.nll or 0)
    delivered = json.loads((tmp_path / "recipe.json").read_text())
    assert delivered["optimiser"]["learning_rate"] == best.values["optimiser.learning_rate"]
    assert delivered["batch_size"] == best.values["batch_size"]
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 3
    again = tune(config, load, tmp_path, Onlooker())
    assert again["trials"] == summary["trials"]


def test_missing_optuna_is_an_error_before_any_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    for name in ("optuna_search", "study"):
        monkeypatch.delitem(sys.modules, f"training.engine.{name}", raising=False)
    config = recipe(loss=_LOSS, tune={"beta": [1]})
    with pytest.raises(InputError, match=r"tune: .* pip install 'recalib\[tune\]'"):
        tune(config, load, tmp_path, Onlooker())


@pytest.mark.slow
def test_optuna_searches_ranges_and_more_trials_continue_the_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupted study has the same proposals; a diverged trial is one of its results."""
    space = {"search": "optuna", "beta": {"low": 0.1, "high": 10}, "weight_decay": [0, 0.1, 1e30]}

    def config(count: int) -> Any:
        tune = {**space, "trials": count}
        return recipe(epochs=1, report=False, loss={"secondary": "sb_ece"}, tune=tune)

    uninterrupted = tune(config(14), load, tmp_path / "alone", Onlooker())["trials"]
    with monkeypatch.context() as patch:
        watched(patch, die_at=5)
        with pytest.raises(KeyboardInterrupt):
            tune(config(12), load, tmp_path / "in two", Onlooker())
    tune(config(12), load, tmp_path / "in two", Onlooker())
    runs = watched(monkeypatch)
    resumed = tune(config(14), load, tmp_path / "in two", Onlooker())["trials"]
    assert resumed == uninterrupted
    assert len(runs) <= 2
    assert all(0.1 <= trial["values"]["beta"] <= 10 for trial in resumed)
    assert {bool(trial["diverged"]) for trial in resumed} == {True, False}


def test_of_several_gpus_each_process_has_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    for index, device in enumerate(["4", "7", "4"]):
        os.environ["CUDA_VISIBLE_DEVICES"] = "4,7"
        trial_runs._choose_gpu(index)
        assert os.environ["CUDA_VISIBLE_DEVICES"] == device


@pytest.mark.slow
def test_processes_find_what_one_process_finds(tmp_path: Path) -> None:
    """The same trials in the same order, bit for bit; an interrupted search resumes."""
    values = {"kappa": [0.3, 0.6], "beta": [0.1, 0.1, 1.0, 1e300]}
    config = recipe(report=False, loss=_LOSS, tune={**values, "search": "grid"})
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        single = tune(config, load, tmp_path / "one", Onlooker())
        stop = iter([False] * 2 + [True])

        def interrupt() -> None:
            if next(stop):
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            tune(config, load, tmp_path / "several", Onlooker(interrupt), jobs=2)
        several = tune(config, load, tmp_path / "several", Onlooker(), jobs=2)
    finally:
        torch.set_num_threads(threads)
    assert several["trials"] == single["trials"]
    assert len(single["trials"]) == 8
    assert several["test"] == single["test"]
    weights = [
        (tmp_path / name / "weights.safetensors").read_bytes() for name in ("one", "several")
    ]
    assert weights[0] == weights[1]


def start_command(folder: Path, jobs: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "recalib", "train", "recipe.json", "-o", "out"]
    with (folder / "log.txt").open("ab") as log:
        return subprocess.Popen([*command, "--jobs", str(jobs)], cwd=folder, stderr=log, stdout=log)


def studies(folder: Path) -> list[optuna.Study]:
    path = folder / "study.journal"
    if not path.exists():
        return []
    storage = JournalStorage(JournalFileBackend(str(path)))
    names = optuna.get_all_study_names(storage)
    return [optuna.load_study(study_name=name, storage=storage) for name in names]


def finished_trials(folder: Path) -> list[optuna.trial.FrozenTrial]:
    found = [trial for study in studies(folder) for trial in study.trials]
    return [trial for trial in found if trial.state.is_finished()]


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_killed_study_resumes_and_counts_no_trial_twice(tmp_path: Path, jobs: int) -> None:
    """Finished trials stay as they are; with one job, the study is as if it was never killed.

    The killed study is a program. This process resumes it, without a second start of torch.
    """
    data = splits(train=600)
    for name in ("train", "test"):
        split = getattr(data, name)
        inputs = np.asarray(split.batch(range(len(split))))
        np.savez(tmp_path / f"{name}.npz", inputs=inputs, labels=split.labels)
    space = {"search": "optuna", "trials": 5, "beta": {"low": 0.1, "high": 10}, "kappa": [0.3, 0.6]}
    options = {"train": "train.npz", "test": "test.npz"}
    config = {
        "data": {"source": "arrays", "options": options, "validation": 200},
        "model": {"name": "linear"}, "loss": _LOSS, "tune": space, "report": False,
        "device": "cpu", "epochs": 8, "batch_size": 8, "checkpoint_steps": 50,
    }  # fmt: skip
    (tmp_path / "recipe.json").write_text(json.dumps(config))
    study_recipe = Recipe.of(config)
    read = partial(load_all, study_recipe, tmp_path, confined=False)
    process = start_command(tmp_path, jobs)
    while len(finished := finished_trials(tmp_path / "out")) < 2:
        assert process.poll() is None, (tmp_path / "log.txt").read_text()
        time.sleep(0.05)
    time.sleep(0.3)  # into the next trial
    children = psutil.Process(process.pid).children()
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert psutil.wait_procs(children, timeout=60)[1] == []
    finished = finished_trials(tmp_path / "out")
    assert len(finished) < 5
    with (tmp_path / "out" / "study.journal").open("ab") as journal:
        journal.write(b'{"op_code": 5, "wor')  # a power cut in the middle of a line
    summary = tune(study_recipe, read, tmp_path / "out", Onlooker())
    [study] = studies(tmp_path / "out")
    assert [trial.state.name for trial in study.trials] == ["COMPLETE"] * 5
    assert [trial.params for trial in study.trials] == [
        trial["values"] for trial in summary["trials"]
    ]
    assert [study.trials[trial.number] for trial in finished] == finished
    if jobs == 1:
        alone = tune(study_recipe, read, tmp_path / "alone", Onlooker())
        assert alone["trials"] == summary["trials"]
