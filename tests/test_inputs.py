"""Inputs of the library that are no arrays of numbers: frames, tensors, texts, binary scores.

The other libraries are imported by the tests, since their imports take a second.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest

import recalib
from recalib.errors import InputError
from tests.fitting.conftest import draw

LOGITS, LABELS = draw(200, 3, 2.0)
NAMES = ("cat", "dog", "emu")
TEXTS = np.array(NAMES)[LABELS]
FITTED = recalib.fit(LOGITS, LABELS, "vector")


def temperature_of(*arguments: Any, **options: Any) -> float:
    return float(recalib.fit(*arguments, **options).parameters["temperature"])


def test_labels_can_be_texts_of_any_container() -> None:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    for labels in (
        TEXTS,
        TEXTS.astype(object),
        list(TEXTS),
        pd.Series(TEXTS),
        pd.Series(TEXTS, dtype="category"),
        pl.Series(TEXTS),
        pl.Series(TEXTS, dtype=pl.Categorical),
        pa.chunked_array([TEXTS.tolist()]),
    ):
        fitted = recalib.fit(LOGITS, labels, "vector")
        assert fitted.card.labels == NAMES, type(labels)
        np.testing.assert_array_equal(fitted.predict(LOGITS), FITTED.predict(LOGITS))


def test_texts_follow_class_labels_and_columns_before_their_order() -> None:
    import pandas as pd

    order = ("emu", "cat", "dog")
    position, logits = np.array([1, 2, 0])[LABELS], LOGITS[:, [2, 0, 1]]
    expected = temperature_of(logits, position)
    fitted = recalib.fit(logits, TEXTS, class_labels=order)
    assert fitted.card.labels == order
    assert float(fitted.parameters["temperature"]) == expected
    frame = pd.DataFrame(logits, columns=list(order))
    assert temperature_of(frame, TEXTS) == expected
    columns = pd.DataFrame(LOGITS, columns=["a", "b", "c"])
    assert recalib.fit(columns, LABELS).card.labels is None


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_missing_label_among_texts_is_no_class(missing: object) -> None:
    """Of lists, series and arrays; with two texts and the missing value for three classes."""
    import pandas

    labels = ["cat", "dog", missing, "cat"]
    for container in (labels, tuple(labels), pandas.Series(labels), np.array(labels, object)):
        with pytest.raises(InputError, match=r"labels\[2\]: found .*; accepted: a text"):
            recalib.fit(LOGITS[:4], container)


def test_missing_class_number_is_named() -> None:
    with pytest.raises(InputError, match=r"labels\[1\]: found None; accepted: a class"):
        recalib.fit(LOGITS[:3], [0, None, 1])


def test_unclear_texts_are_rejected() -> None:
    with pytest.raises(InputError, match="2 different texts for 3 classes; accepted: with texts"):
        recalib.fit(LOGITS[:2], ["cat", "dog"])
    with pytest.raises(InputError, match=r"labels\[1\]: found 'cow'; accepted: cat, dog, emu"):
        recalib.fit(LOGITS[:2], ["cat", "cow"], class_labels=NAMES)


def test_binary_scores_are_log_odds_or_probabilities_of_class_1() -> None:
    scores = np.random.default_rng(0).normal(size=300) * 3
    labels = np.random.default_rng(1).random(300) < 1 / (1 + np.exp(-scores / 2))
    matrix = np.stack([np.zeros(300), scores], axis=1)
    fitted = recalib.fit(scores, labels)
    assert fitted.parameters == recalib.fit(matrix, labels.astype(int)).parameters
    np.testing.assert_array_equal(fitted.predict(scores), fitted.predict(matrix))
    p = 1 / (1 + np.exp(-scores))
    assert temperature_of(p, labels, input="probabilities") == pytest.approx(
        float(fitted.parameters["temperature"]), rel=1e-6
    )
    with pytest.raises(InputError, match="probabilities between 0 and 1"):
        recalib.fit(scores, labels, input="probabilities")
    with pytest.raises(InputError, match=r"found shape \(300,\); accepted: shape \(N, K\)"):
        FITTED.predict(scores)


def test_one_row_of_several_classes_is_no_binary_score() -> None:
    """Only for two classes does (N,) stand for rows; of K classes it may be one row."""
    calibrator = recalib.fit(LOGITS, LABELS)
    with pytest.raises(InputError, match=r"found shape \(3,\); accepted: shape \(N, K\)"):
        calibrator.predict(LOGITS[0])


def test_frames_are_returned_with_index_and_names() -> None:
    import pandas as pd
    import polars as pl

    expected = FITTED.predict(LOGITS)
    frame = pd.DataFrame(LOGITS, index=range(5, 205), columns=["a", "b", "c"])
    answer = FITTED.predict(frame)
    pd.testing.assert_frame_equal(
        answer, pd.DataFrame(expected, index=frame.index, columns=frame.columns)
    )
    named = recalib.fit(LOGITS, TEXTS, "vector")
    assert list(named.predict(frame).columns) == list(NAMES)
    answer = named.predict(pl.DataFrame(LOGITS, schema=["a", "b", "c"]))
    assert answer.columns == list(NAMES)
    np.testing.assert_array_equal(answer.to_numpy(), expected)
    estimates = named.evaluate(frame, TEXTS, metrics=["nll"])
    assert estimates == FITTED.evaluate(LOGITS, LABELS, metrics=["nll"])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_tensors_may_require_gradients_and_be_bfloat16(dtype: str) -> None:
    import torch

    logits = torch.tensor(LOGITS, dtype=getattr(torch, dtype), requires_grad=True)
    numbers = logits.detach().double().numpy()
    assert temperature_of(logits, torch.tensor(LABELS)) == pytest.approx(
        temperature_of(numbers, LABELS), rel=1e-5
    )
    probabilities = FITTED.predict(logits)
    assert isinstance(probabilities, np.ndarray)
    np.testing.assert_allclose(probabilities, FITTED.predict(numbers), atol=1e-6)


def test_sample_weight_is_weights() -> None:
    weights = np.random.default_rng(0).random(200)
    assert temperature_of(LOGITS, LABELS, sample_weight=weights) == temperature_of(
        LOGITS, LABELS, weights=weights
    )
    with pytest.raises(InputError, match="weights: found sample_weight too"):
        recalib.fit(LOGITS, LABELS, sample_weight=weights, weights=weights)


def test_evaluation_takes_what_fits_take() -> None:
    import pandas as pd

    probabilities = FITTED.predict(LOGITS)
    expected = recalib.evaluate(LABELS, probabilities=probabilities)
    assert recalib.evaluate(TEXTS, probabilities) == expected
    frame = pd.DataFrame(probabilities, columns=list(NAMES))
    estimates = recalib.evaluate(TEXTS, frame, metrics=["nll", "ece"], intervals=True)
    assert list(estimates) == ["nll", "ece"]
    assert estimates["ece"].value == expected["ece"]
    assert estimates["ece"].low <= estimates["ece"].value <= estimates["ece"].high
    binary = recalib.evaluate([True, False], [0.75, 0.25], metrics=["brier"])
    assert binary["brier"] == pytest.approx(2 * 0.25**2)
    with pytest.raises(InputError, match="found both; accepted: exactly one"):
        recalib.evaluate(LABELS, probabilities, logits=LOGITS)


@pytest.mark.slow
def test_pictures_of_arrays_are_charts() -> None:
    probabilities = FITTED.predict(LOGITS)
    series = {"before": FITTED.predict(LOGITS * 2), "after": probabilities}
    diagram = recalib.reliability_diagram(TEXTS, series).specification
    assert "before" in str(diagram)
    assert "after" in str(diagram)
    for draw_picture in (recalib.confidence_histogram, recalib.risk_coverage):
        by_logits = draw_picture(LABELS, logits=LOGITS).specification
        assert by_logits["$schema"].startswith("https://vega.github.io/schema/vega-lite/")
    classes = recalib.classwise_diagram(TEXTS, probabilities, class_labels=NAMES, worst=2)
    titles = [panel["title"]["text"] for panel in classes.specification["concat"]]
    assert len(titles) == 2
    assert set(titles) < set(NAMES)


def test_matrix_of_labels_names_the_task() -> None:
    logits = np.zeros((4, 3))
    for call in (recalib.fit, lambda z, y: recalib.evaluate(y, logits=z)):
        with pytest.raises(InputError, match=r"labels: found shape \(4, 3\); .*multilabel"):
            call(logits, np.eye(4, 3, dtype=bool))


def test_rows_without_an_axis_are_told_what_to_do() -> None:
    """One row (K,), one column for labels of many classes, and rows as one axis."""
    one_row = re.escape("shape (3,); accepted: shape (N, K); one row is x[None], (1, 3)")
    for call in (FITTED.predict, lambda row: FITTED.evaluate(row, [0])):
        with pytest.raises(InputError, match=one_row):
            call(LOGITS[0])
    advice = re.escape("of more classes a column each: (N, K), one row x[None], N rows x.reshape")
    for scores, of_rows in (
        (LOGITS[:, 0], LABELS),
        (LOGITS.ravel(), LABELS),
        (LOGITS[0], LABELS[:1]),
    ):
        with pytest.raises(InputError, match=advice):
            recalib.evaluate(of_rows, logits=scores)
        with pytest.raises(InputError, match=advice):
            recalib.fit(scores, of_rows)
    with pytest.raises(InputError, match=r"found 199 labels; accepted: 200, one a row$"):
        recalib.evaluate(LABELS[:199], logits=LOGITS)


@pytest.mark.parametrize("columns", [[20, 10, 30], ["20", "10", "30"], ["c2", "c0", "c1"]])
def test_numbered_columns_with_the_names_of_the_classes_are_in_their_order(
    columns: list[Any],
) -> None:
    """Numbers as names of classes may have any order, which `class_labels` say."""
    rng = np.random.default_rng(0)
    names, y = tuple(map(str, columns)), rng.integers(0, 3, 200)
    z = rng.normal(size=(200, 3)) + 3 * np.eye(3)[y]
    labels, frame = np.array(names)[y], pd.DataFrame(z, columns=columns)
    expected = recalib.fit(z, y, "temperature").predict(z)
    calibrator = recalib.fit(frame, labels, "temperature", class_labels=names)
    assert calibrator.card.labels == names
    for rows in (frame, frame[columns[::-1]]):
        np.testing.assert_allclose(calibrator.predict(rows), expected, atol=1e-12)
        for measured in (
            recalib.evaluate(labels, logits=rows, class_labels=names),
            calibrator.evaluate(rows, labels, ignore_index=-1, metrics=["accuracy"]),
        ):
            assert measured["accuracy"] == (z.argmax(axis=1) == y).mean()


def test_ignored_rows_do_not_change_the_order_of_columns() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 200)
    frame = pd.DataFrame(
        rng.normal(size=(200, 3)) + 3 * np.eye(3)[y], columns=["cat", "dog", "eel"]
    )
    labels = np.array([*frame.columns])[y]
    calibrator = recalib.fit(frame, labels, "temperature")
    expected = calibrator.evaluate(frame, labels, metrics=["accuracy"])
    reordered = frame[["eel", "cat", "dog"]]
    assert calibrator.evaluate(reordered, labels, ignore_index=-1, metrics=["accuracy"]) == expected
