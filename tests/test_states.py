"""States of streams are values: any tree of merges, and bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from recalib import StreamingEvaluation
from recalib.core.array_bytes import state_to_bytes
from recalib.drift import CalibrationSums, ClassTraffic
from recalib.errors import CorruptError

Rows = NDArray[np.intp]
Arrays = dict[str, NDArray[Any]]

_ROWS = 300
_RNG = np.random.default_rng(0)
_P, _Y = _RNG.dirichlet(np.ones(3), _ROWS), _RNG.integers(0, 3, _ROWS)
_P[::3] = np.eye(3)[_Y[::3]]
_CONFIDENCES, _CORRECT = _P.max(axis=1), _P.argmax(axis=1) == _Y


def evaluation_of(rows: Rows) -> StreamingEvaluation:
    evaluation = StreamingEvaluation(3)
    if len(rows):
        evaluation.add(_Y[rows], probabilities=_P[rows])
    return evaluation


def sums_of_evaluation(evaluation: StreamingEvaluation) -> Arrays:
    return {
        f"{kind}.{name}": np.asarray(getattr(state, name))
        for kind, state in evaluation._states.items()
        for name in state.sums
    }


def calibration_sums_of(rows: Rows) -> CalibrationSums:
    sums = CalibrationSums.empty([0.4, 0.7, 0.9])
    sums.add_traffic(_CONFIDENCES[rows])
    sums.add_labels(_CONFIDENCES[rows], _CORRECT[rows], 1e6 * _P[rows, 0])
    return sums


def class_traffic_of(rows: Rows) -> ClassTraffic:
    predicted, p = _P[rows].argmax(axis=1), _CONFIDENCES[rows]
    errors = np.maximum(p, 1 - p)
    return ClassTraffic.from_rows(
        [0, 2],
        [int((predicted == k).sum()) for k in (0, 2)],
        [float(errors[predicted == k].sum()) for k in (0, 2)],
        len(rows),
        predicted,
        _CORRECT[rows],
        p,
    )


class Kind(NamedTuple):
    of_rows: Callable[[Rows], Any]
    sums: Callable[[Any], Arrays]
    read: Callable[[bytes], Any]
    text: str


KINDS = {
    "evaluation": Kind(
        evaluation_of, sums_of_evaluation, StreamingEvaluation.from_bytes, "evaluation 4"
    ),
    "calibration sums": Kind(
        calibration_sums_of, vars, CalibrationSums.from_bytes, "calibration sums 1"
    ),
    "class traffic": Kind(class_traffic_of, vars, ClassTraffic.from_bytes, "class traffic 1"),
}


def merged(parts: list[Any], seed: int) -> Any:
    """Merge two neighbours at a time, at random places."""
    rng, parts = np.random.default_rng(seed), parts.copy()
    while len(parts) > 1:
        at = int(rng.integers(len(parts) - 1))
        parts[at : at + 2] = [parts[at].merge(parts[at + 1])]
    return parts[0]


@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=5)
@given(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 8))
def test_every_tree_of_merges_has_equal_counts(name: str, seed: int, count: int) -> None:
    """For any partition, empty parts included; other sums are equal to 1e-12.

    `merge` changes none of its parts. The same tree has the same bytes, also if parts were bytes.
    """
    kind = KINDS[name]
    owners = np.random.default_rng(seed).integers(0, count, _ROWS)
    parts = [kind.of_rows(np.flatnonzero(owners == part)) for part in range(count)]
    before = [part.to_bytes() for part in parts]
    total = merged(parts, seed)
    expected = kind.sums(kind.of_rows(np.arange(_ROWS)))
    assert kind.sums(total).keys() == expected.keys()
    for key, values in kind.sums(total).items():
        if values.dtype.kind == "i" or key.endswith(".correct"):
            np.testing.assert_array_equal(values, expected[key])
        else:
            np.testing.assert_allclose(values, expected[key], rtol=1e-12, atol=1e-12)
    assert [part.to_bytes() for part in parts] == before
    again = [kind.read(data) for data in before]
    assert merged(again, seed).to_bytes() == total.to_bytes()


@pytest.mark.parametrize("name", KINDS)
def test_bytes_of_another_version_or_damaged_bytes_are_rejected(name: str) -> None:
    kind = KINDS[name]
    data = kind.of_rows(np.arange(20)).to_bytes()
    assert kind.read(data).to_bytes() == data
    nothing = {"shape": np.array([3, 15])}
    own, version = kind.text.rsplit(" ", 1)
    for other in (
        state_to_bytes(own, int(version) + 1, nothing),
        state_to_bytes("other", int(version), nothing),
    ):
        with pytest.raises(CorruptError, match=f"not {kind.text!r}"):
            kind.read(other)
    with pytest.raises(CorruptError):
        kind.read(state_to_bytes(own, int(version), nothing))
    for at in np.linspace(0, len(data) - 1, 40).astype(int):
        damaged = bytearray(data)
        damaged[at] ^= 1
        with pytest.raises(CorruptError):
            kind.read(bytes(damaged))


def test_sums_that_share_arrays_are_independent() -> None:
    """`without_traffic` keeps the sums of labels; labels added to one do not change the other."""
    sums = calibration_sums_of(np.arange(20))
    before = sums.to_bytes()
    rest = sums.without_traffic(calibration_sums_of(np.arange(5)))
    rest.add_labels([0.5], [1])
    rest.add_traffic([0.5])
    assert sums.to_bytes() == before
