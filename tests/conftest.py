"""What several test folders share."""

from __future__ import annotations

import os

# Before torch counts the cores: each worker of pytest-xdist has one of its own.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.registry.fixtures"]

# Shared, noisy machines: a deadline would make slow minutes look like bugs.
settings.register_profile(
    "recalib", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("recalib")

_ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real logits and images, or a skip that says where it was looked for."""
    folder = Path(os.environ.get("RECALIB_DATA", _ROOT.parent / "shared" / "data"))
    if not (folder / "resnet110-cifar10-val.npz").is_file():
        pytest.skip(f"no real data at {folder} (set RECALIB_DATA)")
    return folder
