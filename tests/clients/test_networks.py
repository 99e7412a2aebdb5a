"""Twenty networks of torchvision, timm and transformers train as they are (`make clients`)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recalib.files import read
from tests.clients.test_vision import run

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize(("environment", "count"), [("vision", 12), ("transformers", 8)])
def test_twenty_networks_train_as_they_are(
    environment: str, count: int, processes: int, tmp_path: Path
) -> None:
    """Last layers of any name, and parameters without gradient, in one and two processes."""
    torchrun = ("-m", "torch.distributed.run", "--nproc-per-node", "2") if processes > 1 else ()
    run(environment, [*torchrun, "-m", "tests.clients.with_networks", str(tmp_path), environment])
    for rank in range(processes):
        assert json.loads((tmp_path / f"errors-{rank}.json").read_text()) == {}
    runs = list(tmp_path.glob("*/result.json"))
    assert len(runs) == count
    for result in runs:
        logits = read(result.with_name("test.npz")).logits
        assert logits.shape == (40, 3)
        assert logits.std() > 0
