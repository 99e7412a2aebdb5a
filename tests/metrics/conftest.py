"""What tests of several metrics share."""

from __future__ import annotations

import pytest

#: Each has the function under its own name.
_WITH_FLOORS = ("ece_debiased", "calibration_gaps", "ks_error")


@pytest.fixture
def without_floors(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of intervals alone: drawing the floors is half of what an estimate costs."""
    for name in _WITH_FLOORS:
        monkeypatch.setattr(f"recalib.metrics.{name}.noise_floor", lambda *_: (0.0, 0.0))
