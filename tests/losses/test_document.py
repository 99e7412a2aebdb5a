"""docs/losses.md lists the losses that there are."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from recalib.losses import LOSSES, Regulariser

_DOCUMENT = (Path(__file__).parents[2] / "docs" / "losses.md").read_text()


def test_every_loss_is_listed_with_its_kind_and_cost() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*) \| (\w+) \| (.*) \|$", _DOCUMENT, flags=re.MULTILINE)
    kinds = {True: "regulariser", False: "loss"}
    assert rows == [
        (name, member.summary, kinds[issubclass(member, Regulariser)], member.cost)
        for name, member in LOSSES.items()
    ]


def test_the_example_runs() -> None:
    code = _DOCUMENT.split("```python\n")[1].split("```")[0]
    scope = {"logits": torch.randn(8, 3), "labels": torch.arange(8) % 3}
    exec(code, scope)  # noqa: S102
    assert scope["loss"].isfinite()
