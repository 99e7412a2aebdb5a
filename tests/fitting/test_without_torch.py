"""What a fit does where only `recalib` or `recalib[sklearn]` is installed."""

from __future__ import annotations

import pytest

from recalib.errors import InputError
from recalib.fitting import solvers
from recalib.fitting.fit import fit
from recalib.maps import MAPS
from tests.fitting.conftest import draw

_WITH_TORCH = {"parameterized_temperature", "ensemble_temperature", "intra_order_preserving"}


def test_maps_that_torch_fits_name_it_and_auto_leaves_them_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(solvers, "is_installed", lambda name: False)
    logits, labels = draw(150, 3, 2.0)
    for name in MAPS:
        if name in _WITH_TORCH:
            with pytest.raises(InputError, match=rf"no torch, which fits {name} .*recalib\[fit\]"):
                fit(logits, labels, name)
        else:
            fit(logits, labels, name)
    choice = fit(logits, labels, "auto").card.choice
    assert choice is not None
    left_out = {c.map for c in choice.candidates if "no torch" in c.verdict}
    assert left_out == _WITH_TORCH
