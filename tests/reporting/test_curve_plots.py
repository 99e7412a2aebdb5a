"""Curves, small multiples and marks: what is drawn equals what slow loops find."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

from recalib.errors import InputError
from recalib.metrics import METRICS, Predictions
from recalib.reporting.plots import (
    classwise_diagram,
    confidence_histogram,
    error_over_shift,
    reliability_diagram,
    reliability_overlay,
    risk_coverage,
    save,
)
from recalib.reporting.plots.risk_coverage import _errors_by_confidence, _points
from recalib.reporting.plots.smooth_curve import FINE_BINS, bandwidth_for, smooth_curve
from recalib.reporting.plots.view import FREQUENCY
from tests.draws import few_or_many
from tests.reporting.test_plots import HOSTILE, saturated, some_predictions

SHIFT = [("a", 0, 0.02, 0.01, 0.03), ("a", 1, 0.1, 0.08, 0.13), (HOSTILE, 1, 0.05, None, None)]


def two() -> dict[str, Predictions]:
    return {"before": some_predictions(), HOSTILE: some_predictions(1)}


#: Each picture of two series or one.
PICTURES = {
    "smooth": lambda series: reliability_diagram(series, smooth=True),
    "overlay": reliability_overlay,
    "classwise": lambda series: classwise_diagram(next(iter(series.values()))),
    "confidence": confidence_histogram,
    "risk": risk_coverage,
}
#: Altair takes a second for each picture of several panels.
costly_are_slow = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in ("smooth", "classwise") else [])
        for name in PICTURES
    ],
)


def datasets(chart) -> list[list[dict]]:
    """Every table of data in the specification."""
    return list(chart.to_dict()["datasets"].values())


def table_with(chart, *columns: str) -> list[dict]:
    """The rows of the tables whose rows have these columns."""
    matches = [rows for rows in datasets(chart) if set(columns) <= set(rows[0])]
    return [row for rows in matches for row in rows]


def binary(p: np.ndarray, right: np.ndarray) -> Predictions:
    """Rows of two classes, of which the first is predicted with confidence p >= 1/2."""
    return Predictions.from_probabilities(np.stack([p, 1 - p], axis=1), (~right).astype(np.int64))


def slow_point(t: float, p: np.ndarray, y: np.ndarray, sigma: float) -> tuple[float, float, float]:
    """Accuracy, and the sums of weights and of their squares, one row at a time."""
    total = squares = residuals = 0.0
    for confidence, right in zip(p.tolist(), y.tolist(), strict=True):
        weight = sum(
            math.exp(-(((t - image) / sigma) ** 2) / 2)
            for image in (confidence, -confidence, 2 - confidence)
        )
        total += weight
        squares += weight**2
        residuals += weight * (right - confidence)
    return t + residuals / total, total, squares


def test_smooth_curve_and_band_match_a_loop() -> None:
    """Within 1e-4, which is what rows gain by standing at the mean of their fine bin."""
    predictions = some_predictions(rows=300)
    p, y = predictions.confidences, predictions.correct.astype(float)
    sigma = bandwidth_for(300)
    assert sigma == pytest.approx(0.2 * 300**-0.2)
    points = table_with(reliability_overlay({"a": predictions, "b": predictions}), "at", "piece")
    points = [point for point in points if point["series"] == "a"]
    assert len(points) > 50
    drawn = {round(point["at"], 3): point for point in points}
    for t in np.linspace(0, 1, 201):
        accuracy, total, squares = slow_point(t, p, y, sigma)
        if abs(total - 5) > 0.1:
            assert (round(float(t), 3) in drawn) == (total > 5)
        if round(float(t), 3) not in drawn:
            continue
        point, rows = drawn[round(float(t), 3)], total**2 / squares
        share = min(max(accuracy, 0), 1)
        z = scipy.stats.norm.ppf(0.975)
        centre = (share + z**2 / (2 * rows)) / (1 + z**2 / rows)
        half = z * math.sqrt(share * (1 - share) / rows + z**2 / (4 * rows**2)) / (1 + z**2 / rows)
        assert point["accuracy"] == pytest.approx(share, abs=1e-4)
        assert point["low"] == pytest.approx(centre - half, abs=1e-4)
        assert point["high"] == pytest.approx(centre + half, abs=1e-4)


@pytest.mark.slow
@few_or_many(150, 400)
def test_band_of_a_calibrated_model_covers_the_diagonal(draws: int) -> None:
    """95% at each point, of the mean over points of all curves: 93% and more is close enough."""
    rng = np.random.default_rng(0)
    covered, points = 0, 0
    for _ in range(draws):
        p = 0.5 + rng.beta(4, 1, 1000) / 2
        curve = smooth_curve(FREQUENCY.state(binary(p, rng.random(1000) < p), FINE_BINS), 0.95)
        inside = (curve.low <= curve.confidence) & (curve.confidence <= curve.high)
        covered, points = covered + int(inside.sum()), points + len(inside)
    assert covered / points >= 0.93


def test_curve_has_gaps_where_there_are_no_rows() -> None:
    p = np.repeat([0.55, 0.95], 500)
    curve = smooth_curve(FREQUENCY.state(binary(p, np.arange(1000) % 2 == 0), FINE_BINS), 0.95)
    steps = np.diff(curve.confidence) > 0.006
    assert steps.sum() == 1
    np.testing.assert_array_equal(np.diff(curve.piece) > 0, steps)


@pytest.mark.slow
def test_worst_classes_match_a_loop() -> None:
    """Bins, errors and their order, from one row and class at a time."""
    predictions = some_predictions(rows=200)
    errors = []
    for k in range(4):
        sums = [[0, 0.0, 0] for _ in range(10)]
        for p, label in zip(predictions.probabilities[:, k], predictions.labels, strict=True):
            cell = sums[max(math.ceil(p * 10) - 1, 0)]
            cell[0] += 1
            cell[1] += float(p)
            cell[2] += int(label == k)
        errors.append((sum(abs(cell[2] - cell[1]) for cell in sums) / 200, sums))
    names = ["zero", "one", HOSTILE, "three"]
    chart = classwise_diagram(predictions, classes=names, worst=3, bins=10).to_dict()
    order = sorted(range(4), key=lambda k: -errors[k][0])[:3]
    assert [panel["title"]["text"] for panel in chart["concat"]] == [names[k] for k in order]
    for panel, k in zip(chart["concat"], order, strict=True):
        assert panel["title"]["subtitle"][0] == f"error {errors[k][0]:.2%}"
        rows = chart["datasets"][panel["data"]["name"]]
        filled = [cell for cell in errors[k][1] if cell[0]]
        assert [row["rows"] for row in rows] == [cell[0] for cell in filled]
        for row, (count, confidence, occurred) in zip(rows, filled, strict=True):
            assert row["accuracy"] == pytest.approx(occurred / count)
            assert row["confidence"] == pytest.approx(confidence / count)
    assert "n = 200" in chart["title"]["subtitle"][0]


@pytest.mark.slow
def test_few_classes_are_all_drawn_and_numbered_without_names() -> None:
    chart = classwise_diagram(some_predictions(), worst=12).to_dict()
    titles = [panel["title"]["text"] for panel in chart["concat"]]
    assert sorted(titles) == [f"class {k}" for k in range(4)]


def test_histogram_counts_right_and_wrong_rows() -> None:
    predictions = some_predictions(rows=200)
    chart = confidence_histogram({"a": predictions}, bins=10)
    expected: dict[tuple[int, str], int] = {}
    for p, right in zip(predictions.confidences, predictions.correct, strict=True):
        key = (max(math.ceil(p * 10) - 1, 0), "right" if right else "wrong")
        expected[key] = expected.get(key, 0) + 1
    drawn = {
        (round(row["from"] * 10), row["what"]): round(row["share"] * 200, 6)
        for row in table_with(chart, "what")
        if row["share"] > 0
    }
    assert drawn == expected
    marks = {row["mark"]: row["value"] for row in table_with(chart, "mark")}
    assert marks["accuracy"] == pytest.approx(predictions.correct.mean())
    assert marks["mean confidence"] == pytest.approx(predictions.confidences.mean())


def test_risk_with_ties_matches_a_loop() -> None:
    """400 rows, whose every second is one of the 200 coverages; and half of all rows tie."""
    predictions = some_predictions(rows=400)
    p = np.round(predictions.confidences, 1)
    p = np.where(p < 0.5, 0.5, p)
    tied = binary(p, predictions.correct)
    assert len(set(p.tolist())) < 8
    errors = {v: float(np.mean(~tied.correct[p == v])) for v in set(p.tolist())}
    ordered = [errors[v] for v in sorted(p.tolist(), reverse=True)]
    chart = risk_coverage({"a": tied})
    label = f"a: AURC {METRICS['aurc'](15).measure(tied).value:.2%}"
    points = [row for row in table_with(chart, "risk") if row["series"] == label]
    assert len(points) == 200
    for number, point in enumerate(points, 1):
        assert point["coverage"] == pytest.approx(number / 200)
        assert point["risk"] == pytest.approx(np.mean(ordered[: 2 * number]), abs=2e-6)


def test_risk_band_is_the_wilson_interval() -> None:
    """Those of 200 coverages that are whole numbers of 300 rows, as scipy has it."""
    predictions = some_predictions(rows=300)
    order = np.argsort(-predictions.confidences)
    wrong = (~predictions.correct[order]).cumsum()
    points = table_with(risk_coverage({"a": predictions}), "risk", "low")
    for number, point in enumerate(points, 1):
        accepted = 1.5 * number
        assert 0 <= point["low"] <= point["risk"] <= point["high"] <= 1
        if accepted % 1 == 0:
            test = scipy.stats.binomtest(int(wrong[int(accepted) - 1]), int(accepted))
            ends = test.proportion_ci(0.95, method="wilson")
            assert (point["low"], point["high"]) == pytest.approx((ends.low, ends.high), abs=2e-6)


def test_risk_band_covers_the_true_risk() -> None:
    """Confidences uniform in [1/2, 1] and true: (1 − p) of the most confident share c is c/4."""
    rng = np.random.default_rng(0)

    def drawn() -> Predictions:
        p = rng.uniform(0.5, 1, 400)
        return binary(p, rng.random(400) < p)

    # What the chart draws; drawing it takes a thousand times as long.
    covered = [
        point["low"] <= point["coverage"] / 4 <= point["high"]
        for _ in range(300)
        for point in _points(_errors_by_confidence(drawn()))
        if point["coverage"] >= 0.1
    ]
    assert len(covered) == 300 * 181
    assert np.mean(covered) >= 0.93


def test_wide_band_does_not_change_the_scale() -> None:
    chart = risk_coverage({"a": some_predictions(rows=50)})
    points = table_with(chart, "risk", "low")
    (domain,) = [
        layer["encoding"]["y"]["scale"]["domain"]
        for layer in chart.to_dict()["layer"]
        if "scale" in layer["encoding"]["y"]
    ]
    assert max(row["high"] for row in points) > domain[1] >= max(row["risk"] for row in points)
    assert domain[1] >= points[-1]["high"]


def test_optimal_order_has_all_errors_last() -> None:
    predictions = some_predictions(rows=400)
    rights = int(predictions.correct.sum())
    order = [0] * rights + [1] * (400 - rights)
    points = table_with(risk_coverage({"a": predictions}), "best")
    assert len(points) == 200
    for number, point in enumerate(points, 1):
        assert point["risk"] == pytest.approx(np.mean(order[: 2 * number]), abs=2e-6)


def test_shift_plot_draws_rows_and_available_intervals() -> None:
    rows = table_with(error_over_shift(SHIFT, n=500), "severity")
    drawn = [(r["series"], r["severity"], r["value"], r["low"], r["high"]) for r in rows]
    assert drawn == SHIFT
    assert all(abs(row["at"] - row["severity"]) < 0.16 for row in rows)
    assert rows[1]["at"] != rows[2]["at"]


def test_severities_may_have_names(tmp_path: Path) -> None:
    chart = error_over_shift(SHIFT, n=[500, 2000], names=["clear", f"fog {HOSTILE}"])
    assert chart.to_dict()["title"]["subtitle"][1] == "n = 500 to 2,000"
    save(chart, tmp_path / "a.svg")
    texts = list(ElementTree.fromstring((tmp_path / "a.svg").read_text()).itertext())  # noqa: S314
    assert "clear" in texts
    assert any(text.startswith("fog <") for text in texts)
    with pytest.raises(InputError, match="names: found 1 names; accepted: 2, one for each"):
        error_over_shift(SHIFT, n=500, names=["clear"])


@costly_are_slow
def test_plot_size_does_not_grow_with_rows(name: str) -> None:
    """100,000 rows give no more than 200 kB: two bytes a row."""
    rng = np.random.default_rng(0)
    p = 0.5 + rng.beta(4, 1, 100_000) / 2
    predictions = binary(p, rng.random(100_000) < p)
    chart = PICTURES[name]({"before": predictions, "after": predictions})
    assert len(chart.to_json(indent=None)) < 200_000


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in ("smooth", "classwise") else [])
        for name in (*PICTURES, "shift")
    ],
)
def test_every_picture_renders_with_any_title(name: str, tmp_path: Path) -> None:
    """An SVG is well-formed and has no NaN; test_plots.py tests the other formats."""
    chart = error_over_shift(SHIFT, n=500) if name == "shift" else PICTURES[name](two())
    save(chart, tmp_path / "a.svg")
    svg = (tmp_path / "a.svg").read_text()
    texts = "".join(ElementTree.fromstring(svg).itertext())  # noqa: S314
    assert "NaN" not in svg
    assert "n = 500" in texts


@pytest.mark.slow
@costly_are_slow
def test_saturated_rows_are_drawn(name: str, tmp_path: Path) -> None:
    series = {"a": saturated(1, 1), "b": saturated(0, 3)}
    save(PICTURES[name](series), tmp_path / "a.svg")
    assert "NaN" not in (tmp_path / "a.svg").read_text()


@pytest.mark.parametrize("name", PICTURES)
def test_no_rows_are_refused(name: str) -> None:
    empty = Predictions.from_probabilities(np.ones((0, 3)) / 3, np.zeros(0, np.int64))
    with pytest.raises(InputError, match="found no rows; accepted: at least one row"):
        PICTURES[name]({"a": empty, "b": empty})


@pytest.mark.parametrize("name", PICTURES)
def test_invalid_confidences_are_refused(name: str) -> None:
    p = np.array([[np.nan, np.nan], [0.5, 0.5]])
    broken = Predictions.from_probabilities(p, np.zeros(2, np.int64))
    with pytest.raises(InputError, match="confidences from nan"):
        PICTURES[name]({"a": broken, "b": broken})


@pytest.mark.parametrize(
    ("name", "count", "accepted"),
    [
        ("smooth", 3, "one or two"),
        ("overlay", 1, "two"),
        ("overlay", 3, "two"),
        ("confidence", 0, "one or two"),
        ("risk", 0, "1 to 8"),
        ("risk", 9, "1 to 8"),
    ],
)
def test_too_many_series_are_refused(name: str, count: int, accepted: str) -> None:
    with pytest.raises(InputError, match=f"found {count} series; accepted: {accepted}"):
        PICTURES[name]({str(k): saturated(1) for k in range(count)})


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"worst": 0}, "worst"),
        ({"worst": 13}, "worst"),
        ({"bins": 0}, "bins"),
        ({"bins": 101}, "bins"),
        ({"classes": ["a"]}, "classes"),
    ],
)
def test_invalid_class_wise_options_are_refused(options: dict, field: str) -> None:
    with pytest.raises(InputError) as excinfo:
        classwise_diagram(some_predictions(), **options)
    assert excinfo.value.field == field


@pytest.mark.parametrize(
    ("rows", "field"),
    [
        ([], "rows"),
        ([("a", 0, 0.1, 0, 0.2)] * 2, "rows"),
        ([("a", math.nan, 0.1, 0, 0.2)], "rows[0].severity"),
        ([("a", 0, math.nan, 0, 0.2)], "rows[0]"),
        ([("a", 0, 0.3, 0, 0.2)], "rows[0]"),
        ([("a", 0, 4.5, None, None)], "rows[0]"),
        ([("a", 0, 0.1, None, 0.2)], "rows[0]"),
        ([(str(k), 0, 0.1, 0, 0.2) for k in range(9)], "rows.method"),
        ([("a", k, 0.1, 0, 0.2) for k in range(51)], "rows.severity"),
    ],
)
def test_invalid_shift_rows_are_refused(rows: list, field: str) -> None:
    with pytest.raises(InputError) as excinfo:
        error_over_shift(rows, n=500)
    assert excinfo.value.field == field


def test_long_names_of_classes_are_wrapped() -> None:
    """Names that begin alike can be told apart."""
    names = [f"a rather long name of class {k}" for k in range(4)]
    chart = classwise_diagram(some_predictions(), classes=names, worst=4).to_dict()
    titles = [panel["title"]["text"] for panel in chart["concat"]]
    assert sorted(" ".join(lines) for lines in titles) == names
    assert max(len(line) for lines in titles for line in lines) < 25
