"""Degenerate data has a defined result with every map.

Results have no NaN and no negative temperature, keep accuracy where the map promises it, and
report a search that ended on a bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recalib.errors import InputError
from recalib.fitting.fit import fit
from recalib.fitting.request import configure_pair
from recalib.maps import MAPS
from recalib.objectives import OBJECTIVES
from tests.fitting.conftest import draw

Change = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]

DEGENERATE: dict[str, Change] = {
    "class absent": lambda z, y: (z, np.where(y == 2, 0, y)),
    "single class": lambda z, y: (z, np.zeros_like(y)),
    "separable": lambda z, y: (z, z.argmax(axis=1)),
    "all wrong": lambda z, y: (z, z.argmin(axis=1)),
    "logits x 4000": lambda z, y: (z * 4e3, y),
    "constant": lambda z, y: (np.ones_like(z), y),
    "float16": lambda z, y: (z.astype(np.float16), y),
    "one row": lambda z, y: (z[:1], y[:1]),
    "n < K": lambda z, y: (z[:4], y[:4]),
    "two classes": lambda z, y: (z[:, :2], y % 2),
    "duplicates": lambda z, y: (np.tile(z[:5], (9, 1)), np.tile(y[:5], 9)),
    "masked": lambda z, y: (np.where(np.arange(6) == (y[:, None] + 1) % 6, -np.inf, z), y),
}
#: Each map by NLL, and two maps by each other objective.
PAIRS = [(name, "nll") for name in MAPS] + [
    (name, objective)
    for name in ("temperature", "class_temperature")
    for objective in OBJECTIVES
    if objective != "nll"
]
#: Each pair with a third of the kinds of data, so that each map, objective and kind is covered.
#: The other thirds are slow, of maps by NLL only, and so is the second map by other objectives.
CASES = [
    pytest.param(
        name,
        objective,
        list(DEGENERATE)[(i + j) % 3 :: 3],
        marks=[pytest.mark.slow] if j or (name, objective) in PAIRS[-len(OBJECTIVES) + 1 :] else [],
    )
    for i, (name, objective) in enumerate(PAIRS)
    for j in range(3 if objective == "nll" else 1)
]

#: The first for maps that reject it and for common maps, the second for all others.
MOST_CLASSES, MANY_CLASSES = 50_000, 10_000
#: Maps whose K x K matrix would take 20 GB.
TOO_LARGE = ("matrix", "dirichlet", "structured_matrix")
#: Every map, and those with a table for each class. One map of each kind of fit is short.
MANY = [
    pytest.param(
        name,
        {},
        id=name,
        marks=[] if name in ("temperature", "vector", "matrix", "isotonic") else pytest.mark.slow,
    )
    for name in MAPS
] + [
    pytest.param(name, {"target": "one_vs_rest"}, id=f"{name} one_vs_rest", marks=pytest.mark.slow)
    for name in ("isotonic", "histogram_binning")
]


@pytest.mark.parametrize(("name", "objective", "kinds"), CASES)
def test_degenerate_data_has_a_defined_result(name: str, objective: str, kinds: list[str]) -> None:
    for kind in kinds:
        check_degenerate_data(name, objective, kind)


def check_degenerate_data(name: str, objective: str, kind: str) -> None:
    logits, labels = DEGENERATE[kind](*draw(100, 6, 2.0))
    calibrator = fit(logits, labels, name, objective)
    probabilities = calibrator.predict(logits)
    assert np.isfinite(probabilities).all(), kind
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-5, err_msg=kind)
    assert (probabilities[np.isneginf(logits)] == 0).all(), kind
    calibrator.map.check(logits.shape[1], calibrator.parameters)
    assert np.isfinite(calibrator.card.fit.objective), kind
    if calibrator.map.preserves_accuracy and kind != "constant":
        top = probabilities.max(axis=1)
        assert (probabilities[np.arange(len(logits)), logits.argmax(axis=1)] == top).all(), kind


@pytest.mark.usefixtures("full_cards")
@pytest.mark.parametrize(
    "kind",
    [
        "single class",
        "one row",
        "masked",
        pytest.param("separable", marks=pytest.mark.slow),
        pytest.param("logits x 4000", marks=pytest.mark.slow),
        pytest.param("constant", marks=pytest.mark.slow),
    ],
)
def test_degenerate_data_has_a_complete_card(kind: str) -> None:
    """Every metric is a number, or is absent where it is undefined."""
    logits, labels = DEGENERATE[kind](*draw(100, 6, 2.0))
    card = fit(logits, labels, measure=True).card
    assert set(card.metrics) == {"before", "after"}
    for metrics in card.metrics.values():
        assert len(metrics) > 15
        for metric in metrics.values():
            ends = [end for end in (metric.value, metric.low, metric.high) if end is not None]
            assert not np.isnan(ends).any()


@pytest.mark.slow
@pytest.mark.usefixtures("full_cards")
def test_memory_bound_holds_for_a_complete_card() -> None:
    """The memory bound of the next test includes the card's metrics."""
    test_many_classes_and_few_rows("temperature", {"measure": True})


@pytest.mark.parametrize(("name", "options"), MANY)
def test_many_classes_and_few_rows(name: str, options: dict[str, Any]) -> None:
    """A fit of 60 rows with 10,000 or 50,000 classes has bounded memory or a clear error.

    The rows take 2.4 or 12 MB; a fit may hold twelve float64 copies of them at a time. A matrix of
    all pairs of classes takes 800 MB or more.
    """
    rng = np.random.default_rng(0)
    most = not options and name in ("temperature", "isotonic", *TOO_LARGE)
    classes = MOST_CLASSES if most else MANY_CLASSES
    logits = rng.normal(size=(60, classes)).astype(np.float32)
    labels = rng.integers(0, classes, 60)
    logits[np.arange(30), labels[:30]] += 12
    if name in TOO_LARGE:
        with pytest.raises(InputError, match=f"map: found {name}, whose matrix for 50000 classes"):
            fit(logits, labels, name)
        return
    # Plus libraries that are loaded during the fit.
    with _at_most(12 * 8 * logits.size + 128e6):
        calibrator = fit(logits, labels, name, **options)
    probabilities = calibrator.predict(logits[:20])
    assert np.isfinite(probabilities).all()
    # onnxruntime's softmax adds 50,000 float32: at worst K / 2²⁴ = 3e-3 away from 1.
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-3)


@contextmanager
def _at_most(most: float) -> Iterator[None]:
    """Assert that the process grows by at most `most` bytes; checked on Linux only."""
    status = Path("/proc/self/status")
    if not status.exists():
        yield
        return

    def size(field: str) -> int:
        (line,) = (text for text in status.read_text().splitlines() if text.startswith(field))
        return int(line.split()[1]) * 1024

    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    before = size("VmRSS")
    yield
    assert size("VmHWM") - before < most


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_invalid_logit_is_rejected(value: float) -> None:
    logits, labels = draw(300, 6, 2.0)
    logits[7, 3] = value
    for name in MAPS:
        with pytest.raises(InputError, match=r"logits\[7\]\[3\]"):
            fit(logits, labels, name)


@pytest.mark.parametrize("label", [-1, 6])
def test_label_out_of_range_is_rejected(label: int) -> None:
    logits, labels = draw(300, 6, 2.0)
    labels[7] = label
    for name in MAPS:
        with pytest.raises(InputError, match=rf"labels\[7\]: found {label}; .* from 0 to 5"):
            fit(logits, labels, name)


@pytest.mark.parametrize("name", [name for name in MAPS if name != "identity"])
def test_constant_logits_give_constant_probabilities(name: str) -> None:
    logits, labels = DEGENERATE["constant"](*draw(300, 6, 2.0))
    probabilities = fit(logits, labels, name).predict(logits)
    assert (probabilities == probabilities[0]).all()


@pytest.mark.parametrize("kind", ["separable", "all wrong"])
@pytest.mark.parametrize("name", ["temperature", "class_temperature"])
def test_reached_bounds_are_in_the_card(name: str, kind: str) -> None:
    logits, labels = DEGENERATE[kind](*draw(300, 6, 2.0))
    assert any("bound" in text for text in fit(logits, labels, name).card.fit.bounds_reached)


@pytest.mark.parametrize("name", MAPS)
def test_order_of_rows_does_not_matter(name: str) -> None:
    logits, labels = draw(150, 6, 2.0)
    order = np.random.default_rng(1).permutation(150)
    original, permuted = (
        fit(z, y, name) for z, y in ((logits, labels), (logits[order], labels[order]))
    )
    np.testing.assert_allclose(
        original.predict_float64(logits), permuted.predict_float64(logits), atol=1e-4
    )


@pytest.mark.parametrize("name", [n for n in MAPS if MAPS[n].fitted_by == "gradient"])
def test_warm_start_reaches_the_same_optimum(name: str) -> None:
    logits, labels = draw(300, 6, 2.0)
    cold = fit(logits, labels, name)
    warm = fit(logits, labels, name, start=cold)
    np.testing.assert_allclose(
        warm.predict_float64(logits), cold.predict_float64(logits), atol=1e-4
    )
    assert warm.card.fit.iterations <= cold.card.fit.iterations


def test_start_from_another_map_is_rejected() -> None:
    logits, labels = draw(300, 6, 2.0)
    with pytest.raises(InputError, match=r"start: found temperature .* of 6 classes"):
        fit(logits, labels, "class_temperature", start=fit(logits, labels))


def test_impossible_pair_of_map_and_objective_is_rejected() -> None:
    with pytest.raises(InputError, match="objective"):
        configure_pair("ensemble_temperature", "ece_grid", {})
