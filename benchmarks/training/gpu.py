"""`make gpu`: all that needs a GPU, and the papers' losses on it beside their columns.

1. `overhead`: the share of a training step that each loss takes (`overhead`).
2. `data`: the share of a training step that its data path takes (`step`).
3. `processes`: a run in two processes that see each other's rows, by NCCL where there are two GPUs.
4. `training`: a network on CIFAR-10 by a shortened schedule of papers 004 and 001: their optimiser
   and batches, with the learning rate divided by 10 after 150/350 and 250/350 of the epochs; losses
   of paper 004 by the loop of its code, which sums a batch and clips gradients to a norm of 2. Each
   finished run is a file with its logits below `--cache`, and is not repeated. After each run a row
   is printed, and the table rewritten.
5. `tests`: the tests that skip without CUDA.

After `--minutes` no further run starts, and tests end; the output says what is missing.
`make gpu PYTHON=...` with an interpreter that has torch installs nothing. It first prints the
command that installs every package that the steps lack, and runs the steps that lack none.

Without a GPU the command says so and ends with status 0. With `--device cpu`, all but the tests run
on the CPU, as `tests/benchmarks/test_gpu.py` does with a small network.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.data import data_folder

# Each step imports its packages itself: the interpreter may lack those of another.
if TYPE_CHECKING:
    from benchmarks.training.running import Budget

_ROOT = Path(__file__).parents[2]
_RESULTS = _ROOT / "benchmarks" / "results" / "gpu"
_STEPS = ("overhead", "data", "processes", "training", "tests")
_TESTED = (
    "tests/fitting/test_device.py", "tests/losses/test_losses.py", "tests/test_torch_modules.py",
    "tests/training/engine/test_loading.py", "tests/training/engine/test_parts.py",
    "tests/training/engine/test_speed.py",
)  # fmt: skip
_LOSSES = ("numpy", "msgspec")
_TRAINING = (
    *_LOSSES, "scipy", "pydantic", "safetensors", "lightning-fabric", "pyarrow", "pillow",
    "threadpoolctl",
)  # fmt: skip
_COMMAND = (
    *_TRAINING, "altair", "vl-convert-python", "fsspec", "jinja2", "pydantic-settings", "rich",
    "typer",
)  # fmt: skip
#: The packages that each step needs beside torch; they bring others.
_NEEDED = {
    "overhead": _LOSSES,
    "data": _TRAINING,
    "processes": _COMMAND,
    "training": _TRAINING,
    "tests": (*_COMMAND, "pytest", "pytest-timeout", "hypothesis", "onnx", "psutil"),
}


@dataclass(frozen=True)
class Published:
    """Accuracy, ECE, and ECE after temperature scaling where reported, in percent."""

    accuracy: float
    ece: float
    scaled: float | None = None

    def cells(self) -> tuple[str, str, str]:
        """Return the three numbers as text."""
        scaled = "" if self.scaled is None else f"{self.scaled:.2f}"
        return f"{self.accuracy:.1f}", f"{self.ece:.2f}", scaled


#: Papers 004 (tables 1 and 4) and 001 (table 3): ResNet-50, ECE. Paper 000 (table 2): WRN-28-10, ℓ2
#: ECE with equal-mass bins.
PUBLISHED: dict[str, dict[str, Published]] = {
    "CE, summed": {
        "004": Published(95.05, 4.35, 1.35),
        "001": Published(93.20, 5.85, 3.68),
        "000": Published(95.5, 5.59, 1.95),
    },
    "Brier, summed": {"004": Published(95.0, 1.82, 1.08), "000": Published(95.0, 6.58, 5.33)},
    "FLSD-53, summed": {"004": Published(95.02, 1.55, 0.95), "001": Published(94.77, 3.84)},
    "CE + ACLS, released": {"001": Published(95.40, 1.12)},
    "CE + MbLS": {"001": Published(95.25, 1.16)},
    "CE + SB-ECE, released": {"000": Published(95.4, 5.84, 2.28)},
    "CE + S-AvUC, released": {"000": Published(95.4, 5.87, 2.24)},
}


def main(arguments: list[str] | None = None) -> None:
    """Run the steps; end with status 1 if a test or the run of two processes fails."""
    options = _parser().parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        print("no GPU that torch can use on this machine: nothing was run")
        return
    missing = {name: lacks for name in options.steps if (lacks := _missing(_NEEDED[name]))}
    if missing:
        packages = " ".join(dict.fromkeys(itertools.chain(*missing.values())))
        print(f"missing: {sys.executable} -m pip install {packages}")
        print(f"not run without them: {', '.join(missing)}", flush=True)
    options.output.mkdir(parents=True, exist_ok=True)
    options.end = time.monotonic() + 60 * options.minutes
    data = data_folder().resolve()  # one of the steps has another working folder
    steps: dict[str, Callable[[], bool | None]] = {
        "overhead": lambda: _overhead(options),
        "data": lambda: _data_path(options),
        "processes": lambda: _processes(data, options),
        "training": lambda: _train(data, options),
        "tests": lambda: _tests(options),
    }
    with tempfile.TemporaryDirectory() as folder:
        _describe_source(Path(folder))
        failures = [
            name
            for name, run in steps.items()
            if name in set(options.steps) - set(missing) and run() is False
        ]
    if failures:
        sys.exit(f"failed: {', '.join(failures)}")


def _missing(packages: Iterable[str]) -> list[str]:
    installed = {
        found.name.lower().replace("_", "-") for found in importlib.metadata.distributions()
    }
    return [name for name in packages if name not in installed]


def _describe_source(folder: Path) -> None:
    """Let an interpreter without an installed Recalib find the version of this source."""
    try:
        importlib.metadata.version("recalib")
    except importlib.metadata.PackageNotFoundError:
        version = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]["version"]
        (folder / f"recalib-{version}.dist-info").mkdir()
        text = f"Metadata-Version: 2.1\nName: recalib\nVersion: {version}\n"
        (folder / f"recalib-{version}.dist-info" / "METADATA").write_text(text)
        sys.path.append(str(folder))
        os.environ["PYTHONPATH"] = os.pathsep.join([str(_ROOT), str(folder)])


def _tests(options: argparse.Namespace) -> bool:
    print("# Tests", flush=True)
    command = [sys.executable, "-m", "pytest", "--noconftest", "-rs", "-k", "cuda or gpu", *_TESTED]
    seconds = max(options.end - time.monotonic(), 1)
    try:
        return subprocess.run(command, cwd=_ROOT, check=False, timeout=seconds).returncode == 0
    except subprocess.TimeoutExpired:
        print(f"the tests were not finished after {options.minutes} minutes", flush=True)
        return True


def _overhead(options: argparse.Namespace) -> None:
    from benchmarks.training import overhead
    from recalib.losses import LOSSES

    costs = overhead.measure(
        options.model, options.batch, 10, list(LOSSES), options.times, options.size
    )
    lines = _head("Steps", options, "loss", "alone, ms", "step, ms", "step of cross-entropy")
    for name, cost in costs.items():
        ratio = cost.step / costs["cross_entropy"].step
        lines.append(f"| {name} | {cost.alone * 1e3:.3f} | {cost.step * 1e3:.2f} | {ratio:.3f} |")
    _write(options.output / "overhead.md", lines)


def _head(what: str, options: argparse.Namespace, *columns: str) -> list[str]:
    """Return the first lines of a table of a network."""
    title = f"# {what} of {options.model}, {options.batch} images, on {_device(options.device)}"
    return [title, "", f"| {' | '.join(columns)} |", "|---|" + "--:|" * (len(columns) - 1)]


def _data_path(options: argparse.Namespace) -> None:
    from benchmarks.training import step

    count = 20 if options.device == "cuda" else 2
    splits = step.images(count * options.batch, options.size)
    columns = "configuration", "step, ms", "batch ready, ms", "data path"
    lines = _head("Data path", options, *columns)
    for name, fields in step.CONFIGURATIONS.items():
        if options.device == "cpu" and "compile" in fields:
            continue  # a CPU has no CUDA graphs
        recipe = step.recipe_for(options.model, options.batch, device=options.device, **fields)
        result = step.measure(recipe, splits, max(options.times // 20, 1))
        times = f"{1e3 * result.step:.2f} | {1e3 * result.ready:.2f}"
        lines.append(f"| {name} | {times} | {result.data_share:.1%} |")
    _write(options.output / "data.md", lines)


def _processes(data: Path, options: argparse.Namespace) -> bool:
    """Train in two processes with a loss of the whole batch, and compare nothing but success."""
    if options.device == "cuda" and torch.cuda.device_count() < 2:
        print("one GPU: no run in two processes by NCCL", flush=True)
        return True
    if not _has_images(data):
        return True
    folder = options.output / "two-processes"
    folder.mkdir(exist_ok=True)
    files = {
        "train": str(data / "cifar10-train.parquet"),
        "test": str(data / "cifar10-test.parquet"),
    }
    recipe = {
        "data": {
            "source": "images", "options": {**files, "size": options.size},
            "validation": 500, "rows": options.rows if options.device == "cpu" else 5_000,
        },
        "model": {"name": options.model, "options": _width(options)},
        "loss": {"secondary": "sb_ece"}, "batch_size": options.batch, "epochs": 1,
        "device": options.device, "report": False,
    }  # fmt: skip
    (folder / "recipe.json").write_text(json.dumps(recipe))
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
        "--no-python", str(Path(sys.executable).with_name("recalib")), "train", "recipe.json",
        "-o", "run",
    ]  # fmt: skip
    print("# Two processes", flush=True)
    return subprocess.run(command, cwd=folder, check=False).returncode == 0


def _has_images(data: Path) -> bool:
    present = (data / "cifar10-train.parquet").is_file()
    if not present:
        print(f"no cifar10-train.parquet in {data}, so nothing is trained: set RECALIB_DATA")
    return present


def _train(data: Path, options: argparse.Namespace) -> None:
    from benchmarks.training.measuring import measure
    from benchmarks.training.running import Budget, Finished, finish, prepare, recipe_for
    from recalib.files import write_atomically

    if not _has_images(data):
        return
    budget = Budget(
        model=options.model, size=options.size, rows=options.rows, epochs=options.epochs,
        shifted=options.shifted, device=options.device, batch=options.batch, width=options.width,
    )  # fmt: skip
    splits = prepare(data, budget, options.cache)
    finished: list[Finished] = []
    for place, objective in enumerate(options.objectives):
        if time.monotonic() > options.end:
            missing = ", ".join(options.objectives[place:])
            print(f"{options.minutes} minutes are over: no run of {missing}", flush=True)
            return
        recipe = recipe_for(objective, 1, budget)
        run = finish(options.cache, splits, objective, recipe, measure, budget.shifted)
        finished.append(run)
        stories = [run.story for run in finished]
        lines = comparison(stories, budget)
        _write(options.output / "cifar10.md", lines, show=False)
        write_atomically(options.output / "cifar10.json", json.dumps(stories, indent=1).encode())
        print("\n".join(lines if len(finished) == 1 else lines[-1:]), flush=True)


def comparison(stories: Iterable[dict[str, Any]], budget: Budget) -> list[str]:
    """Return the lines of a table of runs beside the papers' numbers."""
    title = f"# {budget.model} on CIFAR-10: {budget.epochs} of the papers' 350 epochs"
    lines = [
        title,
        "",
        "A shortened schedule of papers 004 and 001, one seed: SGD with momentum 0.9 and decay "
        f"5e-4, batches of {budget.batch}, a rate of 0.1 divided by 10 after 150/350 and 250/350 "
        "of the epochs; `summed` is paper 004's loop, sums over a batch with gradients clipped to "
        f"a norm of 2; {budget.rows} images of {budget.size}x{budget.size}. In percent, 15 bins. "
        "In the columns of paper 000 the network is WRN-28-10 and the error ℓ2 ECE with equal-mass "
        "bins, ours in the columns before; TS is temperature scaling by NLL.",
        "",
        "| objective | accuracy | ECE | TS | 004: accuracy | ECE | TS | 001: accuracy | ECE | TS "
        "| ℓ2 ECE | TS | 000: accuracy | ℓ2 ECE | TS | seconds |",
        "|---|" + "--:|" * 15,
    ]
    for story in stories:
        name = story["objective"]
        if "diverged" in story:
            lines.append(f"| {name} | diverged |" + " |" * 14)
            continue
        before, after = (story["measured"][map]["test"] for map in ("", "TS"))
        ours = [f"{100 * value:.2f}" for value in (before["ece"], after["ece"])]
        ours_l2 = [f"{100 * test['ece_l2_equal_mass']:.2f}" for test in (before, after)]
        papers = PUBLISHED.get(name, {})
        published = {
            paper: papers[paper].cells() if paper in papers else ("", "", "")
            for paper in ("004", "001", "000")
        }
        cells = [
            name, f"{100 * before['accuracy']:.1f}", *ours, *published["004"], *published["001"],
            *ours_l2, *published["000"], f"{story['seconds']:.0f}",
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _write(path: Path, lines: list[str], *, show: bool = True) -> None:
    from recalib.files import write_atomically

    text = "\n".join([*lines, ""])
    write_atomically(path, text.encode())
    if show:
        print(text, flush=True)


def _width(options: argparse.Namespace) -> dict[str, int]:
    return {"width": options.width} if options.width else {}


def _device(name: str) -> str:
    return torch.cuda.get_device_name() if name == "cuda" else "a CPU"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.training.gpu",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--steps", nargs="+", choices=_STEPS, default=_STEPS)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=6.0)
    parser.add_argument("--model", default="resnet50", help="a name in training.models.MODELS")
    parser.add_argument("--width", type=int, default=0, help="of the first stage; 0: the model's")
    parser.add_argument("--size", type=int, default=32, help="height and width of images")
    parser.add_argument("--rows", type=int, default=45_000, help="training rows")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--shifted", type=int, default=1000, help="test rows corrupted")
    parser.add_argument("--times", type=int, default=100, help="repetitions of each loss")
    parser.add_argument(
        "--objectives", nargs="+", metavar="LOSS", default=list(PUBLISHED),
        help="names in benchmarks.training.objectives.OBJECTIVES",
    )  # fmt: skip
    parser.add_argument("--cache", type=Path, default=_RESULTS / "runs")
    parser.add_argument("--output", type=Path, default=_RESULTS)
    return parser


if __name__ == "__main__":
    main()
