"""Offsets by segment: their fit, the choice on held-out rows, and their calibrator."""

from __future__ import annotations

import pickle
import warnings
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy

import recalib
from recalib.calibrator.segments import OFFSETS, log_adjusted, log_of, membership
from recalib.core.segment_columns import MAX_SEGMENTS, segment_columns, segment_masks
from recalib.errors import CorruptError, InputError, RecalibWarning
from recalib.segments.fit import SegmentRows
from tests.draws import few_or_many
from tests.fitting.conftest import draw

CLASSES, SEGMENTS = 3, 8
Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]


def draw_rows(rows: int, spread: float, seed: int) -> Arrays:
    """Return logits that are too large by 1.5, labels, and segments of unequal sizes.

    A segment has a factor and biases of the true logits with the deviation `spread`.
    """
    rng = np.random.default_rng(seed)
    sizes = np.arange(1, SEGMENTS + 1)
    segments = rng.choice(SEGMENTS, rows, p=sizes / sizes.sum())
    factors, biases = (spread * rng.normal(size=(SEGMENTS, k)) for k in (1, CLASSES))
    logits = 2 * rng.normal(size=(rows, CLASSES))
    true = logits / 1.5 * np.exp(factors[segments]) + biases[segments]
    return logits, (true + rng.gumbel(size=true.shape)).argmax(axis=1), segments


def fitted(rows: Arrays, **options: object) -> recalib.Calibrator:
    logits, labels, segments = rows
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecalibWarning)  # segments move the classes
        common = recalib.fit(logits, labels)
    return recalib.fit_segments(common, logits, labels, segments, **options)


ROWS = draw_rows(1000, 0.5, 0)
BY_SEGMENT = fitted(ROWS)


def test_each_segment_is_the_optimum_of_another_solver() -> None:
    """Without overlap, segments are fitted apart: here by simplex search."""
    logits, labels, segments = ROWS
    p = BY_SEGMENT.common.predict(logits)
    answer = BY_SEGMENT.predict(logits, segments)
    assert BY_SEGMENT.card.segments.form == "vector"
    for segment in range(SEGMENTS):
        at = segments == segment
        u, y = np.log(p[at]), labels[at]

        def objective(theta: np.ndarray, u: np.ndarray = u, y: np.ndarray = y) -> float:
            log_q = scipy.special.log_softmax(np.exp(theta[0]) * u + theta[1:], axis=1)
            penalty = BY_SEGMENT.card.segments.strength / 2 * theta @ theta
            return float(penalty - log_q[np.arange(len(y)), y].sum())

        first = scipy.optimize.minimize(objective, np.zeros(1 + CLASSES), method="Powell").x
        options = {"xatol": 1e-9, "fatol": 1e-13, "maxiter": 5000}
        best = scipy.optimize.minimize(objective, first, method="Nelder-Mead", options=options).x
        expected = scipy.special.softmax(np.exp(best[0]) * u + best[1:], axis=1)
        np.testing.assert_allclose(answer[at], expected, atol=1e-6)


def test_fit_is_a_minimum_with_weights_masks_and_overlap() -> None:
    """The gradient by finite differences is 0 there."""
    rng = np.random.default_rng(3)
    logits, labels = draw(60, 4, 2.0, seed=3)
    logits[np.arange(60), (labels + 1) % 4] = -np.inf
    p = scipy.special.softmax(logits, axis=1)
    members = membership([rng.random(60) < share for share in (0.3, 0.5, 0.8)])
    weights = rng.random(60) + 0.5
    offsets = SegmentRows(p, labels, members, weights).fit("vector", 2.0)

    def objective(flat: np.ndarray) -> float:
        log_q = log_adjusted(log_of(p), members @ flat.reshape(offsets.shape))
        return float(flat @ flat - weights @ log_q[np.arange(60), labels])

    slope = scipy.optimize.approx_fprime(offsets.ravel(), objective, 1e-6)
    np.testing.assert_allclose(slope, 0, atol=1e-3)
    assert objective(offsets.ravel()) < objective(np.zeros(offsets.size)) - 0.1


def test_without_penalty_the_residuals_of_overlapping_segments_are_uncorrelated() -> None:
    """Multicalibration of degree 2: in each segment Σ r = 0 and Σ r·log p = 0."""
    logits, labels, segments = draw_rows(3000, 0.5, 1)
    large = logits.max(axis=1) > 2
    members = membership([*(segments == k for k in range(SEGMENTS)), large])
    p = scipy.special.softmax(logits, axis=1)
    offsets = SegmentRows(p, labels, members).fit("vector", 1e-9)
    residuals = np.eye(CLASSES)[labels] - np.exp(log_adjusted(log_of(p), members @ offsets))
    np.testing.assert_allclose(members.T @ residuals, 0, atol=1e-3)
    products = np.exp(members @ offsets[:, 0]) * (residuals * log_of(p)).sum(axis=1)
    np.testing.assert_allclose(members.T @ products, 0, atol=2e-3)


def test_one_segment_and_a_large_penalty_are_the_common_map() -> None:
    logits, labels, segments = ROWS
    common, everywhere = BY_SEGMENT.common, np.repeat("all", 1000)
    one = recalib.fit_segments(common, logits, labels, everywhere)
    np.testing.assert_allclose(one.predict(logits, everywhere), common.predict(logits), atol=1e-15)
    summary = one.card.segments
    assert (summary.form, summary.gain, summary.segments[0].rows) == ("none", 0, 1000)
    p = common.predict(logits)
    members = membership([segments == k for k in range(SEGMENTS)])
    offsets = SegmentRows(p, labels, members).fit("vector", 1e12)
    np.testing.assert_allclose(log_adjusted(log_of(p), members @ offsets), log_of(p), atol=1e-8)


def test_gain_of_a_segment_has_the_standard_error_of_a_mean() -> None:
    """By the analysis of variance: squares of all rows are those within and between segments."""
    logits, labels, _ = ROWS
    segments = np.repeat(["a", "b", "c"], [500, 499, 1])
    summary = recalib.fit_segments(BY_SEGMENT.common, logits, labels, segments).card.segments
    a, b, c = summary.segments
    assert c.standard_error is None
    total = (500 * a.gain + 499 * b.gain + c.gain) / 1000
    assert total == pytest.approx(summary.gain)
    within = sum(s.rows * (s.rows - 1) * (s.standard_error or 0) ** 2 for s in (a, b, c))
    between = sum(s.rows * (s.gain - total) ** 2 for s in (a, b, c))
    expected = np.sqrt((within + between) / (1000 * 999))
    assert summary.standard_error == pytest.approx(expected)


@few_or_many(2, 200)
def test_gain_where_segments_differ_and_no_harm_where_they_do_not(draws: int) -> None:
    """1,000 rows of the fit and 4,000 new ones; the exact 95% interval of a share of draws.

    With a deviation of .5 at least 80% of draws gain; without, at least 90% lose less than .001.
    """
    gains = {spread: np.empty(draws) for spread in (0.0, 0.5)}
    for spread, values in gains.items():
        for seed in range(draws):
            logits, labels, segments = draw_rows(5000, spread, seed)
            fit, new = slice(0, 1000), slice(1000, 5000)
            by_segment = fitted((logits[fit], labels[fit], segments[fit]))
            at = np.arange(4000), labels[new]
            before = by_segment.common.predict(logits[new])[at]
            values[seed] = np.log(
                by_segment.predict(logits[new], segments[new])[at] / before
            ).mean()
    for share, least in ((gains[0.5] > 0, 0.8), (gains[0.0] > -0.001, 0.9)):
        interval = scipy.stats.binomtest(int(share.sum()), draws).proportion_ci(0.95)
        assert interval.low > least or (draws < 200 and share.mean() > least)


def test_unknown_segments_have_the_common_map_and_are_named() -> None:
    logits, _, _ = ROWS
    common = BY_SEGMENT.common.predict(logits[:3])
    with pytest.warns(RecalibWarning, match="segment has values that the fit has not seen: 99"):
        answer = BY_SEGMENT.predict(logits[:3], ["99", "1", None])
    np.testing.assert_allclose(answer[[0, 2]], common[[0, 2]], atol=1e-15)
    assert np.abs(answer[1] - common[1]).max() > 0.001


def test_keep_does_not_change_predictions() -> None:
    logits, labels, segments = ROWS
    kept = recalib.fit_segments(BY_SEGMENT.common, logits, labels, segments, predictions="keep")
    assert kept.card.segments.form == "temperature"
    answer = kept.predict(logits, segments)
    np.testing.assert_array_equal(answer.argmax(axis=1), logits.argmax(axis=1))


def test_a_weight_is_a_number_of_rows() -> None:
    """Only the folds differ."""
    logits, labels, segments = ROWS
    counts = np.where(np.arange(1000) < 200, 2, 1)
    options = {"predictions": "keep", "weight_kind": "counts"}
    weighted = recalib.fit_segments(
        BY_SEGMENT.common, logits, labels, segments, sample_weight=counts, **options
    )
    rows = np.repeat(np.arange(1000), counts)
    repeated = recalib.fit_segments(
        BY_SEGMENT.common, logits[rows], labels[rows], segments[rows], predictions="keep"
    )
    assert weighted.card.segments.strength == repeated.card.segments.strength
    one, other = (fit.parameters[OFFSETS] for fit in (weighted, repeated))
    np.testing.assert_allclose(one, other, atol=1e-6)


def test_masked_classes_stay_impossible_and_dtypes_stay() -> None:
    logits, labels, segments = ROWS
    masked = logits.astype(np.float32)
    masked[np.arange(1000), (labels + 1) % 3] = -np.inf
    calibrator = recalib.fit_segments(recalib.fit(masked, labels), masked, labels, segments)
    answer = calibrator.predict(masked, segments)
    assert answer.dtype == np.float32
    assert (answer[np.isneginf(masked)] == 0).all()
    np.testing.assert_allclose(answer.sum(axis=1), 1, atol=1e-6)


def test_columns_overlap_and_may_be_frames() -> None:
    logits, labels, segments = ROWS
    columns = {"site": segments, "wide": logits.max(axis=1) > 2}
    by_column = recalib.fit_segments(BY_SEGMENT.common, logits, labels, columns)
    summary = by_column.card.segments
    assert summary.columns == ("site", "wide")
    assert {s.value for s in summary.segments if s.column == "wide"} == {"True", "False"}
    assert sum(s.rows for s in summary.segments if s.column == "site") == 1000
    expected = by_column.predict(logits, columns)
    for frame in (pd.DataFrame(columns), pl.DataFrame(columns), pa.table(columns)):
        np.testing.assert_array_equal(by_column.predict(logits, frame), expected)
    one = recalib.fit_segments(BY_SEGMENT.common, logits, labels, {"site": segments})
    np.testing.assert_array_equal(
        one.predict(logits, segments), one.predict(logits, pd.Series(segments, name="site"))
    )
    with pytest.raises(InputError, match="found none of site"):
        one.predict(logits, pd.Series(segments, name="city"))
    assert list(segment_columns(pd.Series(["a"], name="site"), 1)) == ["site"]
    masks = segment_masks({"site": ["a", "b", ""]}, 3)
    assert [*masks] == [("site", "a"), ("site", "b")]
    np.testing.assert_array_equal([*masks.values()], [[True, False, False], [False, True, False]])


@pytest.mark.parametrize(
    "values",
    [
        ["1", None, "2"],
        ["1", float("nan"), "2"],
        np.array([1.0, np.nan, 2.0]),
        pd.Series([1, None, 2]),
        pd.Series([1, None, 2], dtype="Int64"),
        pd.Series(["1", None, "2"], dtype="string"),
        pd.Series([1, None, 2], dtype=object),
        np.array([1, pd.NA, 2.0], dtype=object),
        pl.Series([1, None, 2]),
        pa.chunked_array([[1, None], [2]]),
    ],
    ids=lambda values: f"{type(values).__name__}_{getattr(values, 'dtype', '')}",
)
def test_nulls_are_no_segment_and_whole_floats_are_integers(values: object) -> None:
    (texts,) = segment_columns(values, 3).values()
    assert texts.tolist() == ["1", "", "2"]


def test_value_that_only_rows_without_weight_have_is_no_segment() -> None:
    logits, labels, _ = ROWS
    site = np.where(np.arange(1000) < 300, "a", "b")
    weights = np.where(site == "a", 0.0, 1.0)
    by_site = recalib.fit_segments(
        BY_SEGMENT.common, logits, labels, site, sample_weight=weights, weight_kind="counts"
    )
    assert [(s.value, s.rows) for s in by_site.card.segments.segments] == [("b", 700)]
    measured = recalib.evaluate(
        labels, logits=logits, segments=site, sample_weight=weights, metrics=["accuracy"]
    )
    assert [*measured.segments] == ["segment=b"]


def test_parameter_file_keeps_offsets_and_its_common_map(tmp_path: Path) -> None:
    logits, _, segments = ROWS
    path = tmp_path / "s.calib"
    BY_SEGMENT.save(path)
    loaded = recalib.load(path)
    assert loaded == BY_SEGMENT
    np.testing.assert_array_equal(
        loaded.predict(logits, segments), BY_SEGMENT.predict(logits, segments)
    )
    np.testing.assert_array_equal(loaded.predict(logits), BY_SEGMENT.common.predict(logits))
    assert OFFSETS not in loaded.common.parameters
    assert loaded.common.card.segments is None
    assert pickle.loads(pickle.dumps(loaded)) == loaded
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(CorruptError, match="checksum"):
        recalib.load(path)


def test_offsets_that_the_card_does_not_describe_are_corrupt() -> None:
    card, offsets = BY_SEGMENT.card, BY_SEGMENT.parameters[OFFSETS]
    of_map = BY_SEGMENT.common.parameters
    assert card.segments is not None
    replace = msgspec.structs.replace
    bare, other = replace(card, segments=None), replace(card.segments, columns=("x",))
    none, sets = replace(card.segments, segments=()), fitted_sets().card.sets
    cases = {
        "one of the two is missing": [({}, card), ({OFFSETS: offsets}, bare)],
        r"not finite, or not of shape \(8, 4\)": [
            ({OFFSETS: offsets[1:]}, card),
            ({OFFSETS: offsets * np.nan}, card),
        ],
        r"not finite, or not of shape \(0, 4\)": [
            ({OFFSETS: offsets[:0]}, replace(card, segments=none))
        ],
        "not of the columns x": [({OFFSETS: offsets}, replace(card, segments=other))],
        "with thresholds of rows": [({OFFSETS: offsets}, replace(card, sets=sets))],
    }
    for message, calibrators in cases.items():
        for extra, its_card in calibrators:
            with pytest.raises(CorruptError, match=message):
                recalib.Calibrator({**of_map, **extra}, its_card)


def test_thresholds_intervals_graphs_and_modules_are_of_the_common_map(tmp_path: Path) -> None:
    """None of them takes segments, and none drops them silently."""
    logits, labels, segments = ROWS
    for fit in (BY_SEGMENT.fit_sets, partial(BY_SEGMENT.fit_rejection, max_risk=0.4)):
        with pytest.raises(InputError, match="found one with segments; accepted: its `common`"):
            fit(logits, labels)
    with pytest.raises(InputError, match="one with thresholds of sets or of rejection; accepted"):
        recalib.fit_segments(fitted_sets(), logits, labels, segments)
    for target, export in (
        ("graph", BY_SEGMENT.to_onnx),
        ("graph", partial(BY_SEGMENT.save, tmp_path / "x.onnx")),
        ("module", BY_SEGMENT.to_torch),
    ):
        with pytest.raises(InputError, match=rf"`calibrator.common`: a {target} has no"):
            export()
    with pytest.raises(InputError, match="found segments; accepted: a calibrator of the map venn"):
        BY_SEGMENT.predict_interval(logits)
    large = np.tile(logits, (3, 1)).astype(np.float32)  # its session has the common map
    expected = BY_SEGMENT.predict(large.astype(np.float64), np.tile(segments, 3))
    np.testing.assert_allclose(BY_SEGMENT.predict(large, np.tile(segments, 3)), expected, atol=1e-6)


def fitted_sets() -> recalib.Calibrator:
    logits, labels, _ = ROWS
    return BY_SEGMENT.common.fit_sets(logits, labels, coverage=0.8)


def test_a_bias_that_all_segments_share_is_no_gain_of_segments() -> None:
    """The same rows without it gain as much; a gain over the common map alone would be 0.05."""
    rng = np.random.default_rng(5)
    logits, segments = 2 * rng.normal(size=(4000, 3)), rng.choice(SEGMENTS, 4000)
    true = logits + np.array([0.5, 0.0, -0.5])
    labels = (true + rng.gumbel(size=true.shape)).argmax(axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecalibWarning)  # the map has no bias
        common = recalib.fit(logits, labels)
    summary = recalib.fit_segments(common, logits, labels, segments).card.segments
    assert summary is not None
    assert summary.form == "none"
    assert -0.005 < summary.gain < 0.001  # 32 offsets for what one of all rows does
    everywhere = np.exp(
        log_adjusted(log_of(common.predict(logits)), biases(logits, labels, common))
    )
    saved = np.log(everywhere / common.predict(logits))[np.arange(4000), labels].mean()
    assert saved > 0.03


def biases(logits: np.ndarray, labels: np.ndarray, common: recalib.Calibrator) -> np.ndarray:
    """Return the offset (1, 4) of one segment of all rows."""
    members = membership([np.ones(len(logits), bool)])
    return SegmentRows(common.predict(logits), labels, members).fit("vector", 1.0)


def test_errors_name_the_field() -> None:
    logits, labels, segments = ROWS
    common = BY_SEGMENT.common
    with pytest.raises(
        InputError, match="segments: found segments; accepted: none: the calibrator"
    ):
        common.predict(logits, segments)
    accepted = r"accepted: texts, integers or booleans \(1000,\)"
    with pytest.raises(InputError, match=rf"segments: found shape \(5,\), .*{accepted}"):
        BY_SEGMENT.predict(logits, segments[:5])
    with pytest.raises(InputError, match=f"segments: found .* dtype float64; {accepted}"):
        BY_SEGMENT.predict(logits, segments / 3)
    for lists in ([["a"], ["a", "b"]], np.array([{}, 1], dtype=object)):
        with pytest.raises(InputError, match=r"segments: found values of the type (list|dict);"):
            segment_columns(lists, 2)
    with pytest.raises(InputError, match=r"values: found shape \(4, 3, 2\), with segments"):
        BY_SEGMENT.predict(np.ones((4, 3, 2)), segments[:4])
    count = MAX_SEGMENTS + 1
    with pytest.raises(InputError, match=f"segments: found {count} different values, like an id"):
        segment_columns(np.arange(count), count)
    for empty in ([""] * 1000, [None] * 1000):
        with pytest.raises(InputError, match="found 0 segments of 1000 rows; accepted: at least"):
            recalib.fit_segments(common, logits, labels, empty)
    with pytest.raises(InputError, match="predictions: found 'keep_order'"):
        recalib.fit_segments(common, logits, labels, segments, predictions="keep_order")
    by_columns = recalib.fit_segments(common, logits, labels, {"site": segments, "x": segments})
    with pytest.raises(InputError, match="segments: found none of x; accepted: values of site, x"):
        by_columns.predict(logits, {"site": segments})
    tags = recalib.fit(logits, np.eye(3, dtype=int)[labels], "platt", task="multilabel")
    with pytest.raises(InputError, match="a multilabel calibrator"):
        recalib.fit_segments(tags, logits, labels, segments)
