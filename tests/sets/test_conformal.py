"""Prediction sets: their coverage, closed forms and invariants, and the public calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import scipy.stats
import torch
from numpy.typing import NDArray

import recalib
from recalib.core.card import SetGroups
from recalib.errors import InputError, RecalibWarning
from recalib.ops import NumpyOps
from recalib.sets import (
    SCORES,
    SetOptions,
    conformal_sets,
    describe_sets,
    evaluate_sets,
    prediction_sets,
)

_DRAWS, _ROWS, _TEST_ROWS, _CLASSES = 400, 120, 400, 6


def _population(
    rng: np.random.Generator, rows: int
) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Return probabilities that are overconfident, and labels."""
    logits = rng.normal(size=(rows, _CLASSES)) * 2
    labels = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(axis=1)
    powers = np.exp(logits)
    return powers / powers.sum(axis=1, keepdims=True), labels


def _options(method: str, coverage: float = 0.9, by: SetGroups = "all") -> SetOptions:
    return SetOptions(method=method, coverage=coverage, by=by)  # type: ignore[arg-type]


def _scores(method: str, p: NDArray[np.float64], **options: float) -> NDArray[np.float64]:
    settings = SetOptions(method=method, **options)  # type: ignore[arg-type]
    scores: NDArray[np.float64] = SCORES[method](NumpyOps(), p, p.shape[1], settings)
    return scores


@pytest.mark.parametrize("method", SCORES)
@pytest.mark.parametrize("coverage", [0.8, 0.95])
def test_coverage_over_draws_is_that_of_the_beta_distribution(method: str, coverage: float) -> None:
    """The mean over 400 draws of rows and tests; of `aps` and `raps` a lower bound alone."""
    rng = np.random.default_rng(0)
    shares = []
    for _ in range(_DRAWS):
        sets = conformal_sets(*_population(rng, _ROWS), _options(method, coverage))
        p, labels = _population(rng, _TEST_ROWS)
        shares.append(evaluate_sets(prediction_sets(p, sets), labels).coverage)
    place = np.ceil((_ROWS + 1) * coverage)
    exact = scipy.stats.betabinom(_TEST_ROWS, place, _ROWS + 1 - place)
    error = 4 * exact.std() / _TEST_ROWS / np.sqrt(_DRAWS)
    mean = place / (_ROWS + 1)
    assert np.mean(shares) > mean - error
    if method == "lac":
        assert np.mean(shares) < mean + error
        assert np.std(shares) == pytest.approx(exact.std() / _TEST_ROWS, rel=0.2)


def test_threshold_is_an_order_statistic_of_the_scores_of_labels() -> None:
    p, labels = _population(np.random.default_rng(1), 99)
    sets = conformal_sets(p, labels, _options("lac"))
    p_of_label = np.sort(p[np.arange(99), labels])[9]
    # Lower by a share for the rounding of probabilities to float32, not by a number: p may be tiny.
    assert sets.thresholds == pytest.approx((1 - p_of_label * (1 - 1e-5),), rel=1e-12)
    assert (sets.low, sets.high) == pytest.approx(scipy.stats.beta.interval(0.95, 90, 10))


def test_scores_are_those_of_the_papers() -> None:
    p = np.array([[0.5, 0.05, 0.3, 0.15], [0.1, 0.2, 0.3, 0.4]])
    np.testing.assert_allclose(_scores("lac", p), 1 - p)
    np.testing.assert_allclose(_scores("aps", p), [[0.5, 1.0, 0.8, 0.95], [1.0, 0.9, 0.7, 0.4]])
    wide = np.linspace(0.2, 0.05, 8)[None]
    extra = _scores("raps", wide) - _scores("aps", wide)
    np.testing.assert_allclose(extra, [[0, 0, 0, 0, 0, 0.01, 0.02, 0.03]], atol=1e-12)
    extra = _scores("raps", wide, penalty=0.5, k_reg=6) - _scores("aps", wide)
    np.testing.assert_allclose(extra, [[0, 0, 0, 0, 0, 0, 0.5, 1.0]], atol=1e-12)


@pytest.mark.parametrize("method", SCORES)
def test_permuted_classes_permute_sets(method: str) -> None:
    p, labels = _population(np.random.default_rng(2), 200)
    order = np.random.default_rng(3).permutation(_CLASSES)
    options = _options(method, by="class")
    first = conformal_sets(p, labels, options)
    second = conformal_sets(p[:, order], np.argsort(order)[labels], options)
    np.testing.assert_array_equal(
        prediction_sets(p, first)[:, order], prediction_sets(p[:, order], second)
    )


def test_thresholds_by_class_cover_each_class() -> None:
    """One class is hard. A class with few rows shares a threshold, a class without has all sets."""
    rng = np.random.default_rng(4)
    shares = np.zeros(3)
    for _ in range(200):
        labels = rng.integers(0, 3, 700)
        p = rng.dirichlet([1, 1, 1, 0.1, 0.1], 700)
        p[labels == 2, 2] /= 4
        p /= p.sum(axis=1, keepdims=True)
        labels[:3] = 3
        sets = conformal_sets(p[:400], labels[:400], _options("lac", by="class"))
        hits = prediction_sets(p[400:], sets)[np.arange(300), labels[400:]]
        shares += [hits[labels[400:] == k].mean() / 200 for k in range(3)]
    # Standard error of a mean of 200 draws: below .004.
    assert (shares > 0.885).all()
    assert (shares < 0.925).all()
    assert len(sets.thresholds) == 5
    assert sets.thresholds[3] is None
    assert prediction_sets(p, sets)[:, 3].all()


def test_sets_have_no_masked_class_and_those_of_aps_are_not_empty() -> None:
    rng = np.random.default_rng(5)
    logits = rng.normal(size=(300, 4)) * 3
    logits[:, 3] = np.where(rng.random(300) < 0.5, -np.inf, logits[:, 3])
    labels = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(axis=1)
    calibrator = recalib.fit(logits, labels).fit_sets(logits, labels, "aps", 0.99)
    sets = calibrator.predict_set(logits)
    assert not sets[np.isneginf(logits)].any()
    assert sets.any(axis=1).all()


def test_fit_takes_thresholds_from_rows_that_the_map_has_not_seen(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    logits = 4 * rng.normal(size=(2_001, 5))
    labels = (logits / 4 + rng.gumbel(size=logits.shape)).argmax(axis=1)
    calibrator = recalib.fit(logits, labels, sets="lac", coverage=0.8)
    assert calibrator.card.sets is not None
    assert (calibrator.card.data.rows, calibrator.card.sets.rows) == (1_001, 1_000)
    calibrator.save(tmp_path / "c.calib")
    loaded = recalib.load(tmp_path / "c.calib")
    np.testing.assert_array_equal(loaded.predict_set(logits), calibrator.predict_set(logits))
    fresh = 4 * rng.normal(size=(4_000, 5))
    drawn = (fresh / 4 + rng.gumbel(size=fresh.shape)).argmax(axis=1)
    found = loaded.evaluate_sets(fresh, drawn)
    # 3.9 standard deviations of the beta-binomial distribution.
    assert abs(found.coverage - 0.8) < 0.055
    assert found.low < found.coverage < found.high
    assert found.worst_low < found.worst_coverage < found.worst_high <= 1


def test_fit_warns_of_sets_that_hold_far_more_labels_than_promised() -> None:
    rng = np.random.default_rng(12)
    logits = 8 * rng.normal(size=(2_000, 5))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    text = r"hold the label of \d+\.\d\d% of rows, with .* classes on average: try lac"
    with pytest.warns(RecalibWarning, match=text) as shown:
        wide = recalib.fit(logits[:1_000], labels[:1_000], sets="raps")
    assert wide.card.fit.warnings == (str(shown.list[0].message),)
    narrow = recalib.fit(logits[:1_000], labels[:1_000], sets="lac")  # without a warning
    found, least = (c.evaluate_sets(logits[1_000:], labels[1_000:]) for c in (wide, narrow))
    assert wide.card.sets is not None
    assert narrow.card.sets is not None
    assert found.low > wide.card.sets.high
    assert found.mean_size > 1.5 * least.mean_size
    assert describe_sets(wide.card.sets).endswith(f"at least {wide.card.sets.low:.1%}")
    ends = f"{narrow.card.sets.low:.1%} to {narrow.card.sets.high:.1%}"
    assert describe_sets(narrow.card.sets).endswith(f"which give {ends}")


@pytest.mark.parametrize("options", [{"sets": "lac"}, {"max_risk": 0.2}])
def test_one_row_is_too_few_for_two_halves(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="rows: found 1; accepted: at least 2"):
        recalib.fit(np.zeros((1, 3)), np.zeros(1, int), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"coverage": 0.9}, "coverage: found 0.9; accepted: only together with the name of a meth"),
        ({"sets": SetOptions(), "coverage": 0.9}, "coverage: found 0.9; accepted: only together"),
        ({"sets": SetOptions(k_reg=-1)}, "k_reg: found -1; accepted: an integer of 0 or more"),
        ({"sets": SetOptions(penalty=float("nan"))}, "penalty: found nan; accepted: a number of 0"),
        ({"sets_folds": 5}, "sets_folds: found 5; accepted: only together with sets"),
        ({"sets": "lac", "sets_folds": 41}, "sets_folds: found 41; accepted: 2 to 40, the rows"),
        ({"sets": "lac", "coverage": 1.0}, "coverage: found 1.0; accepted: a number above 0"),
        ({"sets": "best"}, "sets: found 'best'; accepted: lac or aps or raps"),
        ({"sets": "lac", "coverage": 0.99}, "rows: found 20; accepted: at least 99"),
        ({"sets": "lac", "sample_weight": np.ones(40)}, "sample_weight: found given"),
        (
            {"sets": "lac", "resampled": {"rate": (0.1, 1, 1)}},
            "resampled.rate: found given",
        ),
    ],
)
def test_impossible_requests_are_refused(options: dict[str, object], message: str) -> None:
    rng = np.random.default_rng(7)
    with pytest.raises(InputError, match=message.replace(".", r"\.")):
        recalib.fit(rng.normal(size=(40, 3)), np.arange(40) % 3, **options)  # type: ignore[arg-type]


def test_calibrator_without_thresholds_has_no_sets() -> None:
    rng = np.random.default_rng(8)
    calibrator = recalib.fit(rng.normal(size=(40, 3)), np.arange(40) % 3)
    with pytest.raises(InputError, match="no prediction sets"):
        calibrator.predict_set(np.zeros((1, 3)))


def test_class_whose_probability_underflows_is_in_a_set_without_a_limit() -> None:
    """Impossible is what the logits mask, not what a float cannot hold."""
    rng = np.random.default_rng(9)
    logits = np.tile([[900.0, 0.0, -np.inf]], (60, 1))
    labels = np.where(rng.random(60) < 0.3, 1, 0)
    identity = recalib.fit(rng.normal(size=(30, 3)), np.arange(30) % 3, "identity")
    calibrator = identity.fit_sets(logits, labels, "lac")
    assert (calibrator.predict(logits)[:, 1] == 0).all()
    np.testing.assert_array_equal(calibrator.predict_set(logits), np.tile([1, 1, 0], (60, 1)))


@pytest.mark.parametrize("method", SCORES)
def test_ties_at_the_threshold_stay_in_sets_when_probabilities_are_rounded(method: str) -> None:
    """A map with few values has many; float32, as a server computes it, must not drop them."""
    rng = np.random.default_rng(13)
    logits = 2 * rng.normal(size=(800, 3))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    sets = _options(method, 0.8)
    calibrator = recalib.fit(logits, labels, "histogram_binning", sets=sets)
    members = calibrator.predict_set(logits)
    single = logits.astype(np.float32)
    np.testing.assert_array_equal(calibrator.predict_set(single), members)
    np.testing.assert_array_equal(calibrator.predict_set(single[:9]), members[:9])


def test_clusters_of_classes_share_thresholds_and_cover_each_cluster() -> None:
    """Half of 20 classes are hard; labels of a class with few rows share the null cluster."""
    rng = np.random.default_rng(10)
    shares = np.zeros(2)
    for _ in range(30):
        labels = rng.integers(0, 20, 3_000)
        labels[:6_000:500] = 20
        p = rng.dirichlet(np.ones(21), len(labels))
        p[np.arange(len(labels)), labels] += np.where(labels < 10, 2, 0.2)
        p /= p.sum(axis=1, keepdims=True)
        sets = conformal_sets(p[:2_000], labels[:2_000], _options("lac", by="cluster"))
        members = prediction_sets(p[2_000:], sets)
        hits = members[np.arange(1_000), labels[2_000:]]
        is_easy = labels[2_000:] < 10
        shares += [hits[is_easy].mean() / 30, hits[~is_easy].mean() / 30]
    thresholds = np.array(sets.thresholds[:20], float)
    assert len(set(thresholds)) < 15
    assert thresholds[:10].max() < thresholds[10:].min()
    # Standard error of a mean of 30 draws: below .004.
    assert ((shares > 0.885) & (shares < 0.93)).all()
    assert sets.thresholds[20] is None
    assert sets.rows < 2_000


def test_out_of_fold_thresholds_are_approximate_and_take_all_rows() -> None:
    rng = np.random.default_rng(11)
    logits = 3 * rng.normal(size=(300, 5))
    labels = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(axis=1)
    calibrator = recalib.fit(logits, labels, "vector", sets="lac", sets_folds=10)
    assert calibrator.card.sets is not None
    assert not calibrator.card.sets.finite_sample
    assert calibrator.card.data.rows == calibrator.card.sets.rows == 300
    assert calibrator.parameters["bias"] == pytest.approx(
        recalib.fit(logits, labels, "vector").parameters["bias"]
    )
    # Not the thresholds of its own rows, which are too low.
    own = calibrator.fit_sets(logits, labels, "lac").card.sets
    assert own is not None
    assert calibrator.card.sets.thresholds[0] > own.thresholds[0]  # type: ignore[operator]


@pytest.mark.parametrize("method", SCORES)
@pytest.mark.parametrize("by", ["all", "class"])
def test_onnx_and_torch_give_the_sets_of_numpy(method: str, by: SetGroups) -> None:
    """On the same probabilities they are equal: ties, saturated rows and masks included."""
    rng = np.random.default_rng(12)
    logits = 3 * rng.normal(size=(900, 6))
    labels = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(axis=1)
    options = SetOptions(method=method, by=by, k_reg=1, penalty=0.05)  # type: ignore[arg-type]
    calibrator = recalib.fit(logits, labels, "vector", sets=options)
    rows = np.concatenate([logits[:300], logits[:99].round(), 0 * logits[:2], 300 * logits[:99]])
    rows = rows.astype(np.float32)
    rows[5, 2] = -np.inf
    session = onnxruntime.InferenceSession(calibrator.to_onnx())
    p, members = session.run(None, {"logits": rows})
    np.testing.assert_array_equal(members, calibrator.sets_of(p, rows))
    module = calibrator.to_torch()
    for values in (rows, rows.astype(np.float64)):
        tensor = torch.from_numpy(values)
        expected = calibrator.sets_of(module(tensor).numpy(), values)
        np.testing.assert_array_equal(module.predict_set(tensor).numpy(), expected)
    np.testing.assert_array_equal(calibrator.predict_set(rows.astype(np.float64)), expected)


def test_pixels_are_refused() -> None:
    """Those of an image are not exchangeable."""
    logits = np.random.default_rng(0).normal(size=(4, 3, 8, 8))
    with pytest.raises(InputError, match=r"logits: found shape \(4, 3, 8, 8\)"):
        recalib.fit(logits, logits.argmax(axis=1), "temperature", sets="lac")
