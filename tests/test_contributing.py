"""CONTRIBUTING.md is true: a new member is one file and a line in its registry.

The tests change a copy of the source as CONTRIBUTING.md says, and use the addition through the
public interface.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[1]
_PAGE = (_ROOT / "CONTRIBUTING.md").read_text()

#: Lines of a registry: an import, or an entry of a literal, or a command.
_LINE = re.compile(r'from .* import .*|    "[^"]+": .*,|app\.command\(.*')
#: Registry file, literal, and an existing member that the new one is a copy of: names to replace.
_FAMILIES = {
    "a map": (
        "recalib/maps/__init__.py",
        "MAPS",
        "recalib/maps/class_temperature.py",
        {"class_temperature": "new_map", "ClassTemperature": "NewMap"},
    ),
    "an objective": (
        "recalib/objectives/__init__.py",
        "OBJECTIVES",
        "recalib/objectives/brier.py",
        {"brier": "new_objective", "Brier": "NewObjective"},
    ),
    "a metric": (
        "recalib/metrics/__init__.py",
        "METRICS",
        "recalib/metrics/accuracy.py",
        {"accuracy": "new_metric", "Accuracy": "NewMetric"},
    ),
    "a loss": (
        "recalib/losses/__init__.py",
        "PRIMARY",
        "recalib/losses/cross_entropy.py",
        {"cross_entropy": "new_loss", "CrossEntropy": "NewLoss"},
    ),
    "a network": (
        "training/models/__init__.py",
        "MODELS",
        "training/models/linear.py",
        {"linear": "new_network", "Linear": "NewNetwork"},
    ),
    "a data source": (
        "training/data/load.py",
        "SOURCES",
        "training/data/shapes.py",
        {"shapes": "new_source", "Shapes": "NewSource"},
    ),
    "a file format": (
        "recalib/files/__init__.py",
        "FORMATS",
        "recalib/files/npy.py",
        {"npy": "new_format", "NpyFile": "NewFormatFile"},
    ),
    "a command": (
        "recalib/cli/main.py",
        "app",
        "recalib/cli/export.py",
        {"export": "new_command"},
    ),
}

_USE = """
import os
import numpy as np
import recalib
from recalib.cli.main import app
from recalib.files import MEDIA_TYPES, read
from recalib.metrics.evaluate import evaluate
from recalib.recipe import LossPart
from training.data.load import DataSpec, load
from training.engine.objective import TrainingObjective
from training.models import build

rng = np.random.default_rng(0)
logits, labels = rng.normal(size=(50, 3)), rng.integers(0, 3, 50)
calibrator = recalib.fit(logits, labels, map="new_map", objective="new_objective")
calibrator.save("t.calib")
assert recalib.load("t.calib").card.map == "new_map"
assert any(command.callback.__name__ == "new_command" for command in app.registered_commands)
assert "new_metric" in evaluate(labels, logits=logits)
import torch
objective = TrainingObjective(LossPart(primary="new_loss"))
assert objective(torch.tensor(logits), torch.tensor(labels)) > 0
assert build("new_network", 3, features=4) is not None
options = {"train": 4, "validation": 4, "test": 4}
assert len(load(DataSpec("new_source", options)).train) == 4
np.save("data.npy", logits)
os.rename("data.npy", "data.new_format")
assert read("data.new_format", labels="optional").logits.shape == (50, 3)
assert MEDIA_TYPES["application/x-new_format"] == "new_format"
"""


def _replace(text: str, names: dict[str, str]) -> str:
    for old, new in names.items():
        text = re.sub(rf"(?<!nn\.)(?<!functional\.)\b{old}\b", new, text)
    return text


def _add_member(root: Path, registry: str, template: str, names: dict[str, str]) -> None:
    """Copy the template under its new name, and repeat its lines in the registry."""
    source = root / template
    module = f"{next(iter(names.values()))}.py"
    source.with_name(module).write_text(_replace(source.read_text(), names))
    lines = []
    for line in (root / registry).read_text().splitlines():
        copy = _replace(line, names)
        lines += [line, copy] if copy != line and _LINE.fullmatch(line) else [line]
    (root / registry).write_text("\n".join(lines) + "\n")


def _run(root: Path, *arguments: str, **variables: str) -> None:
    """Run Python in the copy; fail with its error output."""
    result = subprocess.run(
        [sys.executable, *arguments],
        cwd=root,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for folder in ("recalib", "training"):
        shutil.copytree(
            _ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__")
        )
    return tmp_path


@pytest.mark.slow
def test_a_new_member_is_one_file_and_its_registry(copy: Path) -> None:
    for registry, _, template, names in _FAMILIES.values():
        _add_member(copy, registry, template, names)
    _run(copy, "-c", _USE)


def test_a_new_setting_is_one_field(copy: Path) -> None:
    path = copy / "recalib/settings/settings.py"
    field = '    new_setting: int = Field(1, description="New.")'
    path.write_text(re.sub(r"^    host: str", rf"{field}\n\g<0>", path.read_text(), flags=re.M))
    check = "from recalib.settings import Settings; assert Settings().new_setting == 2"
    _run(copy, "-c", check, RECALIB_NEW_SETTING="2")


@pytest.mark.slow
def test_a_new_migration_is_one_file_that_a_command_writes(copy: Path) -> None:
    registry = copy / "recalib/registry"
    with (registry / "tables.py").open("a") as file:
        file.write('Table("new_table", METADATA, Column("id", Integer, primary_key=True))\n')
    before = set((registry / "migrations/versions").glob("*.py"))
    command = re.search(r'`\.venv/bin/python (-m [\w.]+) "([^"]+)"` writes the migration', _PAGE)
    assert command is not None
    _run(copy, *command[1].split(), command[2])
    assert len(set((registry / "migrations/versions").glob("*.py")) - before) == 1
    check = """
from sqlalchemy import inspect
from recalib.registry.engine import connect_to
from recalib.registry.migrate import upgrade
engine = connect_to("sqlite:///registry.db")
upgrade(engine)
assert "new_table" in inspect(engine).get_table_names()
"""
    _run(copy, "-c", check)


def test_an_operation_is_in_the_files_that_the_recipe_names() -> None:
    """The same files as an existing operation of a feature; the console calls any."""
    section = _PAGE.split("## Add an operation")[1].split("\n## ")[0]
    named = {path.replace("FEATURE", "audit") for path in re.findall(r"`([\w/]+\.\w+)`", section)}
    files = [
        path
        for folder in ("proto", "recalib", "service")
        for path in (_ROOT / folder).rglob("*.*")
        if path.suffix in (".py", ".proto") and not {"generated", "console"} & {*path.parts}
    ]
    actual = {
        str(path.relative_to(_ROOT))
        for path in files
        if re.search(r"\blist_audit\b|\bListAudit\b", path.read_text())
    }
    assert actual <= named


@pytest.mark.parametrize("family", _FAMILIES)
def test_the_recipe_names_the_registry(family: str) -> None:
    registry, literal, _, _ = _FAMILIES[family]
    row = next(line for line in _PAGE.splitlines() if line.startswith(f"| {family} |"))
    assert f"`{literal}`" in row
    assert f"`{registry}`" in row
    assert re.search(rf"^{literal}\b", (_ROOT / registry).read_text(), re.MULTILINE)
