"""Twenty networks of torchvision, timm and transformers train as they are (`make clients`)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recalib.files import read
from tests.clients.test_vision import run

pytestmark = pytest.mark.slow


def train(environment: str, folder: Path, *arguments: str, processes: int = 1) -> list[Path]:
    """Train networks in one process or more; return the folders of the runs."""
    torchrun = ("-m", "torch.distributed.run", "--nproc-per-node", f"{processes}")
    launcher = torchrun if processes > 1 else ()
    script = ("-m", "tests.clients.with_networks", str(folder), environment)
    run(environment, [*launcher, *script, *arguments])
    for rank in range(processes):
        assert json.loads((folder / f"errors-{rank}.json").read_text()) == {}
    runs = [path.parent for path in folder.glob("*/result.json")]
    for path in runs:
        logits = read(path / "test.npz").logits
        assert logits.shape == (40, 3)
        assert logits.std() > 0
    return runs


@pytest.mark.parametrize(("environment", "count"), [("vision", 12), ("transformers", 8)])
def test_twenty_networks_train_as_they_are(environment: str, count: int, tmp_path: Path) -> None:
    """Last layers of any name, and parameters without gradient."""
    assert len(train(environment, tmp_path)) == count


@pytest.mark.parametrize(
    ("environment", "names"),
    [
        ("vision", ("torchvision-resnet18", "timm-ghostnet_100")),
        ("transformers", ("SequenceClassification-albert", "ImageClassification-vit")),
    ],
)
def test_networks_of_each_library_train_in_two_processes(
    environment: str, names: tuple[str, ...], tmp_path: Path
) -> None:
    """tests/training/engine/test_torchrun.py compares two processes with one."""
    runs = train(environment, tmp_path, *names, processes=2)
    assert {path.name for path in runs} == {*names}
