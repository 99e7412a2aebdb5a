"""Pictures and reports of two classes show P(y = 1) from 0 to 1."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import recalib
from recalib.metrics import Predictions
from recalib.metrics.evaluate import evaluate
from recalib.reporting.plots import (
    classwise_diagram,
    confidence_histogram,
    reliability_diagram,
    reliability_overlay,
)


def two_classes(positives: float, rows: int = 2000) -> Predictions:
    """Rows whose P(y = 1) is too large by a factor e of the odds."""
    rng = np.random.default_rng(0)
    odds = rng.normal(np.log(positives / (1 - positives)), 1.5, rows)
    labels = (rng.random(rows) < 1 / (1 + np.exp(-odds))).astype(np.int64)
    return Predictions.from_logits(np.stack([0 * odds, odds + 1], axis=1), labels)


def bars(specification: dict[str, Any]) -> dict[str, np.ndarray]:
    """The data of the bars, by column."""
    for rows in specification["datasets"].values():
        if "share" in rows[0]:
            return {name: np.array([row[name] for row in rows]) for name in rows[0]}
    raise AssertionError


@pytest.mark.parametrize(("positives", "scale"), [(0.02, "sqrt"), (0.4, None)])
def test_bars_are_frequencies_of_class_1(positives: float, scale: str | None) -> None:
    """Weighted by rows, they are the frequency of class 1; a rare class has most bins below 10%."""
    predictions = two_classes(positives)
    specification = reliability_diagram({"": predictions}).to_dict()
    column = bars(specification)
    p, hits = predictions.probabilities[:, 1], predictions.labels == 1
    assert column["share"] @ column["accuracy"] == pytest.approx(hits.mean())
    assert column["share"] @ column["confidence"] == pytest.approx(p.mean())
    for k in range(len(column["from"])):
        members = (p > column["from"][k]) & (p <= column["to"][k])
        assert members.mean() == pytest.approx(column["share"][k])
        assert hits[members].mean() == pytest.approx(column["accuracy"][k])
    assert column["share"].max() < 0.5
    text = str(specification)
    assert ("'type': 'sqrt'" in text) == (scale == "sqrt")
    value = evaluate(predictions.labels, probabilities=predictions.probabilities)["binary_ece"]
    assert f"binary ECE {value.value:.2%}" in text
    assert "'title': 'P(y = 1)'" in text
    assert "'title': 'frequency of class 1'" in text


def test_histogram_has_the_rows_of_both_classes() -> None:
    predictions = two_classes(0.02)
    rows = next(
        rows
        for rows in confidence_histogram({"": predictions}).to_dict()["datasets"].values()
        if "what" in rows[0]
    )
    shares = {
        name: sum(row["share"] for row in rows if row["what"] == name)
        for name in ("class 1", "class 0")
    }
    frequency = predictions.labels.mean()
    assert shares == pytest.approx({"class 1": frequency, "class 0": 1 - frequency})


def test_curve_of_a_calibrated_rare_class_is_near_the_diagonal() -> None:
    """At 0.5% too: the kernel is as wide on the square-root scale as elsewhere."""
    predictions = two_classes(0.02, 40_000)
    honest = Predictions.from_logits(predictions.scores - [0, 1], predictions.labels)
    specification = reliability_overlay({"a": predictions, "b": honest}).to_dict()
    points = next(rows for rows in specification["datasets"].values() if "at" in rows[0])
    curve = {row["at"]: row["accuracy"] for row in points if row["series"] == "b"}
    for at in (0.005, 0.02, 0.1):
        nearest = min(curve, key=lambda value: abs(value - at))
        assert curve[nearest] == pytest.approx(at, rel=0.3)


def test_classwise_diagram_shows_class_1_alone() -> None:
    panels = classwise_diagram(two_classes(0.4), classes=("no", "yes")).to_dict()["concat"]
    assert [panel["title"]["text"] for panel in panels] == ["yes"]


@pytest.mark.slow
def test_report_names_the_error_of_two_classes() -> None:
    rows, test = two_classes(0.05, 600), two_classes(0.05, 500)
    report = recalib.report(
        rows.scores, rows.labels, test.scores, test.labels, maps=["temperature"], shift={}
    )
    assert "the ECE of P(y = 1)" in report.verdict
    first = " ".join(
        re.sub("<.*?>", "", report.html[report.html.index("Class 1 is") :])[:200].split()
    )
    before, after = (values["binary_ece"].value for values in (report.before, report.after))
    assert first.startswith(
        f"Class 1 is {test.labels.mean():.2%} of the test rows, and P(y = 1) of the classifier is"
        f" off by {before:.2%} on average. Calibrated by temperature, it is off by {after:.2%}."
    )
    titles = re.findall(r"<h3>(.*?)</h3>", report.html)
    assert titles[0] == "Frequency of class 1 by P(y = 1)"
    assert len(titles) == 4
    steps = re.findall(r'card step"><span class="soft">(\w+):', report.html)
    assert steps == ["roc_auc", "binary_ece", "nll", "brier"]
