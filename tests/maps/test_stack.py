"""A stack pools the predictions of its members, each fitted by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.special

import recalib
from recalib.errors import InputError
from tests.fitting.conftest import draw

_MEMBERS: list[dict[str, Any]] = [
    {"map": "vector", "weight": 0.75},
    {"map": "isotonic", "weight": 0.25, "options": {"target": "one_vs_rest"}},
]


@pytest.mark.parametrize("classes", [2, 4])
def test_pools_are_their_formulas(classes: int) -> None:
    logits, labels = draw(200, classes, 2.0)
    vector, isotonic = (
        recalib.fit(logits, labels, member["map"], **member.get("options", {})).predict(logits)
        for member in _MEMBERS
    )
    linear, logarithmic = (
        recalib.fit(logits, labels, "stack", pool=pool, members=_MEMBERS).predict(logits)
        for pool in ("linear", "logarithmic")
    )
    np.testing.assert_allclose(linear, 0.75 * vector + 0.25 * isotonic, rtol=1e-12)
    mean = 0.75 * np.log(vector) + 0.25 * np.log(isotonic)
    np.testing.assert_allclose(logarithmic, scipy.special.softmax(mean, axis=1), rtol=1e-12)


def test_members_of_one_kind_have_their_own_parameters() -> None:
    logits, labels = draw(200, 3, 2.0)
    members = [
        {"map": "structured_vector", "weight": 0.5, "options": {"intercept": strength}}
        for strength in (0.1, 1000.0)
    ]
    stack = recalib.fit(logits, labels, "stack", members=members)
    for i, strength in enumerate((0.1, 1000.0)):
        single = recalib.fit(logits, labels, "structured_vector", intercept=strength)
        np.testing.assert_array_equal(
            stack.parameters[f"structured_vector_{i}_bias"], single.parameters["bias"]
        )


def test_properties_are_those_of_the_members() -> None:
    logits, labels = draw(100, 3, 2.0)

    def map_of(*names: str) -> Any:
        members = [{"map": name, "weight": 1 / len(names)} for name in names]
        return recalib.fit(logits, labels, "stack", members=members).map

    assert map_of("temperature", "spline").preserves_accuracy
    assert not map_of("temperature", "vector").preserves_accuracy
    assert map_of("temperature", "beta").shift_invariant
    assert not map_of("vector", "beta").shift_invariant
    assert not map_of("beta", "histogram_binning").continuous


def test_warm_start_is_that_of_the_members() -> None:
    logits, labels = draw(300, 4, 2.0)
    cold = recalib.fit(logits, labels, "stack")
    warm = recalib.fit(logits, labels, "stack", start=cold)
    np.testing.assert_allclose(warm.predict(logits), cold.predict(logits), atol=1e-6)
    assert warm.card.fit.iterations <= cold.card.fit.iterations


@pytest.mark.parametrize(
    ("members", "found"),
    [
        ([("vector", 0.5, {}), ("beta", 0.4, {})], "weights 0.5, 0.4"),
        ([("vector", 1.5, {}), ("beta", -0.5, {})], "weights 1.5, -0.5"),
        ([], "weights ; accepted"),
        ([("stack", 1, {})], "a stack"),
        ([("luck", 1, {})], "luck"),
        ([("beta", 1, {"a": 1})], "unknown option"),
    ],
)
def test_illegal_stacks_are_rejected(members: list[Any], found: str) -> None:
    named = [dict(zip(("map", "weight", "options"), member, strict=True)) for member in members]
    with pytest.raises(InputError, match=found):
        recalib.fit(*draw(50, 3, 1.0), "stack", members=named)
