"""The public functions: arrays in, values that show themselves out."""

from __future__ import annotations

import copy
import json
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import recalib
from recalib.drift import CalibrationTest, Cohort, Monitor, MonitorOptions, ScoreTest
from recalib.errors import InputError, RecalibWarning
from recalib.files import LabelledData
from recalib.fitting.comparison import compare
from recalib.replay import ReplayOptions, replay
from tests.fitting.conftest import draw
from tests.replay.logs import log, write

RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 3, 900)
LOGITS = 3 * np.eye(3)[LABELS] + 4 * RNG.normal(size=(900, 3))
NAMES = np.array(["cat", "dog", "<b>owl</b>"])


def test_logits_that_look_like_probabilities_are_warned_of() -> None:
    """Names the line of the caller; logits and probabilities give no warning."""
    rng = np.random.default_rng(0)
    p, labels = rng.dirichlet(np.ones(3), 20), rng.integers(0, 3, 20)
    rows, truth = rng.random((20, 3)), rng.integers(0, 2, (20, 3))
    for call in (
        lambda **scores: recalib.evaluate(labels, **scores),
        lambda **scores: recalib.evaluate(labels, **scores, metrics="nll", intervals=True),
        lambda **scores: recalib.reliability_diagram(labels, **scores),
        lambda **scores: recalib.classwise_diagram(labels, **scores),
    ):
        with pytest.warns(RecalibWarning, match="pass them as probabilities=") as warned:
            call(logits=p)
        assert [record.filename for record in warned] == [__file__]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            call(logits=np.log(p))
            call(probabilities=p)
    with pytest.warns(RecalibWarning, match="logits: all are between 0 and 1"):
        recalib.evaluate(truth, logits=rows, task="multilabel")


def test_evaluation_of_two_classes_shows_their_error_before_ece() -> None:
    result = recalib.evaluate([0, 1, 1], [0.25, 0.75, 0.25], metrics=["brier", "binary_ece", "ece"])
    assert repr(result) == "<Evaluation brier 0.4583, binary_ece 25.00%, ece 8.33%>"


@pytest.mark.filterwarnings("ignore:class .* has a mean probability")  # of these labels
def test_fit_shows_the_warnings_of_the_card() -> None:
    """Labels of other rows: no temperature makes their likelihood larger."""
    with (
        pytest.warns(RecalibWarning, match="temperature at its upper bound"),
        pytest.warns(RecalibWarning, match="the logits do not predict these labels"),
        pytest.warns(RecalibWarning, match="likely have different orders of the classes"),
    ):
        recalib.fit(LOGITS, np.argmin(LOGITS, axis=1))
    with pytest.warns(RecalibWarning, match="1 of 3 classes never occur in the labels: 2"):
        recalib.fit(LOGITS, np.minimum(LABELS, 1))
    assert recalib.fit(LOGITS, LABELS).card.fit.warnings == ()


def test_errors_of_names_weights_and_labels_name_the_argument() -> None:
    """One metric need not be in a list; case does not matter for suggestions."""
    p = np.full((3, 3), 1 / 3)
    assert list(recalib.evaluate([0, 1, 2], p, metrics="ece")) == ["ece"]
    labels = np.eye(3, dtype=int)
    by_label = recalib.evaluate(labels, p, metrics="ece", task="multilabel")
    assert list(by_label) == ["ece"]
    for name, suggestion in {"ECE": "ece", "auroc": "roc_auc", "smECE": "smooth_ece"}.items():
        expected = rf"metrics: found '{name}'; accepted: did you mean {suggestion}\?"
        with pytest.raises(InputError, match=expected):
            recalib.evaluate([0, 1, 2], p, metrics=[name])
    with pytest.raises(InputError, match=r"sample_weight\[0\]: found -1"):
        recalib.fit(LOGITS, LABELS, sample_weight=np.full(900, -1))
    with pytest.raises(InputError, match=r"weights\[0\]: found -1"):
        recalib.fit(LOGITS, LABELS, weights=np.full(900, -1))
    with pytest.raises(InputError, match="go from 1 to the number of classes: subtract 1"):
        recalib.fit(LOGITS, LABELS + 1)


@pytest.mark.parametrize(
    ("labels", "scores"),
    [
        ([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]),
        (["no", "yes", "yes"], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]),
        ([0.0, 1.0, 1.0], [0.1, 0.8, 0.4]),
        (pd.Series([True, False, True]), pd.Series([0.1, 0.8, 0.4])),
        (np.zeros((2, 4, 4), int), np.full((2, 3, 4, 4), 1 / 3)),
    ],
)
def test_swapped_arguments_are_named(labels: Any, scores: Any) -> None:
    """Every order is possible with keywords."""
    with pytest.raises(InputError, match="labels as probabilities: the two are swapped"):
        recalib.evaluate(scores, labels)
    for call in (recalib.fit, recalib.compare):
        with pytest.raises(InputError, match="labels as logits: the two are swapped"):
            call(labels, scores)
    values = recalib.evaluate(probabilities=scores, labels=labels, metrics=["accuracy"])
    assert 0 <= values["accuracy"] <= 1


def test_labels_that_only_resemble_scores_are_not_called_swapped() -> None:
    for labels in ([0.5, 1.0], [float("nan"), 1.0], [[1.0, 0.0], [0.0, 1.0]]):
        with pytest.raises(InputError) as caught:
            recalib.evaluate(labels, logits=[[2, 0], [0, 1]])
        assert "swapped" not in str(caught.value)


def test_arguments_that_other_libraries_have_are_named() -> None:
    logits, labels = draw(60, 3, 2.0)
    with pytest.raises(InputError, match=r"options.method: .*did you mean the argument map\?"):
        recalib.fit(logits, labels, method="isotonic")


def test_compare_is_the_comparison_of_files() -> None:
    maps = ["identity", "vector"]
    result = recalib.compare(LOGITS[:600], LABELS[:600], LOGITS[600:], LABELS[600:], maps=maps)
    data = [LabelledData(LOGITS[part], LABELS[part]) for part in (slice(600), slice(600, None))]
    expected = compare(*data, [(name, "nll") for name in maps], level=0.95)
    assert [entry.metrics for entry in result.entries] == [e.metrics for e in expected.entries]
    np.testing.assert_array_equal(
        result.recommended.predict(LOGITS), expected.recommended.predict(LOGITS)
    )
    assert result.choice.candidates[0].nll == expected.choice.candidates[0].nll
    assert len(repr(result)) < 300
    assert result.choice.reason in repr(result)
    assert "vector" in result._repr_html_()
    assert "accuracy" in result._repr_html_()
    restored = pickle.loads(pickle.dumps(result))
    assert restored == result == copy.deepcopy(result)


def test_compare_without_test_rows_has_no_metrics() -> None:
    """Labels with names; K comes from the scores; the table has cross-validated scores."""
    frame = pd.DataFrame(LOGITS, columns=NAMES)
    result = recalib.compare(frame, NAMES[LABELS], maps=["temperature"])
    (entry,) = result.entries
    assert entry.metrics == {}
    assert f"{entry.held_out.nll.value:.4f}" in result._repr_html_()


@pytest.mark.slow
def test_report_is_a_page(tmp_path: Path) -> None:
    """Names of classes and the titles of arrays are text, also in the frame of a notebook."""
    frame = pd.DataFrame(LOGITS, columns=NAMES)
    texts = NAMES[LABELS]
    page = recalib.report(
        frame[:600],
        texts[:600],
        frame[600:],
        texts[600:],
        maps=["temperature"],
        shift={"noise": (LOGITS[:300] / 2, texts[:300])},
        title="<i>title</i>",
    )
    assert "recalib.fit(logits, labels, &#34;temperature&#34;" in page.html
    assert "&lt;b&gt;owl&lt;/b&gt;" in page.html
    assert "<b>owl</b>" not in page.html
    assert "<i>title" not in page.html
    assert [row.name for row in page.shift] == ["test", "noise"]
    probabilities = page.comparison.recommended.predict(LOGITS[600:])
    expected = recalib.evaluate(LABELS[600:], probabilities)
    assert page.after["ece"].value == pytest.approx(expected["ece"])
    assert len(repr(page)) < 300
    frame_of_notebook = page._repr_html_()
    assert frame_of_notebook.startswith("<iframe srcdoc=")
    assert frame_of_notebook.count("<") == 2
    page.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == page.html
    with pytest.raises(InputError, match=r"ends in \.html"):
        page.save(tmp_path / "page.pdf")


@pytest.mark.slow
def test_report_of_independent_labels_is_a_page(tmp_path: Path) -> None:
    """With the names of columns; the figures are those of `evaluate`."""
    rng = np.random.default_rng(3)
    z = rng.normal(0, 2, (900, 3))
    y = rng.random((900, 3)) < 1 / (1 + np.exp(-z / 3))
    frame = pd.DataFrame(z, columns=["red", "<b>round", "ripe"])
    page = recalib.report(frame[:500], y[:500], frame[500:], y[500:], task="multilabel")
    assert page.recommended.card.labels == ("red", "<b>round", "ripe")
    assert "&lt;b&gt;round" in page.html
    assert "<b>round" not in page.html
    probabilities = page.recommended.predict(z[500:])
    expected = recalib.evaluate(y[500:], probabilities, task="multilabel")
    assert page.after.metrics["nll"].value == pytest.approx(expected["nll"])
    assert page._repr_html_().startswith("<iframe srcdoc=")
    assert len(repr(page)) < 300
    page.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == page.html


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"objectives": ["brier"]}, "objectives"),
        ({"shift": {"noise": None}}, "shift"),
        ({"preserve_accuracy": False}, "preserve_accuracy"),
        ({"maps": ["vector"]}, "maps"),
        ({"class_labels": ("red",)}, "class_labels: found red"),
        ({"test_logits": np.zeros((20, 2))}, "test_logits: found 2 classes"),
        ({"test_labels": np.full((20, 3), 2)}, r"test_labels\[0\]\[0\]: found 2"),
        ({"task": "labels"}, "task"),
    ],
)
def test_report_of_independent_labels_refuses(options: dict[str, Any], field: str) -> None:
    z = np.random.default_rng(0).normal(size=(20, 3))
    rows = {"test_logits": z, "test_labels": z > 0, "task": "multilabel", **options}
    with pytest.raises(InputError, match=f"^{field}"):
        recalib.report(z, z > 0, **rows)


@pytest.mark.parametrize(
    ("arguments", "options", "field"),
    [
        ((LOGITS, LABELS, LOGITS), {}, "test_logits, test_labels"),
        ((LOGITS, LABELS, LOGITS[:, :2], LABELS), {}, "test_logits"),
        ((LOGITS, LABELS + 1), {}, "labels[1]"),
        ((LOGITS, LABELS), {"maps": ["platt"]}, "maps"),
        ((LOGITS, LABELS), {"maps": ["identity"], "objectives": ["ece_grid"]}, "objective"),
    ],
)
def test_comparisons_that_are_not_possible_are_rejected(arguments, options, field) -> None:
    if field == "labels[1]":
        field = f"labels[{int(np.argmax(LABELS == 2))}]"
    with pytest.raises(InputError) as info:
        recalib.compare(*arguments, **options)
    assert info.value.field == field


def test_evaluation_shows_itself() -> None:
    """A short repr, a table for `print` and notebooks, and a dictionary otherwise."""
    estimates = recalib.evaluate(LABELS, logits=LOGITS, intervals=True)
    assert len(repr(estimates)) < 150
    lines = str(estimates).splitlines()
    assert lines[0].split() == ["metric", "value", "interval", "noise", "floor"]
    assert len(lines) == len(estimates) + 1
    assert f"{estimates['ece'].floor:.2%}" in estimates._repr_html_()
    values = recalib.evaluate(LABELS, logits=LOGITS)
    assert values == {name: estimate.value for name, estimate in estimates.items()}
    assert json.loads(json.dumps(values)) == values
    assert "interval" not in str(values)
    for evaluation in (estimates, values):
        restored = pickle.loads(pickle.dumps(evaluation))
        assert restored == evaluation == copy.deepcopy(evaluation)
        assert type(restored) is type(evaluation)


def test_floors_and_intervals_are_separate() -> None:
    both = recalib.evaluate(LABELS, logits=LOGITS, metrics=["ece"], intervals=True)["ece"]
    floors = recalib.evaluate(LABELS, logits=LOGITS, metrics=["ece"], floors=True)["ece"]
    without = {"intervals": True, "floors": False}
    intervals = recalib.evaluate(LABELS, logits=LOGITS, metrics=["ece"], **without)["ece"]
    assert (floors.value, floors.floor) == (both.value, both.floor)
    assert floors.low is None
    assert (intervals.low, intervals.high) == (both.low, both.high)
    assert intervals.floor is None


def test_calibrator_shows_itself() -> None:
    calibrator = recalib.fit(LOGITS, NAMES[LABELS], map="vector", class_labels=tuple(NAMES))
    assert repr(calibrator) == "<Calibrator vector of 3 classes>"
    html = calibrator._repr_html_()
    assert "900 rows" in html
    assert np.array2string(calibrator.parameters["bias"], precision=4) in html
    labels = np.arange(240) % 12
    logits = 2 * np.eye(12)[labels] + 2 * RNG.normal(size=(240, 12))
    matrix = recalib.fit(logits, labels, map="dirichlet")
    assert "array of shape (12, 12)" in matrix._repr_html_()


@pytest.mark.slow
def test_picture_shows_and_saves_itself(tmp_path: Path) -> None:
    picture = recalib.reliability_diagram(LABELS, logits=LOGITS, bins=5)
    assert picture._repr_svg_().startswith("<svg")
    assert picture.specification["$schema"].startswith("https://vega.github.io/schema/vega-lite")
    picture.save(tmp_path / "a.json")
    assert json.loads((tmp_path / "a.json").read_text()) == picture.specification
    picture.save(tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert picture == pickle.loads(pickle.dumps(picture))
    with pytest.raises(InputError, match=r"\.png, \.svg, \.html, \.json"):
        picture.save(tmp_path / "a.pdf")


def test_monitor_is_the_replay_of_the_log(tmp_path: Path) -> None:
    """The same states from arrays as from a file; dates and pandas, polars and NumPy columns."""
    columns, options = log(rows=6_000), {"tolerance": 0.03, "cohort": 3 * 86_400}
    expected = replay(write(tmp_path / "log.parquet", columns), ReplayOptions(**options))
    assert expected.state == "stale"
    correct = [value.as_py() for value in columns["correct"]]
    label_time = columns["label_time"].to_numpy(zero_copy_only=False)
    result = recalib.monitor(
        columns["confidence"], correct, columns["time"], label_time=label_time, **options
    )
    assert result == expected
    assert result.to_dict() == expected.to_dict()
    assert len(repr(result)) < 100
    assert expected.events[-1].status.reason in result._repr_html_().replace("&#x27;", "'")
    picture = recalib.timeline(result, title="a log").specification
    assert picture["title"]["text"] == "a log"
    assert f"ECE below {ReplayOptions().objective:.1%}" in str(picture["title"]["subtitle"])
    frame = pl.DataFrame({"p": columns["confidence"], "right": correct, "at": label_time})
    dates = pd.to_datetime(columns["time"], unit="s", utc=True).to_series()
    by_date = recalib.monitor(
        frame["p"], pd.Series(correct), dates, label_time=frame["at"], **options
    )
    assert by_date.state == expected.state
    assert [event.status.state for event in by_date.events] == [
        event.status.state for event in expected.events
    ]


def test_monitor_of_classes_segments_and_a_calibrator() -> None:
    rows = 2_000
    labels = RNG.integers(0, 3, rows)
    logits = 2 * np.eye(3)[labels] + RNG.normal(size=(rows, 3))
    calibrator = recalib.fit(logits, labels, measure=True)
    probabilities = calibrator.predict(logits)
    result = recalib.monitor(
        None,
        probabilities.argmax(axis=1) == labels,
        np.arange(rows),
        probabilities=probabilities,
        label=labels,
        segment=np.array(["a", "b"])[np.arange(rows) % 2],
        calibrator=calibrator,
        segment_columns={"device": np.arange(rows) % 4},
        classes=("all",),
        maturity=0,
        cohort=400,
    )
    assert result.state == "fresh"
    assert (result.reference, result.reference_from) == (rows, "calibrator")
    assert result.classes is not None
    assert result.segment_search.tried == 4


@pytest.mark.parametrize(
    ("arguments", "options", "field"),
    [
        (([0.5], [True, False], [0, 1]), {}, "confidence"),
        (([0.5, 0.6], [True, 2], [0, 1]), {}, "correct[1]"),
        (([0.5, 1.6], [True, None], [0, 1]), {}, "confidence[1]"),
        (([0.5], [True], [[0]]), {}, "time"),
        (([0.5], [True], ["noon"]), {}, "time[0]"),
        (([0.5], [True], [1j]), {}, "time"),
        ((None, [True], [0]), {"probabilities": [[[0.5]]]}, "probabilities"),
        (([0.5], [True], [0]), {"alfa": 0.1}, "options"),
        (([0.5], [True], [0]), {"alpha": 2}, "options.alpha"),
    ],
)
def test_logs_that_cannot_be_read_are_rejected(arguments, options, field) -> None:
    with pytest.raises(InputError) as info:
        recalib.monitor(*arguments, **options)
    assert info.value.field == field


def test_monitor_takes_minutes_and_days() -> None:
    """Arrow has no such units."""
    at = np.datetime64("2026-01-01", "m") + 1440 * np.arange(300)
    seconds, minutes, days = (
        recalib.monitor(np.full(300, 0.5), np.arange(300) % 2, at.astype(f"datetime64[{unit}]"))
        for unit in "smD"
    )
    assert seconds == minutes == days


def test_states_of_monitoring_are_values() -> None:
    """Pickles and copies are equal, and continue as the original does."""
    rng = np.random.default_rng(1)
    confidence, correct = rng.random(300), rng.random(300) < 0.5
    calibration_test, score_test = CalibrationTest(), ScoreTest()
    calibration_test.update(confidence, correct)
    score_test.update(rng.random(300), rng.random(300))
    monitor = Monitor([0.5], [1, 2], MonitorOptions(segments=1))
    traffic = np.bincount(confidence >= 0.5)
    cohort = Cohort(traffic, confidence, correct, np.zeros(300), np.linspace(0, 1, 300))
    monitor.add(0, 1, cohort)
    monitor.assess(1)
    for state in (calibration_test, score_test, monitor):
        restored = pickle.loads(pickle.dumps(state))
        assert restored == state == copy.deepcopy(state)
        assert len(repr(state)) < 150
    restored = copy.deepcopy(calibration_test)
    restored.update(confidence[:1], correct[:1])
    assert restored != calibration_test
    assert CalibrationTest(alpha=0.1) != CalibrationTest()
    assert ScoreTest(alpha=0.1) != ScoreTest()
    assert Monitor([0.5], [1, 2]) != Monitor([0.5], [2, 1])
