"""Inputs that are unusual or wrong: objects, masks, other orders of columns, names that do not fit.

Each is used as it is meant, or is an error that names the place. None is used in silence.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recalib
from recalib.errors import InputError, RecalibWarning
from tests.test_inputs import FITTED, LABELS, LOGITS, NAMES, TEXTS, temperature_of


def test_text_in_a_frame_of_scores_is_named_with_its_column() -> None:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    columns = {"a": LOGITS[:, 0], "id": TEXTS, "b": LOGITS[:, 1]}
    message = rf"logits\[0\]: found '{TEXTS[0]}' in column 'id'; accepted: a number"
    for frame in (pd.DataFrame(columns), pl.DataFrame(columns), pa.table(columns)):
        for call in (recalib.fit, FITTED.evaluate):
            with pytest.raises(InputError, match=message):
                call(frame, LABELS)
        with pytest.raises(InputError, match=message):
            FITTED.predict(frame)


@pytest.mark.parametrize("name", ["label", "labels"])
def test_column_of_labels_among_scores_is_rejected(name: str) -> None:
    """Numbers of classes would otherwise become the logits of one more class."""
    import pandas as pd

    frame = pd.DataFrame(LOGITS, columns=["a", "b", "c"]).assign(**{name: LABELS})
    with pytest.raises(InputError, match=f"logits: found a column '{name}'; accepted: columns of"):
        recalib.fit(frame, LABELS)


def test_objects_that_are_numbers_are_scores() -> None:
    """Nullable columns, decimal numbers of a database, and columns of lists."""
    from decimal import Decimal

    import pandas as pd
    import polars as pl
    import pyarrow as pa

    expected = FITTED.predict(LOGITS)
    flat = pa.array(LOGITS.ravel())
    for scores in (
        pd.DataFrame(LOGITS).astype("Float64"),
        LOGITS.astype(object),
        np.array([[Decimal(value) for value in row] for row in LOGITS]),
        pd.Series(LOGITS.tolist()),
        pd.Series(list(LOGITS)),
        pl.Series(LOGITS.tolist()),
        pa.array(LOGITS.tolist()),
        pa.FixedSizeListArray.from_arrays(flat, 3),
    ):
        answer = np.asarray(FITTED.predict(scores), np.float64)
        np.testing.assert_allclose(answer, expected, rtol=1e-12)


@pytest.mark.parametrize("value", [None, "4", True, 1j])
def test_object_that_is_no_number_is_named(value: object) -> None:
    objects = LOGITS.astype(object)
    objects[3, 1] = value
    with pytest.raises(InputError, match=r"logits\[3\]\[1\]: found .*; accepted: a number"):
        recalib.fit(objects, LABELS)


def test_masked_values_are_rejected() -> None:
    """NumPy would otherwise use the numbers under the mask."""
    masked = np.ma.array(LOGITS, mask=LOGITS > 2)
    with pytest.raises(InputError, match="logits: found masked values"):
        recalib.fit(masked, LABELS)
    assert temperature_of(np.ma.array(LOGITS), LABELS) == temperature_of(LOGITS, LABELS)


def test_frames_with_the_names_of_the_classes_in_another_order_are_rejected() -> None:
    """In fits and evaluations, and for the labels of multilabel rows: which order is meant?"""
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    order = ["emu", "cat", "dog"]
    message = "found columns in the order emu, cat, dog; accepted: the order cat, dog, emu"
    matrix = LOGITS[:, [2, 0, 1]]
    for frame in (
        pd.DataFrame(matrix, columns=order),
        pl.DataFrame(matrix, schema=order),
        pa.table(dict(zip(order, matrix.T, strict=True))),
    ):
        for call in (
            lambda frame=frame: recalib.fit(frame, TEXTS, class_labels=NAMES),
            lambda frame=frame: recalib.evaluate(LABELS, logits=frame, class_labels=NAMES),
        ):
            with pytest.raises(InputError, match=message):
                call()
    tags = pd.DataFrame(LABELS[:, None] == [2, 0, 1], columns=order)
    scores = pd.DataFrame(LOGITS, columns=list(NAMES))
    for call in (recalib.fit, lambda z, y, task: recalib.evaluate(y, logits=z, task=task)):
        with pytest.raises(InputError, match=f"labels: {message}"):
            call(scores, tags, task="multilabel")


def test_predictions_take_columns_by_the_names_of_the_classes() -> None:
    """In any order; the answer has the order of the classes. Other names are refused."""
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    named = recalib.fit(LOGITS, TEXTS, "vector", sets="lac")
    intervals = recalib.fit(LOGITS, TEXTS, "venn_abers")
    order, matrix = ["emu", "cat", "dog"], LOGITS[:, [2, 0, 1]]
    for frame in (
        pd.DataFrame(matrix, columns=order),
        pl.DataFrame(matrix, schema=order),
        pa.table(dict(zip(order, matrix.T, strict=True))),
    ):
        answer = named.predict(frame)
        names = answer.column_names if isinstance(answer, pa.Table) else answer.columns
        assert list(names) == list(NAMES)
        np.testing.assert_array_equal(np.asarray(answer), named.predict(LOGITS))
        np.testing.assert_array_equal(named.predict_set(frame), named.predict_set(LOGITS))
        expected = intervals.predict_interval(LOGITS)
        np.testing.assert_array_equal(intervals.predict_interval(frame), expected)
    wrong = pd.DataFrame(LOGITS, columns=["cat", "dog", "cow"])
    message = "logits: found columns cat, dog, cow; accepted: columns cat, dog, emu, the classes"
    for call in (named.predict, named.predict_set, intervals.predict_interval):
        with pytest.raises(InputError, match=message):
            call(wrong)


def test_arrow_tables_keep_their_names() -> None:
    import pyarrow as pa

    order = ("emu", "cat", "dog")
    table = pa.table(dict(zip(order, LOGITS[:, [2, 0, 1]].T, strict=True)))
    fitted = recalib.fit(table, TEXTS, "vector")
    assert fitted.card.labels == order
    for data in (table, table.to_batches()[0]):
        answer = fitted.predict(data)
        assert type(answer) is type(data)
        assert answer.schema.names == list(order)
        expected = FITTED.predict(LOGITS)[:, [2, 0, 1]]
        np.testing.assert_allclose(np.asarray(answer), expected, atol=1e-5)


def test_categories_in_another_order_need_class_labels() -> None:
    """Their order is that of the columns or not: it is not guessed."""
    import pandas as pd
    import polars as pl

    order = ["emu", "cat", "dog"]
    for labels in (pd.Categorical(TEXTS, categories=order), pl.Series(TEXTS, dtype=pl.Enum(order))):
        with pytest.raises(InputError, match="labels: found categories in the order emu, cat, dog"):
            recalib.fit(LOGITS, labels)
        fitted = recalib.fit(LOGITS, labels, "vector", class_labels=NAMES)
        np.testing.assert_array_equal(fitted.predict(LOGITS), FITTED.predict(LOGITS))
    two = LABELS < 2
    sorted_categories = pd.Categorical(TEXTS[two], categories=list(NAMES))
    with pytest.warns(RecalibWarning, match="1 of 3 classes never occur"):
        assert recalib.fit(LOGITS[two], sorted_categories).card.labels == NAMES


@pytest.mark.parametrize(
    "names", [["cat", "dog"], ["cat", "cat", "dog"], [0, 1, 2], "abc", ["a", "b", None], 3]
)
def test_names_of_classes_are_as_many_different_texts(names: Any) -> None:
    with pytest.raises(InputError, match=r"class_labels: found .*; accepted: 3 different texts"):
        recalib.fit(LOGITS, LABELS, class_labels=names)
    with pytest.raises(InputError, match=r"class_labels: found .*; accepted: 3 different texts"):
        recalib.fit(LOGITS, LABELS[:, None] == [0, 1, 2], task="multilabel", class_labels=names)


def test_names_of_classes_are_saved(tmp_path: Path) -> None:
    """Also those in an array, whose type a card does not have."""
    path = tmp_path / "named.calib"
    recalib.fit(LOGITS, LABELS, class_labels=np.array(NAMES)).save(path)
    assert recalib.load(path).card.labels == NAMES


@pytest.mark.filterwarnings("ignore:class .* has a mean probability")  # of these labels
def test_object_labels_are_numbers_or_truth_values() -> None:
    """Of a column of a frame that also has texts."""
    assert temperature_of(LOGITS, LABELS.astype(object)) == temperature_of(LOGITS, LABELS)
    truth = LABELS == 1
    assert temperature_of(LOGITS[:, :2], truth.astype(object)) == temperature_of(
        LOGITS[:, :2], truth
    )
    with pytest.raises(InputError, match=r"labels: found NoneType; accepted: .* for each row"):
        recalib.fit(LOGITS, None)


def test_tensors_that_numpy_does_not_take() -> None:
    """Sparse ones, lists of tensors, weights with gradients; one without values is an error."""
    import torch

    logits = torch.tensor(LOGITS)
    weights = torch.rand(200, generator=torch.Generator().manual_seed(0)).requires_grad_()
    expected = temperature_of(LOGITS, LABELS)
    assert temperature_of(logits.to_sparse(), LABELS) == expected
    rows = [row.requires_grad_() for row in torch.tensor(LOGITS)]
    assert temperature_of(rows, [torch.tensor(label) for label in LABELS]) == expected
    assert temperature_of([row.bfloat16() for row in rows], LABELS) == temperature_of(
        logits.bfloat16(), LABELS
    )
    assert temperature_of(LOGITS, LABELS, sample_weight=weights) == temperature_of(
        LOGITS, LABELS, sample_weight=weights.detach().numpy()
    )
    with pytest.raises(InputError, match="logits: found a tensor on the device meta"):
        recalib.fit(torch.zeros(2, 3, device="meta"), [0, 1])


@pytest.mark.filterwarnings("ignore:class .* has a mean probability")  # of these labels
def test_one_column_of_scores_is_of_class_1() -> None:
    """(N, 1) is the output of a network for two classes."""
    scores, labels = LOGITS[:, 1] - LOGITS[:, 0], LABELS == 1
    fitted = recalib.fit(scores[:, None], labels)
    assert fitted.parameters == recalib.fit(scores, labels).parameters
    np.testing.assert_array_equal(fitted.predict(scores[:, None]), fitted.predict(scores))


@pytest.mark.filterwarnings("ignore:class .* has a mean probability")  # of these labels
def test_scores_of_class_1_that_look_like_probabilities_cause_a_warning() -> None:
    """In fits and predictions of ten rows and more; fewer log-odds may all be between 0 and 1."""
    p = 1 / (1 + np.exp(LOGITS[:, 0] - LOGITS[:, 1]))
    labels = np.random.default_rng(0).random(200) < p
    with pytest.warns(RecalibWarning, match="all scores are between 0 and 1; if .* write input="):
        recalib.fit(p, labels)
    fitted = recalib.fit(LOGITS[:, 1] - LOGITS[:, 0], labels)
    with pytest.warns(RecalibWarning, match="all scores are between 0 and 1, but"):
        fitted.predict(p)
    fitted.predict(p[:9])
    fitted.predict(p, input="logits")


def test_fits_refuse_what_is_surely_no_logits_unless_its_kind_is_said() -> None:
    """Ten rows and more: probabilities, percentages, predicted classes; others only warn."""
    p = FITTED.predict(LOGITS)
    one_hot = np.eye(3)[p.argmax(axis=1)]
    hard = (LOGITS[:, 0] > 0).astype(float)
    for scores, labels, found in (
        (p, LABELS, "rows that are no logits: every row is non-negative and sums to 1; accepted"),
        (100 * p, LABELS, "sums to 100, as percentages are: divide by 100; accepted: if these"),
        (
            one_hot,
            LABELS,
            "found predicted classes, 0 and 1; accepted: the logits or",
        ),
        (
            hard,
            LABELS == 1,
            "found predicted classes, 0 and 1; accepted: the logits or",
        ),
    ):
        with pytest.raises(InputError, match=found):
            recalib.fit(scores, labels)
    with pytest.warns(RecalibWarning, match="all scores are between 0 and 100, as percentages are"):
        recalib.fit(100 * p[:, 1], LABELS == 1, "vector")
    assert recalib.fit(p, LABELS, input="probabilities").card.input == "probabilities"
    assert recalib.fit(p, LABELS, input="logits").card.fit.warnings == ()


def test_comparisons_warn_of_probabilities_without_input() -> None:
    p = FITTED.predict(LOGITS)
    with pytest.raises(InputError, match="sums to 1; accepted: if these are probabilities, write"):
        recalib.compare(p, LABELS, maps="temperature")
    noisy = p * np.linspace(0.995, 1.005, len(p))[:, None]
    with pytest.warns(RecalibWarning, match="sums to 1; if these are probabilities, write input="):
        recalib.compare(noisy, LABELS, maps="temperature")
    comparison = recalib.compare(p, LABELS, maps="temperature", input="probabilities")
    assert [entry.calibrator.card.map for entry in comparison.entries] == ["temperature"]


def test_error_in_test_rows_names_them() -> None:
    with pytest.raises(InputError, match=r"test_labels\[1\]: found 'cow'"):
        recalib.compare(LOGITS, TEXTS, LOGITS[:2], ["cat", "cow"], maps="temperature")


def test_error_in_test_scores_names_their_argument() -> None:
    """Whatever the scores are; columns of a frame in another order are wrong scores too."""
    import pandas as pd

    texts = LOGITS.astype(object)
    texts[1, 2] = "x"
    p = FITTED.predict(LOGITS)
    order = pd.DataFrame(LOGITS, columns=["dog", "cat", "emu"])
    for scores, test_scores, place, kind in (
        (LOGITS, texts, r"\[1\]\[2\]: found 'x'", "logits"),
        (LOGITS, np.where(LOGITS[3, 1] == LOGITS, np.nan, LOGITS), r"\[3\]\[1\]", "logits"),
        (p, np.where(p == p[3, 1], 2.0, p), r"\[3\]", "probabilities"),
        (LOGITS, order, ": found columns in the order dog", "logits"),
    ):
        with pytest.raises(InputError, match=f"^test_logits{place}"):
            recalib.compare(
                scores,
                TEXTS,
                test_scores,
                TEXTS,
                maps="temperature",
                input=kind,
                class_labels=NAMES,
            )


def test_rows_of_weight_0_have_no_classes() -> None:
    with pytest.warns(RecalibWarning, match="2 of 3 classes never occur in the labels: 1, 2"):
        recalib.fit(LOGITS, LABELS, sample_weight=(LABELS == 0).astype(float))


@pytest.mark.parametrize("map", [None, 3])
def test_map_that_is_no_name_is_rejected(map: Any) -> None:
    with pytest.raises(InputError, match=f"map: found {map}; accepted: identity, temperature"):
        recalib.fit(LOGITS, LABELS, map)


@pytest.mark.parametrize("text", ["0.3", "x"])
def test_column_of_texts_is_no_column_of_lists(text: str) -> None:
    """A text has a length, but its characters are no row, and it is not converted."""
    import pandas as pd

    for scores in (
        pd.Series([text] * 4, dtype=object),
        np.array([text] * 4, object),
    ):
        with pytest.raises(InputError, match=rf"logits\[0\]: found '{text}'; accepted: a number"):
            recalib.fit(scores, [0, 1, 0, 1])
    for rows in ([[1.0, 2.0], [1.0, text]], [[True, False], [True, False]]):
        column = pd.Series(rows)
        with pytest.raises(
            InputError, match=r"logits\[[01]\]\[[01]\]: found .*; accepted: a number"
        ):
            recalib.fit(column, [0, 1])


@pytest.mark.parametrize("exponent", [400, 5000])
def test_integer_beyond_float64_is_named(exponent: int) -> None:
    import pandas as pd

    frame = pd.DataFrame(LOGITS, columns=["a", "b", "c"]).astype(object)
    frame.loc[3, "b"] = -(10**exponent)
    with pytest.raises(
        InputError, match=r"logits\[3\]: found .* in column 'b'; .* at most 1.8e\+308"
    ):
        recalib.fit(frame, LABELS)
    labels = LABELS.astype(object)
    labels[2] = 10**400
    with pytest.raises(InputError, match=r"labels\[2\]: found 1000.*; accepted: a class"):
        recalib.fit(LOGITS, labels)


def test_column_names_that_occur_twice_are_no_names_of_classes() -> None:
    """Tables with such names are scores, and each column of the answer is there."""
    import pandas as pd
    import pyarrow as pa

    twice = ["cat", "dog", "cat"]
    frame = pd.DataFrame(LOGITS, columns=twice)
    with pytest.raises(
        InputError, match="columns: found cat more than once; accepted: 3 different"
    ):
        recalib.fit(frame, TEXTS)
    with pytest.raises(InputError, match="logits: found cat more than once; accepted: 3 different"):
        recalib.fit(frame, LABELS[:, None] == [0, 1, 2], task="multilabel")
    table = pa.Table.from_arrays(list(LOGITS.T), names=twice)
    for data in (table, table.to_batches()[0]):
        answer = FITTED.predict(data)
        assert answer.schema.names == twice
        columns = np.stack([column.to_numpy() for column in answer.columns], axis=1)
        np.testing.assert_array_equal(columns, FITTED.predict(LOGITS))


def test_missing_label_among_truth_values_is_named() -> None:
    import pandas as pd

    truth = (LABELS == 1).astype(object)
    for missing in (None, float("nan"), pd.NA):
        truth[2] = missing
        with pytest.raises(InputError, match=rf"labels\[2\]: found {missing!r}; .*leave out rows"):
            recalib.fit(LOGITS[:, :2], truth)
    truth[2] = 1
    with pytest.raises(InputError, match=r"labels\[2\]: found 1; accepted: a truth value, as in"):
        recalib.fit(LOGITS[:, :2], truth)


def test_labels_of_a_database_are_class_numbers() -> None:
    from decimal import Decimal
    from fractions import Fraction

    expected = temperature_of(LOGITS, LABELS)
    for kind in (Decimal, Fraction, np.float32):
        labels = np.array([kind(int(label)) for label in LABELS], object)
        assert temperature_of(LOGITS, labels) == expected
    labels = np.array([Decimal("0.5"), *LABELS[1:]], object)
    with pytest.raises(InputError, match=r"labels\[0\]: found 0.5"):
        recalib.fit(LOGITS, labels)


@pytest.mark.parametrize("labels", [TEXTS[:, None], TEXTS[:, None].astype(object)])
def test_labels_may_be_one_column(labels: Any) -> None:
    fitted = recalib.fit(LOGITS, labels, "vector")
    assert fitted.card.labels == NAMES
    np.testing.assert_array_equal(fitted.predict(LOGITS), FITTED.predict(LOGITS))
