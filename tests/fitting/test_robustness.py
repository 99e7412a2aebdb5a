"""The robustness table: each kind of odd data has a defined result with every map.

No NaN, no negative temperature, no silent temperature of 1, no accuracy lost where the contract
forbids it; a search that ended on a bound says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from recalib.errors import InputError
from recalib.fitting.fit import configure_pair, fit
from recalib.maps import MAPS
from recalib.objectives import OBJECTIVES
from tests.fitting.conftest import draw

Change = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]

ODD: dict[str, Change] = {
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
#: Every map, and every objective with two of them.
PAIRS = [(name, "nll") for name in MAPS] + [
    (name, objective)
    for name in ("temperature", "class_temperature")
    for objective in OBJECTIVES
    if objective != "nll"
]

#: The first for what is refused and for the maps that are most used, the second for all others.
MOST_CLASSES, MANY_CLASSES = 50_000, 10_000
#: Their K x K matrix would take 20 GB.
TOO_LARGE = ("matrix", "dirichlet", "structured_matrix")
#: Every map, and those with a table for each class.
MANY = [pytest.param(name, {}, id=name) for name in MAPS] + [
    pytest.param(name, {"target": "one_vs_rest"}, id=f"{name} one_vs_rest")
    for name in ("isotonic", "histogram_binning")
]


@pytest.mark.parametrize("what", ODD)
@pytest.mark.parametrize(("name", "objective"), PAIRS)
def test_odd_data_has_a_defined_result(name: str, objective: str, what: str) -> None:
    logits, labels = ODD[what](*draw(300, 6, 2.0))
    calibrator = fit(logits, labels, name, objective)
    probabilities = calibrator.predict(logits)
    assert np.isfinite(probabilities).all()
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-5)
    assert (probabilities[np.isneginf(logits)] == 0).all()
    calibrator.map.check(logits.shape[1], calibrator.parameters)
    assert np.isfinite(calibrator.card.fit.objective)
    if calibrator.map.preserves_accuracy and what != "constant":
        top = probabilities.max(axis=1)
        assert (probabilities[np.arange(len(logits)), logits.argmax(axis=1)] == top).all()


@pytest.mark.usefixtures("whole_cards")
@pytest.mark.parametrize("name", ["temperature", "vector"])
@pytest.mark.parametrize("what", ODD)
def test_odd_data_has_a_whole_card(name: str, what: str) -> None:
    """Every metric has a number, or none where there is none to have."""
    logits, labels = ODD[what](*draw(300, 6, 2.0))
    for measured in fit(logits, labels, name).card.metrics.values():
        assert len(measured) > 15
        for one in measured.values():
            given = [end for end in (one.value, one.low, one.high) if end is not None]
            assert not np.isnan(given).any()


@pytest.mark.usefixtures("whole_cards")
def test_many_classes_and_a_whole_card() -> None:
    """The bounds of the next test hold for the card's metrics, too."""
    test_many_classes_and_few_rows("temperature", {})


@pytest.mark.parametrize(("name", "options"), MANY)
def test_many_classes_and_few_rows(name: str, options: dict[str, str]) -> None:
    """200 rows of 10,000 classes, or 50,000: a result, or one clear refusal, and no gigabytes.

    The rows are 40 MB, or 8; a fit may hold twelve float64 copies of them at a time.
    """
    rng = np.random.default_rng(0)
    most = not options and name in ("temperature", "isotonic", *TOO_LARGE)
    classes = MOST_CLASSES if most else MANY_CLASSES
    logits = rng.normal(size=(200, classes)).astype(np.float32)
    labels = rng.integers(0, classes, 200)
    logits[np.arange(100), labels[:100]] += 12
    if name in TOO_LARGE:
        with pytest.raises(InputError, match=f"map: found {name}, whose matrix for 50000 classes"):
            fit(logits, labels, name)
        return
    # And libraries that are loaded meanwhile.
    with _at_most(12 * 8 * logits.size + 128e6):
        calibrator = fit(logits, labels, name, **options)
    probabilities = calibrator.predict(logits[:20])
    assert np.isfinite(probabilities).all()
    # onnxruntime's softmax adds 50,000 float32: at worst K / 2²⁴ = 3e-3 away from 1.
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-3)


@contextmanager
def _at_most(most: float) -> Iterator[None]:
    """Assert that the process grew by no more bytes; only Linux can tell, and that cheaply."""
    status = Path("/proc/self/status")
    if not status.exists():
        yield
        return

    def size(of: str) -> int:
        (line,) = (one for one in status.read_text().splitlines() if one.startswith(of))
        return int(line.split()[1]) * 1024

    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak
    before = size("VmRSS")
    yield
    assert size("VmHWM") - before < most


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_one_bad_logit_is_refused(name: str, value: float) -> None:
    logits, labels = draw(300, 6, 2.0)
    logits[7, 3] = value
    with pytest.raises(InputError, match=r"logits\[7\]\[3\]"):
        fit(logits, labels, name)


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("label", [-1, 6])
def test_a_label_outside_is_refused(name: str, label: int) -> None:
    logits, labels = draw(300, 6, 2.0)
    labels[7] = label
    with pytest.raises(InputError, match=rf"labels\[7\]: found {label}; .* from 0 to 5"):
        fit(logits, labels, name)


@pytest.mark.parametrize("name", [name for name in MAPS if name != "identity"])
def test_a_map_without_effect_says_so(name: str) -> None:
    """Constant logits: nothing can be learnt of them but how often each class occurs."""
    logits, labels = ODD["constant"](*draw(300, 6, 2.0))
    probabilities = fit(logits, labels, name).predict(logits)
    assert (probabilities == probabilities[0]).all()


@pytest.mark.parametrize("what", ["separable", "all wrong"])
@pytest.mark.parametrize("name", ["temperature", "class_temperature"])
def test_bounds_that_are_reached_are_in_the_card(name: str, what: str) -> None:
    logits, labels = ODD[what](*draw(300, 6, 2.0))
    assert any("bound" in one for one in fit(logits, labels, name).card.fit.bounds_reached)


@pytest.mark.parametrize("name", MAPS)
def test_the_order_of_rows_does_not_matter(name: str) -> None:
    logits, labels = draw(300, 6, 2.0)
    order = np.random.default_rng(1).permutation(300)
    one, other = (fit(z, y, name) for z, y in ((logits, labels), (logits[order], labels[order])))
    np.testing.assert_allclose(
        one.predict_float64(logits), other.predict_float64(logits), atol=1e-4
    )


@pytest.mark.parametrize("name", [n for n in MAPS if MAPS[n].fitted_by == "gradient"])
def test_a_warm_start_ends_where_a_cold_one_does(name: str) -> None:
    logits, labels = draw(300, 6, 2.0)
    cold = fit(logits, labels, name)
    warm = fit(logits, labels, name, start=cold)
    np.testing.assert_allclose(
        warm.predict_float64(logits), cold.predict_float64(logits), atol=1e-4
    )
    assert warm.card.fit.iterations <= cold.card.fit.iterations


def test_a_start_of_another_map_is_refused() -> None:
    logits, labels = draw(300, 6, 2.0)
    with pytest.raises(InputError, match=r"start: found temperature .* of 6 classes"):
        fit(logits, labels, "class_temperature", start=fit(logits, labels))


def test_pairs_that_make_no_sense_are_refused_early() -> None:
    with pytest.raises(InputError, match="objective"):
        configure_pair("ensemble_temperature", "ece_grid", {})
