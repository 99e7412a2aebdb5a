"""The training benchmark: its runs, their reuse, and its report."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.stats
import torch
from numpy.typing import NDArray

from benchmarks.training import __main__ as command
from benchmarks.training import (
    features,
    glove,
    overhead,
    running,
    selective_risk,
    sst,
    step,
    table,
)
from benchmarks.training.claims import CLAIMS, Claim, Side, cohens_d, verdict
from benchmarks.training.measuring import MAPS, METRICS, measure
from benchmarks.training.networks import WordMean
from benchmarks.training.objectives import INTERLEAVED, LEADING, OBJECTIVES
from benchmarks.training.running import Budget, Finished, finish, recipe_for
from benchmarks.training.table import write
from recalib.errors import InputError
from recalib.losses import LOSSES
from training.data import Split, Splits
from training.data.augmentation import AUGMENTATIONS
from training.data.pixels import Pixels
from training.engine.objective import TrainingObjective

_BUDGET = Budget(size=8, rows=24, epochs=1, shifted=5, device="cpu")


def _splits() -> Splits:
    def split(rows: int, seed: int) -> Split:
        rng = np.random.default_rng(seed)
        pixels = rng.integers(0, 256, (rows, 8, 8, 3), dtype=np.uint8)
        return Split.with_all_rows(Pixels(pixels), rng.integers(0, 10, rows))

    return Splits(split(24, 0), split(30, 1), split(30, 2), 10, {"channels": 3})


def _story(
    objective: str, seed: int, ece: float, shifted: float = 0.2, accuracy: float = 0.4
) -> dict[str, Any]:
    output = {
        name: {
            "test": {**dict.fromkeys(METRICS, ece), "accuracy": accuracy},
            "shifted": [{"ece_l2_equal_mass": shifted}] * 5,
        }
        for name in MAPS
    }
    return {
        "objective": objective, "seed": seed, "measured": output, "seconds": 1.0,
        "processor_seconds": 1.0, "device": "CPU", "history": [{"train": {"accuracy": 0.5}}],
    }  # fmt: skip


def test_objectives_are_valid_and_claims_use_them() -> None:
    for part in OBJECTIVES.values():
        TrainingObjective(part, samples=10)
    assert set(LEADING) | INTERLEAVED <= set(OBJECTIVES)
    sides = {side.objective for claim in CLAIMS for side in (claim.low, claim.high)}
    assert sides <= set(OBJECTIVES)


def test_command_line_sets_the_budget() -> None:
    arguments = (
        "--model wide_resnet --size 32 --rows 9 --epochs 7 --shifted 5 --device cuda --batch 3"
        " --width 0 --rate 0.02"
    )
    expected = Budget("wide_resnet", 32, 9, 7, 5, "cuda", 3, 0.02, 0)
    budget = command.budget_of(command.parser().parse_args(arguments.split()))
    assert budget == expected
    assert command.budget_of(command.parser().parse_args([])) == Budget()
    recipe = recipe_for("CE", 1, budget)
    assert (recipe.batch_size, recipe.optimiser.rate, recipe.model.options) == (3, 0.02, {})


def test_schedule_matches_the_paper() -> None:
    """At 350 epochs, the rate falls after 150 and 250."""
    recipe = recipe_for("CE", 1, Budget(epochs=350, size=32))
    assert recipe.optimiser.milestones == pytest.approx([150, 250])
    assert recipe.augmentation == "crop_flip"
    assert recipe_for("CE + SB-ECE, interleaved", 1, _BUDGET).interleave.when == "always"
    assert not Budget(size=32, rows=45_000, epochs=60).under_trained
    assert _BUDGET.under_trained


def test_finished_run_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Metrics are those of the network's output; a second call reads the file."""
    splits = _splits()

    def sizes(arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
        return {name: list(array.shape) for name, array in arrays.items()}

    recipe = recipe_for("CE + CRL", 1, _BUDGET)
    first = finish(tmp_path, splits, "CE + CRL", recipe, sizes, 5)
    assert first.story["measured"] == {
        "validation_logits": [30, 10], "validation_labels": [30], "test_logits": [30, 10],
        "test_labels": [30], "shifted_logits": [9, 5, 5, 10], "shifted_labels": [5],
    }  # fmt: skip
    assert len(first.story["history"]) == 1

    def never(*_: object, **__: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(running, "train", never)
    second = finish(tmp_path, splits, "CE + CRL", recipe, sizes, 5)
    np.testing.assert_array_equal(second.arrays["test_logits"], first.arrays["test_logits"])
    assert second.story == first.story
    longer = Budget(size=8, rows=24, epochs=2, device="cpu")
    changed = finish(tmp_path, splits, "CE + CRL", recipe, lambda _: 1, 5, again=True)
    assert changed.story["measured"] == 1
    assert finish(tmp_path, splits, "CE + CRL", recipe, sizes, 5).story == changed.story
    for other in (recipe_for("CE + CRL", 2, _BUDGET), recipe_for("CE + CRL", 1, longer)):
        with pytest.raises(AssertionError, match="trained again"):
            finish(tmp_path, splits, "CE + CRL", other, sizes, 5)
    with pytest.raises(AssertionError, match="trained again"):
        finish(tmp_path, splits, "CE + CRL", recipe, sizes, 6)


def test_diverged_run_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def diverge(*_: object, **__: object) -> None:
        raise InputError("optimiser.learning_rate", found="NaN", accepted="less")

    monkeypatch.setattr(running, "train", diverge)
    run = finish(tmp_path, _splits(), "CE", recipe_for("CE", 1, _BUDGET), measure)
    assert "found NaN" in run.story["diverged"]
    assert not run.arrays
    good = Finished(_story("Brier", 1, 0.04), {})
    write(tmp_path / "table", [run, good], _BUDGET, _splits())
    assert "- CE, seed 1: optimiser.learning_rate" in (tmp_path / "table.md").read_text()


def test_metrics_are_measured_before_and_after_maps() -> None:
    """The network's own numbers are those of its softmax, and temperature makes NLL smaller."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 400)
    logits = 4 * (np.eye(3)[labels] + rng.normal(size=(400, 3)))
    arrays = {
        "validation_logits": logits[:200], "validation_labels": labels[:200],
        "test_logits": logits[200:], "test_labels": labels[200:],
        "shifted_logits": np.tile(logits[200:, None, None], (1, 2, 5, 1)).transpose(1, 2, 0, 3),
        "shifted_labels": labels[200:],
    }  # fmt: skip
    metrics = measure(arrays)
    assert set(metrics) == set(MAPS)
    accuracy = (logits[200:].argmax(axis=1) == labels[200:]).mean()
    assert metrics[""]["test"]["accuracy"] == pytest.approx(accuracy)
    assert metrics["TS"]["test"]["nll"] < metrics[""]["test"]["nll"]
    # Not shifted at all here: the same rows twice for each severity.
    for values in metrics.values():
        for severity in values["shifted"]:
            assert severity["nll"] == pytest.approx(values["test"]["nll"], rel=1e-6)


def test_verdicts() -> None:
    """A verdict needs p < .05 of a paired t-test, which knows the number of seeds."""
    claim = Claim("", "", Side("CE + ACLS"), Side("CE"))
    stories = {
        "CE": [_story("CE", seed, 0.10) for seed in (1, 2, 3)],
        "CE + ACLS": [_story("CE + ACLS", 1, 0.05)],
    }
    result = verdict(claim, stories)
    assert (result.seeds, result.difference, result.here) == (1, "+5.0", "one seed: no test")
    stories["CE + ACLS"] = [_story("CE + ACLS", s, e) for s, e in ((1, 0.07), (2, 0.08), (3, 0.07))]
    three = verdict(claim, stories)
    assert (three.seeds, three.difference, three.p, three.here) == (
        3,
        "+2.7 ± 0.3",
        "0.015",
        "seen",
    )
    # 2.65 standard errors: not with three seeds.
    stories["CE + ACLS"][1] = _story("CE + ACLS", 2, 0.09)
    three = verdict(claim, stories)
    expected = scipy.stats.ttest_rel([0.10] * 3, [0.07, 0.09, 0.07]).pvalue
    assert (three.p, three.here) == (f"{expected:.3f}", "no difference seen")
    turned = Claim("", "", Side("CE"), Side("CE + ACLS"))
    stories["CE + ACLS"][1] = _story("CE + ACLS", 2, 0.06)
    assert verdict(turned, stories).here == "the opposite is seen"
    assert verdict(Claim("", "", Side("AURC"), Side("CE")), stories).here == "not run"
    stories["AURC"] = [_story("AURC", 1, 0.01, accuracy=0.11)]
    unlearnt = verdict(Claim("", "", Side("AURC"), Side("CE")), stories)
    assert (unlearnt.seeds, unlearnt.here) == (0, "a side has not learnt")
    stories["CE + ACLS"] = [_story("CE + ACLS", 1, 0.5, shifted=0.1)]
    shifted = Claim("", "", Side("CE + ACLS", "TS", 3), Side("CE", "", 5), "ece_l2_equal_mass")
    assert verdict(shifted, stories).difference == "+10.0"
    stories["CE"][0]["measured"][""]["shifted"] = []
    assert verdict(shifted, stories).here == "not measured"
    stories["CE + ACLS"][0]["classes"] = 2  # an accuracy of 0.4 is below chance
    assert verdict(claim, stories).here == "a side has not learnt"


def test_effect_sizes(tmp_path: Path) -> None:
    """By hand: means 0.12 and 0.08, variances 0.0002 and 0.0008, pooled 0.0005."""
    assert cohens_d([0.11, 0.13], [0.06, 0.10]) == pytest.approx(0.04 / 0.0005**0.5)
    runs = [_story("CE", seed, ece) for seed, ece in ((1, 0.11), (2, 0.13))]
    runs += [_story("CE + MMCE", seed, ece) for seed, ece in ((1, 0.06), (2, 0.10))]
    write(tmp_path / "table", [Finished(run, {}) for run in runs], _BUDGET, _splits())
    assert "| CE | MMCE | 2 | +1.8 | +1.8 |" in (tmp_path / "table.md").read_text()


def test_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Means with standard errors where there are several seeds, and the warning."""
    runs = [_story("CE", 1, 0.10), _story("CE", 2, 0.12), _story("Brier", 1, 0.04)]
    runs.append(_story("AURC", 1, 0.01, accuracy=0.11))
    write(tmp_path / "table", [Finished(run, {}) for run in runs], _BUDGET, _splits())
    text = (tmp_path / "table.md").read_text()
    assert "**Under-trained**" in text
    assert "| CE | 2 | 50.0 ± 0.0 | 40.0 ± 0.0 | 11.0 ± 1.0 |" in text
    assert "| Brier | 1 | 50.0 | 40.0 | 4.0 |" in text
    assert "| AURC † | 1 | 50.0 | 11.0 | 1.0 |" in text
    assert "| 004, table 1 | Brier below CE, ECE | 1 | +6.0 |  | one seed: no test |" in text
    (tmp_path / "table.md").write_text(text.replace("one seed: no test", "old"))
    monkeypatch.setattr("sys.argv", ["table", str(tmp_path / "table.json")])
    table.main()
    assert (tmp_path / "table.md").read_text() == text
    assert len(json.loads((tmp_path / "table.json").read_text())["runs"]) == 4


def test_treebank() -> None:
    """Objectives can be constructed, claims use them, and recipes differ by their vectors."""
    for part in sst.OBJECTIVES.values():
        TrainingObjective(part, samples=10)
    sides = {side.objective for claim in sst.CLAIMS for side in (claim.low, claim.high)}
    assert sides <= set(sst.OBJECTIVES)
    options = sst.options_of(["--model", "word_mean", "--glove"])
    model = sst.recipe_for("CE", 1, options).model
    assert (model.name, model.weights) == ("benchmarks.training.networks:WordMean", glove.NAME)
    assert model.options["embedding"] == 50
    assert sst.recipe_for("CE", 1, sst.options_of([])).model.weights is None
    with pytest.raises(SystemExit):
        sst.options_of(["--glove", "--embedding", "300"])


def test_word_vectors_of_a_vocabulary(tmp_path: Path) -> None:
    """Words have their GloVe vectors, brackets and slashes too; padding is 0, others are small."""
    index = pa.table({"index": ["good", "(", "1/2"]})
    pq.write_table(index, tmp_path / "glove_6B_index.parquet")
    vectors = np.arange(150, dtype=np.float32).reshape(3, 50)
    np.save(tmp_path / "glove_6B_50d_emb.npy", vectors)
    weights = glove.read(tmp_path, ["1\\/2", "-lrb-", "zzz", "good"])
    weight = weights["words.weight"].numpy()
    np.testing.assert_array_equal(weight[[2, 3, 5]], vectors[[2, 1, 0]])
    np.testing.assert_array_equal(weight[0], 0)
    assert 0 < np.abs(weight[[1, 4]]).max() < 0.5


def test_word_mean_ignores_padding_and_order() -> None:
    network = WordMean(2, vocabulary=9, embedding=4, width=5).eval()
    logits = network(torch.tensor([[3, 4, 5, 0, 0], [5, 3, 4, 0, 0]]))
    torch.testing.assert_close(logits, network(torch.tensor([[3, 4, 5], [4, 5, 3]])))


def test_network_on_fixed_features(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Features have the training images' statistics, are computed once, and can be corrupted."""
    monkeypatch.setattr(features, "_FILTERS", 12)
    images = _splits()
    splits = features.feature_splits(images, tmp_path)
    inputs = splits.train.inputs
    assert isinstance(inputs, features.Features)
    assert inputs.values.shape == (24, splits.facts["features"]) == (24, 23)
    np.testing.assert_allclose(inputs.values.mean(axis=0), 0, atol=1e-4)
    assert inputs.values.var(axis=0, ddof=1).mean() == pytest.approx(1, rel=1e-3)
    budget = Budget(model="mlp", size=8, rows=24, epochs=1, shifted=5, device="cpu")
    run = finish(tmp_path, splits, "CE", recipe_for("CE", 1, budget), lambda arrays: len(arrays), 5)
    assert run.arrays["shifted_logits"].shape == (9, 5, 5, 10)
    assert not np.allclose(run.arrays["shifted_logits"][0, 4], run.arrays["test_logits"][:5])

    def never(*_: object) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr(features.Extractor, "_responses", never)
    again = features.feature_splits(images, tmp_path)
    assert again.digest == splits.digest


def test_selection_of_options() -> None:
    """The lowest validation NLL of a family, of runs that have not diverged."""
    parts = selective_risk.candidates()
    for part in parts:
        TrainingObjective(part.loss, samples=10)
    stories = {
        part: {"measured": {"validation": {"nll": 1.0 + i, "accuracy": 0.5, "ece": 0.1}}}
        for i, part in enumerate(parts[::-1])
    }
    stories[parts[0]] = {"diverged": "NaN"}
    selected = selective_risk.select(stories)
    families = {part.family for part in parts}
    assert set(selected) == families
    last = {part.family: part for part in parts}
    assert selected == last


def test_smooth_distribution_of_scores() -> None:
    """A smaller ν is nearer to the scores' own distribution; a large one is far from it."""
    logits = 2 * np.random.default_rng(0).normal(size=(400, 10))
    rows = selective_risk.distances(logits, "msp")
    assert [nu for nu, _, _ in rows] == list(selective_risk.NUS)
    means = [mean for _, _, mean in rows]
    assert means == sorted(means)
    # ν = 1: σ is .27 to .73 over the range of the scores.
    assert means[0] < 0.05 < 0.15 < means[-1]


@pytest.mark.slow
def test_selection_trains_measures_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    splits = replace(_splits(), facts={"features": 192})
    monkeypatch.setattr(running, "prepare", lambda *_: splits)
    monkeypatch.setattr(selective_risk, "NUS", (0.3, 1.0))
    monkeypatch.setattr(selective_risk, "COVERAGES", (0.8,))
    monkeypatch.setattr(selective_risk, "SCORES", ("msp",))
    monkeypatch.setattr(selective_risk, "GAMMAS", {})
    monkeypatch.setattr(selective_risk, "FIXED", ("CE",))
    (tmp_path / "cifar10-train.parquet").touch()
    monkeypatch.setenv("RECALIB_DATA", str(tmp_path))
    output = tmp_path / "table.md"
    arguments = (
        f"--model linear --width 0 --size 8 --epochs 1 --seeds 1 2 --device cpu "
        f"--cache {tmp_path / 'runs'} --output {output}"
    ).split()
    selective_risk.main(arguments)
    text = output.read_text()
    # Two candidates and cross-entropy, and the second seed of the selected ones.
    assert len(list((tmp_path / "runs").iterdir())) == 2 + 1 + 2
    assert text.count("(selected)") == 1
    assert "### After MetaAcc" in text
    monkeypatch.setattr(running, "_trained", None)
    selective_risk.main(arguments)
    assert output.read_text() == text


def test_tables_of_selections() -> None:
    part = selective_risk.candidates()[0]
    metrics = dict.fromkeys(("accuracy", "ece", "ece_equal_mass", "classwise_ece"), 0.5)
    measured = {
        name: {"test": {**metrics, "ece": ece}, "shifted": []}
        for name, ece in (("", 0.4), ("TS", 0.2), ("MetaMis", 0.1), ("MetaAcc", 0.1))
    }
    grid = {part: {"measured": {"validation": {"accuracy": 0.6, "nll": 1.2, "ece": 0.1}}}}
    story = {"seed": 1, "measured": measured}
    stories = {part.family: [story], "CE": [story]}
    text = selective_risk.markdown(_BUDGET, [(0.1, 0.25, 0.05)], grid, {part.family: part}, stories)
    lines = text.splitlines()
    assert "| 0.1 | 25.0 | 5.0 |" in lines
    assert f"| {part.family} | {part.options} (selected) | 60.0 | 1.200 | 10.0 |" in lines
    assert "| CE | 1 | 50.0 | 40.0 | 50.0 | 50.0 |" in lines
    assert any("below CE, ECE | 1 | +0.0 |  | one seed: no test" in line for line in lines)


def test_table_of_the_treebank() -> None:
    test = {"accuracy": 0.8, "ece": 0.05, "ece_equal_mass": 0.04, "mce": 0.1, "nll": 0.5}
    measured = {"": {"test": test}, "TS": {"test": {**test, "ece": 0.03}}}
    stories = {"CE": [{"seed": 1, "classes": 2, "measured": measured}], "Brier": []}
    lines = sst.markdown(stories, _splits(), sst.options_of([])).splitlines()
    cells = "80.0 | 5.0 | 4.0 | 10.0 | 0.500 | 80.0 | 3.0 | 4.0 | 10.0 | 0.500"
    assert f"| CE | 1 | {cells} | 7.37, 2.62 |" in lines
    claim = "| 004, table 1 | CE after TS below CE, ECE | 1 | +2.0 |  | one seed: no test |"
    assert claim in lines
    assert not any(line.startswith("| Brier") for line in lines)


def test_overhead_times_every_loss() -> None:
    costs = overhead.measure("linear", 32, 5, list(LOSSES), 1)
    assert list(costs) == list(LOSSES)
    assert all(cost.alone > 0 for cost in costs.values())
    usual = costs["cross_entropy"]
    sums = {"brier": usual.step - usual.alone, "mdca": usual.step}
    for name, rest in sums.items():  # a regulariser comes on top of cross-entropy
        assert costs[name].step == pytest.approx(rest + costs[name].alone)


def test_step_shows_the_time_of_its_data_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """An augmentation that takes 20 ms of processor time, for a network that takes less."""
    slow = 0.02

    def augment(_shape: torch.Size, _generator: torch.Generator) -> Any:
        end = time.thread_time() + slow
        while time.thread_time() < end:
            pass
        return lambda values, _outside: values

    monkeypatch.setitem(AUGMENTATIONS, "crop_flip", (augment,))
    recipe = step.recipe_for("linear", 8, device="cpu")
    result = step.measure(recipe, step.images(16, 4), 3)
    assert 0 < result.ready < result.step - slow / 2
    assert result.data_share == pytest.approx(1 - result.ready / result.step)
