"""Bytes of `StreamingEvaluation` that an earlier version wrote."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from recalib import StreamingEvaluation

_STATES = Path(__file__).parent / "states"
_P = np.array([[0.05, 0.95], [0.5, 0.5], [0.81, 0.19], [0.999, 0.001], [0.3, 0.7], [0.03, 0.97]])
_Y = np.array([1, 0, 0, 0, 0, 1])
_WEIGHTS = {"plain": None, "weighted": np.array([1.0, 2.5, 3.0, 0.25, 1.0, 4.0])}


@pytest.mark.parametrize("name", _WEIGHTS)
def test_bytes_of_version_3_have_the_same_sums(name: str) -> None:
    """An earlier Recalib wrote the files for these rows; they merge with new states."""
    weights = _WEIGHTS[name]
    now = StreamingEvaluation(2, 5, weighted=weights is not None)
    now.add(_Y, probabilities=_P, sample_weight=weights)
    data = gzip.decompress((_STATES / f"evaluation-3-{name}.gz").read_bytes())
    before = StreamingEvaluation.from_bytes(data)
    assert before.rows == now.rows
    for kind, state in now._states.items():
        for sums in state.sums:
            expected, actual = (getattr(part._states[kind], sums) for part in (now, before))
            np.testing.assert_allclose(actual, expected, rtol=1e-14, atol=1e-15, err_msg=kind)
    assert before.merge(now).finish()["nll"].value == pytest.approx(now.finish()["nll"].value)
