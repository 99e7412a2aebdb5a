"""`recalib train`: output files, invalid input, and resumption."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recalib.metrics.evaluate import evaluate
from tests.cli.running import Cli
from tests.training.models.test_imported import NETWORKS
from training.engine.artifacts import FILES

_ROOT = Path(__file__).parents[2]
_RECIPE: dict[str, Any] = {
    "name": "points",
    "data": {
        "source": "arrays",
        "options": {"train": "points-train.npz", "test": "points-test.npz"},
        "validation": 80,
    },
    "model": {"name": "linear"},
    "epochs": 3,
    "batch_size": 32,
    "device": "cpu",
    "report": False,
}
_TRAIN_AND_LIST_IMPORTS = """
import atexit, sys
from recalib.cli import main

atexit.register(lambda: print({"torch", "lightning_fabric"} & set(sys.modules)))
main(["train", "recipe.json"])
"""


def write_data(folder: Path) -> None:
    """Three classes around three points of the plane."""
    rng = np.random.default_rng(0)
    centres = np.array([[1.0, 0.0], [-0.5, 0.9], [-0.5, -0.9]])
    for name, rows in (("train", 240), ("test", 120)):
        labels = rng.integers(0, 3, rows)
        inputs = (centres[labels] + rng.standard_normal((rows, 2))).astype(np.float32)
        np.savez(folder / f"points-{name}.npz", inputs=inputs, labels=labels)


def write_recipe(folder: Path, **more: Any) -> str:
    (folder / "recipe.json").write_text(json.dumps({**_RECIPE, **more}))
    return "recipe.json"


@pytest.fixture
def points(cli: Cli) -> Cli:
    write_data(cli.folder)
    return cli


@pytest.mark.slow
def test_output_files_match_result(points: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights, logits, metrics, pages and calibrator have consistent numbers."""
    # tests/reporting draws them.
    monkeypatch.setattr("recalib.reporting.html_report.page.draw_pictures", lambda *_: [])
    recipe = write_recipe(points.folder, calibrate={"map": "temperature"}, report=True)
    output = points("train", recipe, "--json", "-o", "out").json
    out = points.folder / "out"
    assert {path.name for path in out.iterdir()} == {*FILES, "checkpoint.safetensors"}
    assert output == {"output": "out", **json.loads((out / "result.json").read_text())}
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [record["epoch"] for record in records] == [1, 2, 3]
    assert records[-1]["test"] == output["test"]
    assert set(records[0]["train"]) >= {"nll", "nll_right", "nll_wrong", "ece", "entropy"}
    with np.load(out / "test.npz") as test:
        assert test["logits"].shape == (120, 3)
        metrics = evaluate(test["labels"], logits=test["logits"], metrics=["nll", "ece"])
    assert output["test"]["nll"] == metrics["nll"].value
    # The pages are whole, and the logits are what the other commands take.
    assert "</html>" in (out / "report.html").read_text()
    assert "NLL of test rows" in (out / "curves.html").read_text()
    assert points("fit", "out/validation.npz", "-o", "t.calib").status == 0
    ours = points("evaluate", "out/test.npz", "--calibrator", "t.calib", "--json").json
    theirs = points("evaluate", "out/test.npz", "--calibrator", "out/calibrator.calib", "--json")
    assert ours == theirs.json
    assert output["calibrated"]["nll"] == pytest.approx(ours["nll"], rel=1e-6)


def test_text_output(points: Cli) -> None:
    result = points("train", write_recipe(points.folder), "-o", "out")
    assert result.status == 0
    assert [line.split(":")[0] for line in result.out.splitlines()] == [
        "epoch 1", "epoch 2", "epoch 3", "validation", "test", "saved out",
    ]  # fmt: skip
    assert points("train", "recipe.json", "-o", "out").out.splitlines()[0].startswith("validation")


def test_training_starts_from_weights(points: Cli) -> None:
    """All layers or only the last; with other classes the last layer is initialised."""
    points("train", write_recipe(points.folder), "-o", "first")
    weights = {"weights": "first/weights.safetensors"}
    write_recipe(
        points.folder,
        model={"name": "linear", "train": "head", **weights},
        epochs=1,
        optimiser={"learning_rate": 1e-30},
    )
    first = points("train", "recipe.json", "--json", "-o", "again").json
    assert (
        first["test"]["nll"]
        == json.loads((points.folder / "first" / "result.json").read_text())["test"]["nll"]
    )


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"model": {"name": "lenet"}}, "error: model.name: found 'lenet'; accepted: linear, "),
        ({"model": {"name": "os.system"}}, "error: model.name: found 'os.system'"),
        ({"model": {"name": "linear", "options": {"depth": 3}}}, "error: model.options.depth: "),
        ({"model": {"name": "linear", "options": {"classes": 9}}}, "error: model.options.classes"),
        ({"model": {"name": "resnet8"}}, "error: model.name: found resnet8, for rows (2,): "),
        ({"model": {"name": "text_cnn"}}, "error: model.options.vocabulary: found nothing"),
        (
            {"model": {"name": "linear", "options": {"features": 10**15}}},
            "error: model.options: found ",
        ),
        (
            {"model": {"name": "wide_resnet", "options": {"widen": 2**70}}},
            "error: model.options: found ",
        ),
        ({"loss": {"primary": "nll"}}, "error: loss.primary: found 'nll'"),
        ({"data": {"source": "arrays"}}, "error: data.options: found Object missing"),
        ({"data": {"sauce": "arrays"}}, "error: data: "),
        ({"augmentation": "mixup"}, "error: augmentation: found 'mixup'; accepted: none, flip"),
        ({"augmentation": "flip"}, "error: augmentation: found"),
        ({"model": {"name": "linear", "weights": "nowhere"}}, "error: model.weights: found no"),
        ({"model": {"name": "linear", "weights": "points-test.npz"}}, "error: model.weights: "),
        ({"calibrate": {"map": "magic"}}, "error: map: found 'magic'"),
        ({"calibrate": {"model": "m"}}, "error: calibrate.model: found 'm', and no registry"),
        ({"device": "cuda"}, "error: device: found cuda"),
        ({"batch_size": 1}, "error: batch_size: found 1 rows for 1 processes x 1 parts"),
    ],
)
def test_invalid_recipe_is_one_line(points: Cli, more: dict[str, Any], message: str) -> None:
    result = points("train", write_recipe(points.folder, **more), "-o", "out")
    assert (result.status, result.out) == (2, "")
    assert result.err.startswith(message)
    assert len(result.err.splitlines()) == 1


def test_missing_torch_is_reported(points: Cli) -> None:
    """The error names the missing package, after those of the data."""
    write_recipe(points.folder)
    code = (
        "import sys\nsys.modules['torch'] = None\nfrom recalib.cli import main\n"
        "main(['train', 'recipe.json'])"
    )
    result = process(points.folder, "-c", code, status=2)
    assert result.stderr == (
        "error: train: found no package torch; accepted: pip install 'recalib[train]'\n"
    )
    assert not (points.folder / "runs").exists()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"source": "arrayz"}, "data.source: found 'arrayz'"),
        ({"source": "arrays", "sorce": 1}, "data: found Object contains unknown field `sorce`"),
        ({"source": "arrays", "options": {"trian": "a.npz"}}, "data.options.trian: found an unkn"),
        ({"source": "arrays", "options": {"train": "a.npz"}}, "data.options.train: found no such"),
    ],
)
def test_wrong_data_are_refused_before_torch_is_imported(
    tmp_path: Path, data: dict[str, Any], message: str
) -> None:
    """torch takes seconds to import; Lightning Fabric takes twice as long."""
    write_recipe(tmp_path, data=data)
    result = process(tmp_path, "-c", _TRAIN_AND_LIST_IMPORTS, status=2)
    assert result.stderr.startswith(f"error: {message}")
    assert result.stdout == "set()\n"


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"device": "cuda:99"}, "device: found cuda:99, which torch does not see"),
        ({"model": {"name": "linaer"}}, "model.name: found 'linaer'"),
        ({"loss": {"options": {"gama": 2}}}, "loss.primary: options.gama: found an unknown option"),
    ],
)
@pytest.mark.slow
def test_wrong_parts_are_refused_before_fabric_is_imported(
    points: Cli, part: dict[str, Any], message: str
) -> None:
    """What needs torch does not wait for Lightning Fabric."""
    write_recipe(points.folder, **part)
    result = process(points.folder, "-c", _TRAIN_AND_LIST_IMPORTS, status=2)
    assert result.stderr.startswith(f"error: {message}")
    assert result.stdout == "{'torch'}\n"


def test_mismatched_weights_are_listed(points: Cli) -> None:
    """The error lists missing, unknown and mismatched weights."""
    from safetensors.numpy import save_file

    tensors = {"head.weight": np.ones((3, 5), np.float32), "body.bias": np.ones(2, np.float32)}
    save_file(tensors, points.folder / "w.safetensors")
    recipe = write_recipe(points.folder, model={"name": "linear", "weights": "w.safetensors"})
    result = points("train", recipe, "-o", "out")
    assert result.err == (
        "error: model.weights: found head.weight (3, 5) instead of (3, 2); head.bias (3,) missing; "
        "body.bias (2,) unknown; accepted: the 2 tensors of a Linear, 9 numbers\n"
    )


def test_checkpoint_of_another_recipe_is_rejected(points: Cli) -> None:
    points("train", write_recipe(points.folder), "-o", "out")
    result = points("train", write_recipe(points.folder, seed=2), "-o", "out")
    assert result.status == 2
    assert result.err.startswith("error: seed: found 2, and a checkpoint of a run with 1;")
    assert json.loads((points.folder / "out" / "recipe.json").read_text())["seed"] == 1


def test_interrupt_is_reported_and_the_run_resumes(
    points: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line on standard error, status 130; the same command ends with the same weights."""
    recipe = write_recipe(points.folder)
    assert points("train", recipe, "-o", "uninterrupted").status == 0
    with monkeypatch.context() as patch:
        patch.setattr("recalib.cli.train.say", lambda _: signal.raise_signal(signal.SIGINT))
        result = points("train", recipe, "-o", "out")
    assert (result.status, result.out, result.err) == (130, "", "interrupted\n")
    assert points("train", recipe, "-o", "out").status == 0
    weights = [
        (points.folder / name / "weights.safetensors").read_bytes()
        for name in ("uninterrupted", "out")
    ]
    assert weights[0] == weights[1]


def test_output_must_be_a_folder(points: Cli) -> None:
    result = points("train", write_recipe(points.folder), "-o", "val.npz")
    assert result.err.startswith("error: output: found val.npz (a file)")


def process(folder: Path, *command: object, status: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a program on one thread in `folder`, and check its exit status."""
    result = subprocess.run(
        [sys.executable, *(str(argument) for argument in command)],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(_ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == status, result.stderr
    return result


#: Patches the process that runs it: at that fsync, a write has not got its name yet.
_DYING = """
import os, signal, sys
sync, left = os.fsync, int(sys.argv.pop(1))
def fsync(descriptor):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    sync(descriptor)
os.fsync = fsync
from recalib.cli import main
main()
"""


@pytest.mark.slow
def test_killed_run_resumes_bit_for_bit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """kill -9 while the third epoch's checkpoint is written: the second's stands."""
    write_data(tmp_path)
    optimiser = {"milestones": [2], "nesterov": True}
    write_recipe(
        tmp_path, epochs=4, optimiser=optimiser, loss={"secondary": "crl"}, checkpoint_steps=2
    )
    (tmp_path / "dying.py").write_text(_DYING)
    # Each file takes two: of the recipe; of two checkpoints in an epoch, of one at its end and of
    # its metrics, twice; and of the third epoch's first.
    process(tmp_path, "dying.py", 2 + 16 + 1, "train", "recipe.json", "-o", "killed", status=-9)
    remaining = {path.name for path in (tmp_path / "killed").iterdir()}
    assert "checkpoint.safetensors" in remaining
    assert any(name.endswith(".tmp") for name in remaining)
    assert len((tmp_path / "killed" / "metrics.jsonl").read_text().splitlines()) == 2
    process(tmp_path, "-m", "recalib", "train", "recipe.json", "-o", "killed")
    Cli(tmp_path, capsys)("train", tmp_path / "recipe.json", "-o", tmp_path / "alone")
    for name in ("weights.safetensors", "validation.npz", "test.npz", "result.json"):
        killed, alone = ((tmp_path / run / name).read_bytes() for run in ("killed", "alone"))
        assert killed == alone, name


@pytest.mark.slow
def test_own_network_is_trained_and_fine_tuned(points: Cli) -> None:
    """From a recipe: train, save a state with torch, and go on from it with a new head."""
    import torch

    from training.engine.weights import read_weights

    (points.folder / "networks.py").write_text(NETWORKS)
    model: dict[str, Any] = {"name": f"{points.folder}/networks.py:Network"}
    model |= {"options": {"width": 16}}
    write_recipe(points.folder, model=model, epochs=8)
    result = points("train", points.folder / "recipe.json", "-o", points.folder / "first", "--json")
    assert result.json["test"]["accuracy"] > 0.6
    weights = read_weights(points.folder / "first" / "weights.safetensors")
    renamed = {f"module.{name}": value for name, value in weights.items()}
    torch.save({"model": renamed}, points.folder / "start.pth")
    model |= {"weights": "start.pth", "new_head": True, "train": "head"}
    write_recipe(points.folder, model=model, epochs=2)
    second = points("train", points.folder / "recipe.json", "-o", points.folder / "second")
    assert second.status == 0, second.err
    tuned = read_weights(points.folder / "second" / "weights.safetensors")
    assert torch.equal(tuned["body.weight"], weights["body.weight"])
    assert not torch.equal(tuned["classifier.1.weight"], weights["classifier.1.weight"])
