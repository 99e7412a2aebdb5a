"""What a report warns of: each warning where it is due, and none where all is well."""

from __future__ import annotations

import importlib
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.stats
from numpy.typing import NDArray

from recalib.files import LabelledData
from recalib.fitting.comparison import compare
from recalib.metrics import Estimate
from recalib.metrics.evaluate import evaluate, measure_all
from recalib.reporting.html_report import findings as module
from recalib.reporting.html_report.findings import (
    Measurements,
    RowCounts,
    count_shared_rows,
    findings,
)
from tests.fitting.conftest import draw

Logits = NDArray[np.float64]


@pytest.fixture(autouse=True)
def short_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Findings read no metric of a card or of a comparison's entries; all of them take longer."""
    fitting, comparison = (
        importlib.import_module(f"recalib.fitting.{name}") for name in ("fit_card", "comparison")
    )
    monkeypatch.setattr(fitting, "measure_all", partial(measure_all, metrics=["nll"]))
    monkeypatch.setattr(comparison, "evaluate", partial(evaluate, metrics=["nll"]))


def measurements(validation: tuple[Logits, Any], test: tuple[Logits, Any]) -> Measurements:
    first, second = LabelledData(*validation), LabelledData(*test)
    comparison = compare(first, second, [("temperature", "nll")])
    answer = comparison.recommended.predict(second.logits)
    metrics = evaluate(
        second.labels, probabilities=answer, level=0.95, metrics=["ece", "classwise_ce"]
    )
    return Measurements(
        comparison,
        RowCounts.of(first),
        RowCounts.of(second),
        shared=count_shared_rows(first.logits, second.logits),
        before=metrics,
        after=metrics,
        changes={},
        changed=int((answer.argmax(axis=1) != second.logits.argmax(axis=1)).sum()),
    )


def texts_of(measured: Measurements, *, same_file: bool = False) -> list[str]:
    return findings(measured, same_file=same_file, name_of=lambda k: f"class {k}")


def good(rows: int = 3000) -> tuple[tuple[Logits, Any], tuple[Logits, Any]]:
    return draw(rows, 4, 2.0, seed=1), draw(rows, 4, 2.0, seed=2)


def test_good_model_has_no_findings() -> None:
    assert texts_of(measurements(*good())) == []


def test_error_that_is_shown_as_zero_is_no_finding() -> None:
    """Probabilities of nearly 1 for rows that are right have a tiny error, above a tiny floor."""
    part = measurements(*good())
    for ece, count in ((0.00004, 0), (0.0006, 1)):
        small = replace(part.after["ece"], value=ece, floor_high=ece / 2)
        texts = texts_of(replace(part, after={**part.after, "ece": small}))
        assert sum("miscalibration remains" in text for text in texts) == count


@pytest.mark.slow
def test_false_alarms_are_rare() -> None:
    """Files of one kind: the three tests at 0.1% each, and the floor at 5%."""
    reports = [
        texts_of(measurements(draw(600, 4, 2.0, seed=i), draw(600, 4, 2.0, seed=1000 + i)))
        for i in range(20)
    ]
    assert sum(len(texts) for texts in reports) <= 4


def test_few_rows_are_reported() -> None:
    texts = texts_of(measurements(*good(120)))
    assert "Only 120 validation rows: see how wide the intervals are." in texts
    assert "Only 120 test rows: see how wide the intervals are." in texts


def test_single_row_is_in_the_singular() -> None:
    texts = texts_of(measurements(draw(1, 4, 1.0), draw(600, 4, 1.0, seed=1)))
    assert "Only 1 validation row: see how wide the intervals are." in texts
    assert "1 validation row for 4 classes: too few for results of single classes." in texts


def test_fewer_rows_than_classes_are_reported() -> None:
    texts = texts_of(measurements(draw(30, 50, 1.0), draw(3000, 50, 1.0, seed=1)))
    assert any(text.startswith("30 validation rows for 50 classes") for text in texts)


@pytest.mark.parametrize("absent_from", ["validation", "test"])
def test_absent_class_is_named(absent_from: str) -> None:
    validation, test = good()
    logits, labels = validation if absent_from == "validation" else test
    selected = labels != 3
    thinned = (logits[selected], labels[selected])
    pair = (thinned, test) if absent_from == "validation" else (validation, thinned)
    texts = texts_of(measurements(*pair))
    assert any(
        f"1 of 4 classes never occur in the {absent_from} labels: class 3." in text
        for text in texts
    )
    assert any(text.startswith("Label shift") for text in texts)


def test_five_of_many_absent_classes_are_named() -> None:
    text = module._join_names(np.arange(9), lambda k: f"class {k}")
    assert text == "class 0, class 1, class 2, class 3, class 4 and 4 more"
    assert module._join_names(np.arange(2), lambda k: f"class {k}") == "class 0, class 1"


def test_label_shift_names_a_class_and_its_shares() -> None:
    validation, (logits, labels) = good()
    selected = (labels != 1) | (np.arange(len(labels)) % 3 == 0)
    texts = texts_of(measurements(validation, (logits[selected], labels[selected])))
    (shift,) = [text for text in texts if text.startswith("Label shift")]
    shares = [np.mean(classes == 1) for classes in (validation[1], labels[selected])]
    assert f"class 1, {shares[0]:.1%} of validation and {shares[1]:.1%} of test rows" in shift


def test_label_shift_test_matches_pearson() -> None:
    """As scipy has it, where no class is rare."""
    rng = np.random.default_rng(0)
    for scale in (0.0, 0.1, 0.3, 0.6):
        shares = np.ones(5) / 5 * np.exp(scale * rng.normal(size=5))
        first = rng.multinomial(800, np.ones(5) / 5)
        second = rng.multinomial(600, shares / shares.sum())
        expected = scipy.stats.chi2_contingency(np.stack([first, second]), correction=False).pvalue
        assert module._is_shifted(first, second) == (expected < 1e-3)


def test_rare_classes_are_merged() -> None:
    """A thousand classes of a row or two each are no shift, however they differ."""
    rng = np.random.default_rng(0)
    first, second = (rng.multinomial(1000, np.ones(1000) / 1000) for _ in range(2))
    assert not module._is_shifted(first, second)
    nothing = np.zeros(3, np.int64)
    assert not module._is_shifted(nothing + 1, nothing + 1)


def test_different_accuracies_are_reported() -> None:
    validation, (logits, labels) = good()
    wrong = np.where(np.arange(len(labels)) % 5 == 0, (labels + 1) % 4, labels)
    texts = texts_of(measurements(validation, (logits, wrong)))
    assert any("more than chance explains: the files are not of one kind" in text for text in texts)


def test_equal_files_and_shared_rows_are_reported() -> None:
    validation, (logits, labels) = good()
    (text,) = texts_of(measurements(validation, validation), same_file=True)
    assert text.startswith("Both files are the same")
    mixed = np.concatenate([logits[10:], validation[0][:10]])
    text = texts_of(measurements(validation, (mixed, np.append(labels[10:], validation[1][:10]))))[
        0
    ]
    assert text.startswith("10 of 3,000 test rows are in the validation file too")


def test_warnings_of_the_fit_are_reported() -> None:
    """Separable rows: the temperature's bound is passed on, in the fit's words."""
    logits, _ = draw(600, 3, 1.0)
    separable = (logits, logits.argmax(axis=1))
    facts = measurements(separable, draw(600, 3, 1.0, seed=1))
    temperature = facts.comparison.entries[0].calibrator
    texts = texts_of(replace(facts, comparison=replace(facts.comparison, recommended=temperature)))
    assert any(text.startswith("A bound was reached: temperature at its lower") for text in texts)


def test_remaining_miscalibration_is_reported() -> None:
    facts = measurements(*good())
    estimates = dict(facts.after)
    estimates["ece"] = Estimate(0.05, 0.04, 0.06, floor=0.01, floor_high=0.02)
    texts = texts_of(replace(facts, after=estimates))
    assert any("an ECE of 5.00% is left, more than the 2.00%" in text for text in texts)
    estimates["ece"] = Estimate(0.019, 0.0, 0.04, floor=0.01, floor_high=0.02)
    assert texts_of(replace(facts, after=estimates)) == []
    estimates["classwise_ce"] = Estimate(0.03, 0.01, 0.04)
    (text,) = texts_of(replace(facts, after=estimates))
    assert "a class-wise calibration error of 3.00% is left, 95% interval 1.00% to 4.00%" in text
    estimates["classwise_ce"] = Estimate(0.03, 0.0, 0.04)
    assert texts_of(replace(facts, after=estimates)) == []
