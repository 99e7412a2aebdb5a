"""Tuning: the selection rule, the order of options, and resumption."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import training.engine.tuning as tuning
from recalib.errors import InputError
from tests.training.engine.tiny import Onlooker, recipe, splits
from training.engine.artifacts import Loaded
from training.engine.tuning import Trial, best_of, tune


def trials(*numbers: tuple[float, float]) -> list[Trial]:
    return [Trial("beta", i, acc, error, "") for i, (acc, error) in enumerate(numbers)]


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
    assert best_of(trials(*numbers), 0.01).value == best


def test_zero_tolerance_keeps_the_highest_accuracy() -> None:
    assert best_of(trials((0.9, 0.05), (0.9, 0.04), (0.8, 0.01)), 0.0).value == 1


_NAMES = ("kappa", "temperature", "beta", "weight_decay")
WANTED = recipe(
    name="tuned",
    epochs=1,
    report=False,
    loss={"secondary": "s_avuc", "beta": 0.5},
    tune={
        "kappa": [0.3, 0.6], "temperature": [0.5, 1.0], "beta": [0.1, 1.0], "weight_decay": [0, 0.1]
    },
)  # fmt: skip


def watched(monkeypatch: pytest.MonkeyPatch, die_at: int = -1) -> list[dict[str, float]]:
    """Record the options of each trial; interrupt trial `die_at`."""
    runs: list[dict[str, float]] = []
    train = tuning.train

    def noted(config: Any, *more: Any) -> Any:
        if len(runs) == die_at:
            raise KeyboardInterrupt
        options = config.loss.secondary_options
        decay = config.optimiser.weight_decay
        runs.append({**options, "beta": config.loss.beta, "weight_decay": decay})
        return train(config, *more)

    monkeypatch.setattr(tuning, "train", noted)
    return runs


def test_options_are_tuned_in_order_and_keep_the_best_so_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """κ, T, β, λ; each later trial has the best of what came before."""
    runs = watched(monkeypatch)
    summary = tune(WANTED, Loaded(splits(), None), tmp_path, Onlooker())
    finished = [Trial(**run) for run in summary["trials"]]
    assert [(run.option, run.value) for run in finished] == [
        ("kappa", 0.3), ("kappa", 0.6), ("temperature", 0.5), ("temperature", 1.0),
        ("beta", 0.1), ("beta", 1.0), ("weight_decay", 0), ("weight_decay", 0.1),
    ]  # fmt: skip
    best = {
        o: best_of(finished[i : i + 2], 0.01).value
        for i, o in zip(range(0, 8, 2), _NAMES, strict=True)
    }
    assert [run["kappa"] for run in runs] == [0.3, 0.6] + [best["kappa"]] * 6
    assert [run.get("temperature") for run in runs] == (
        [None] * 2 + [0.5, 1.0] + [best["temperature"]] * 4
    )
    assert [run["beta"] for run in runs] == [0.5] * 4 + [0.1, 1.0] + [best["beta"]] * 2
    # The result is the best run itself, without another training.
    delivered = json.loads((tmp_path / "recipe.json").read_text())
    assert delivered["loss"]["secondary_options"] == {
        name: best[name] for name in ("kappa", "temperature")
    }
    assert delivered["optimiser"]["weight_decay"] == best["weight_decay"]
    last = next(
        o for o in finished if o.option == "weight_decay" and o.value == best["weight_decay"]
    )
    assert summary["validation"]["accuracy"] == last.accuracy
    assert summary["validation"]["ece_l2_equal_mass"] == last.error


def test_no_trial_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tuning that is interrupted at the fourth trial resumes with it, with the same result."""
    uninterrupted = tune(WANTED, Loaded(splits(), None), tmp_path / "alone", Onlooker())
    with monkeypatch.context() as patch:
        first = watched(patch, die_at=3)
        with pytest.raises(KeyboardInterrupt):
            tune(WANTED, Loaded(splits(), None), tmp_path / "in two", Onlooker())
    second = watched(monkeypatch)
    resumed = tune(WANTED, Loaded(splits(), None), tmp_path / "in two", Onlooker())
    assert (len(first), len(second)) == (3, 5)
    assert resumed["trials"] == uninterrupted["trials"]
    assert resumed["test"] == uninterrupted["test"]
    # Other data repeat all trials.
    second.clear()
    tune(WANTED, Loaded(splits(seed=1), None), tmp_path / "in two", Onlooker())
    assert len(second) == 8


def test_diverging_trial_is_a_recorded_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not repeated, another value is best, and only if all diverge is it an error."""
    config = recipe(
        epochs=1, report=False, loss={"secondary": "sb_ece"}, tune={"beta": [1e300, 0.1]}
    )
    summary = tune(config, Loaded(splits(), None), tmp_path, Onlooker())
    diverged, finished = (Trial(**run) for run in summary["trials"])
    assert diverged.accuracy is None
    assert "not finite" in diverged.diverged
    assert (finished.value, finished.diverged) == (0.1, "")
    assert json.loads((tmp_path / "recipe.json").read_text())["loss"]["beta"] == 0.1
    runs = watched(monkeypatch)
    tune(config, Loaded(splits(), None), tmp_path, Onlooker())
    assert runs == []
    config = config.model_copy(update={"tune": config.tune.model_copy(update={"beta": [1e300]})})
    with pytest.raises(InputError, match=r"with each beta of 1e\+300"):
        tune(config, Loaded(splits(), None), tmp_path, Onlooker())


def test_unknown_option_is_refused_before_any_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = watched(monkeypatch)
    config = recipe(loss={"secondary": "mmce"}, tune={"beta": [1], "kappa": [0.5]})
    with pytest.raises(InputError, match=r"loss.secondary: options.kappa: found an unknown option"):
        tune(config, Loaded(splits(), None), tmp_path, Onlooker())
    assert runs == []
