"""The catalogue of losses is complete: files, names, kinds, documentation and definitions agree."""

from __future__ import annotations

import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import recalib.losses
from recalib.losses import (
    LOSSES,
    PRIMARY,
    QUADRATIC,
    SECONDARY,
    SOFT_LABELS,
    WHOLE_BATCH,
    Loss,
    Regulariser,
)
from recalib.losses.base import BatchLoss, RowLoss
from tests.losses.definitions import DEFINITIONS

_DOCUMENT = (Path(__file__).parents[2] / "docs" / "losses.md").read_text()


def test_every_loss_class_is_in_the_catalogue() -> None:
    modules = [
        importlib.import_module(f"recalib.losses.{module.name}")
        for module in pkgutil.iter_modules(recalib.losses.__path__)
    ]
    defined = {
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Loss)
        and value.__module__ == module.__name__
    }
    missing = defined - {BatchLoss, Loss, Regulariser, RowLoss} - set(LOSSES.values())
    assert not missing, f"add to PRIMARY or SECONDARY in recalib/losses/__init__.py: {missing}"


@pytest.mark.parametrize("name", LOSSES)
def test_entry_has_the_name_and_the_kind_of_its_class(name: str) -> None:
    assert LOSSES[name].name == name
    assert issubclass(LOSSES[name], Regulariser) == (name in SECONDARY)
    assert issubclass(LOSSES[name], BatchLoss) == (name in WHOLE_BATCH)
    assert issubclass(LOSSES[name], RowLoss) == (name not in WHOLE_BATCH)
    assert ("N²" in LOSSES[name].cost) == (name in QUADRATIC)
    assert LOSSES[name].accepts_probabilities == (name in SOFT_LABELS)


@pytest.mark.parametrize(("kind", "names"), [("Primary", PRIMARY), ("Secondary", SECONDARY)])
def test_losses_are_listed_by_kind(kind: str, names: dict[str, str]) -> None:
    listed = _DOCUMENT.split(f"**{kind}** losses")[1].split(":", 1)[1].split("\n\n")[0]
    assert re.findall(r"`(\w+)`", listed) == list(names)


def test_every_loss_has_an_independent_definition() -> None:
    # tests/losses/test_crl.py has the definition of `crl`, which needs a history.
    missing = set(LOSSES) - set(DEFINITIONS) - {"crl"}
    assert not missing, f"add to DEFINITIONS in tests/losses/definitions.py: {missing}"
    assert set(DEFINITIONS) <= set(LOSSES)


def test_example_in_the_document_runs() -> None:
    code = _DOCUMENT.split("```python\n")[1].split("```")[0]
    scope = {"logits": torch.randn(8, 3), "labels": torch.arange(8) % 3}
    exec(code, scope)  # noqa: S102
    assert scope["loss"].isfinite()


def test_names_of_losses_load_no_torch() -> None:
    code = "import sys, recalib.recipe, recalib.losses; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
