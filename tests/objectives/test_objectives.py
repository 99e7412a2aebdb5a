"""Objectives: their formulas, limits, invariants and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sklearn.metrics
import torch
from numpy.typing import NDArray

from recalib.errors import InputError
from recalib.fitting.request import configure_pair
from recalib.metrics.evaluate import evaluate
from recalib.objectives import OBJECTIVES, Objective
from recalib.objectives.classwise_scaled_nll import ClasswiseScaledNll
from recalib.objectives.hard_binned_ece import HardBinnedEce
from recalib.ops import NumpyOps
from recalib.ops.torch_ops import TorchOps
from tests.fitting.conftest import draw
from tests.objectives import definitions

#: Each objective at its defaults, and with options that take other branches.
CASES: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in OBJECTIVES),
    *(
        ("sb_ece", {"variant": variant, "order": order, "bins": bins, "bin_temperature": width})
        for variant in ("binned", "label_binned")
        for order, bins, width in ((1.0, 15, 0.01), (2.0, 10, 0.003), (3.5, 20, 0.1))
    ),
    ("hb_ece", {"order": 2.0}),
    ("hb_ece", {"order": 3.5, "bins": 10}),
    *(
        ("classwise_scaled_nll", {"normalisation": normalisation, "ddof": ddof})
        for normalisation in ("nd", "mm", "cm")
        for ddof in (0, 1)
    ),
    ("classwise_scaled_nll", {"alpha": 0.3, "beta": 2.0}),
    ("label_smoothing", {"smoothing": 0.3}),
    ("focal", {"gamma": 0.5}),
]
SMOOTH = [(name, options) for name, options in CASES if OBJECTIVES[name].smooth]

Rows = tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]


def objective_of(name: str, **options: Any) -> Objective:
    return configure_pair(
        "ensemble_temperature" if name != "ece_grid" else "temperature", name, options
    )[1]


def value(objective: Objective, rows: Rows) -> float:
    logits, labels, weights = rows
    ops = NumpyOps()
    return float(objective.loss(ops, ops.log_softmax(logits), labels, weights / weights.mean()))


def gradient(objective: Objective, rows: Rows) -> NDArray[np.float64]:
    """By torch, with respect to the log p."""
    logits, labels, weights = rows
    ops = TorchOps()
    log_p = torch.tensor(NumpyOps().log_softmax(logits), requires_grad=True)
    unit = torch.tensor(weights / weights.mean())
    objective.loss(ops, log_p, torch.tensor(labels), unit).backward()
    return log_p.grad.numpy()


def by_definition(name: str, rows: Rows, **options: Any) -> float:
    logits, labels, weights = rows
    log_p = [definitions.log_softmax(row) for row in logits.tolist()]
    return definitions.DEFINITIONS[name](log_p, labels.tolist(), weights.tolist(), **options)


@pytest.fixture
def rows() -> Rows:
    """120 rows of 5 classes that are over-confident, and weights that differ."""
    logits, labels = draw(120, 5, 2.0)
    return logits, labels, np.random.default_rng(1).uniform(0.2, 2.0, 120)


@pytest.fixture
def masked(rows: Rows) -> Rows:
    """A third of the classes masked, never the label, and class 4 in no label."""
    logits, labels, weights = rows
    labels = labels % 4
    out = np.random.default_rng(2).random(logits.shape) < 0.3
    out[np.arange(len(labels)), labels] = False
    # In the first row only the label is unmasked: p = 1, and −log p = 0.
    out[0], out[0, labels[0]] = True, False
    return np.where(out, -np.inf, logits), labels, weights


def test_every_objective_has_a_definition() -> None:
    assert set(definitions.DEFINITIONS) == set(OBJECTIVES)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_matches_the_formula_row_by_row(name: str, options: dict[str, Any], rows: Rows) -> None:
    """Both sum 120 rows in float64: 1e-12 leaves room for the order of the sums alone."""
    expected = by_definition(name, rows, **options)
    assert value(objective_of(name, **options), rows) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_torch_matches_numpy(name: str, options: dict[str, Any], masked: Rows) -> None:
    logits, labels, weights = masked
    log_p, unit = NumpyOps().log_softmax(logits), weights / weights.mean()
    objective = objective_of(name, **options)
    result = objective.loss(
        TorchOps(), torch.tensor(log_p), torch.tensor(labels), torch.tensor(unit)
    )
    assert result.dtype == torch.float64
    assert result.item() == pytest.approx(value(objective, masked), rel=1e-12)


@pytest.mark.parametrize(("name", "options"), SMOOTH)
def test_gradients_match_finite_differences(name: str, options: dict[str, Any], rows: Rows) -> None:
    """Central, with h = 1e-6: they err by h² f''' / 6, for the narrowest bins about 1e-8, and by
    the rounding of f, 1e-16 / h."""
    logits, labels, weights = (row[:20] for row in rows)
    objective, ops, h = objective_of(name, **options), NumpyOps(), 1e-6
    log_p, unit = ops.log_softmax(logits), weights / weights.mean()
    slopes = np.empty_like(log_p)
    for at in np.ndindex(log_p.shape):
        ends = []
        for sign in (1, -1):
            moved = log_p.copy()
            moved[at] += sign * h
            ends.append(float(objective.loss(ops, moved, labels, unit)))
        slopes[at] = (ends[0] - ends[1]) / (2 * h)
    result = gradient(objective, (logits, labels, weights))
    assert np.abs(slopes).max() > 1e-3
    np.testing.assert_allclose(result, slopes, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_row_and_class_order_do_not_change_the_value(
    name: str, options: dict[str, Any], rows: Rows
) -> None:
    logits, labels, weights = rows
    rng = np.random.default_rng(3)
    by_row, by_class = rng.permutation(len(labels)), rng.permutation(logits.shape[1])
    shuffled = (
        logits[by_row][:, by_class],
        np.argsort(by_class)[labels[by_row]],
        weights[by_row],
    )
    objective = objective_of(name, **options)
    assert value(objective, shuffled) == pytest.approx(value(objective, rows), rel=1e-12)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_duplicated_rows_do_not_change_the_value(
    name: str, options: dict[str, Any], rows: Rows
) -> None:
    twice = tuple(np.concatenate([row, row]) for row in rows)
    objective = objective_of(name, **options)
    assert value(objective, twice) == pytest.approx(value(objective, rows), rel=1e-12)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_weight_two_equals_a_duplicate_row(name: str, options: dict[str, Any], rows: Rows) -> None:
    logits, labels, _ = rows
    weights = np.where(np.arange(len(labels)) % 3 == 0, 2.0, 1.0)
    copies = np.repeat(np.arange(len(labels)), weights.astype(np.int64))
    once = (logits, labels, weights)
    twice = (logits[copies], labels[copies], np.ones(len(copies)))
    objective = objective_of(name, **options)
    assert value(objective, once) == pytest.approx(value(objective, twice), rel=1e-12)
    assert value(objective, once) != pytest.approx(value(objective, rows), rel=1e-6)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_masked_and_absent_classes_match_the_definition(
    name: str, options: dict[str, Any], masked: Rows
) -> None:
    expected = by_definition(name, _without(masked, 0), **options)
    result = value(objective_of(name, **options), _without(masked, 0))
    assert result == pytest.approx(expected, rel=1e-12)
    assert np.isfinite(value(objective_of(name, **options), masked))
    if OBJECTIVES[name].smooth:
        assert np.isfinite(gradient(objective_of(name, **options), masked)).all()


def _without(rows: Rows, row: int) -> Rows:
    """Remove the row with a single unmasked class, for which loops divide by 0."""
    return tuple(np.delete(item, row, axis=0) for item in rows)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_extreme_logits_give_finite_values_and_gradients(
    name: str, options: dict[str, Any], rows: Rows
) -> None:
    objective = objective_of(name, **options)
    for scale in (0.0, 1e-8, 100.0, 4e3, 1e30):
        extreme = (rows[0] * scale, *rows[1:])
        assert np.isfinite(value(objective, extreme)), scale
        if OBJECTIVES[name].smooth:
            assert np.isfinite(gradient(objective, extreme)).all(), scale


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        # p = 1 / (1 + e^-4000) and its complement. The wrong row has −log p = 4000, to the digit.
        ("nll", 0.0, 4000.0),
        ("focal", 0.0, 4000.0),
        ("brier", 0.0, 2.0),
        # α of the label is on the class whose −log p is 4000, or 1 − α is.
        ("label_smoothing", 0.05 * 4000, 0.95 * 4000),
        ("sb_ece", 0.0, 1.0),
        ("hb_ece", 0.0, 1.0),
        ("classwise_scaled_nll", 0.0, 4000.0),
    ],
)
def test_values_at_certainty(name: str, right: float, wrong: float) -> None:
    """By hand; the soft-binned error is the root of a sum to which 1e-18 was added."""
    logits = np.array([[4000.0, 0.0]])
    for label, expected in ((0, right), (1, wrong)):
        result = value(objective_of(name), (logits, np.array([label]), np.ones(1)))
        assert result == pytest.approx(expected, rel=1e-12, abs=1e-8)


def test_nll_and_brier_equal_scikit_learn(rows: Rows) -> None:
    logits, labels, weights = rows
    p, classes = NumpyOps().softmax(logits), range(5)
    nll = sklearn.metrics.log_loss(labels, p, sample_weight=weights, labels=classes)
    brier = sklearn.metrics.brier_score_loss(
        labels, p, sample_weight=weights, labels=classes, scale_by_half=False
    )
    assert value(objective_of("nll"), rows) == pytest.approx(nll, rel=1e-12)
    assert value(objective_of("brier"), rows) == pytest.approx(brier, rel=1e-12)


@pytest.mark.parametrize("bins", [5, 15, 40])
def test_hard_binned_error_equals_the_metric(bins: int, rows: Rows) -> None:
    logits, labels, _ = rows
    result = value(objective_of("hb_ece", bins=bins), (logits, labels, np.ones(len(labels))))
    metric = evaluate(labels, probabilities=NumpyOps().softmax(logits), bins=bins)["ece"]
    assert result == pytest.approx(metric.value, rel=1e-12)


@pytest.mark.parametrize("bins", [10, 15])
@pytest.mark.parametrize("order", [1.0, 2.0])
def test_hard_bins_are_closed_on_the_right(order: float, bins: int) -> None:
    """Confidences on every edge, and slightly above it, in the next bin."""
    edges = np.arange(bins + 1) / bins
    confidence = np.concatenate([edges, edges[:-1] + 1e-6])
    correct = (np.arange(len(confidence)) % 2).astype(np.float64)
    members = [definitions.hard(value, bins) for value in confidence]
    weights = np.ones(len(confidence))
    pairs = list(zip(confidence, correct, strict=True))
    expected = definitions.binned(pairs, members, weights.tolist(), order, "binned")
    objective = HardBinnedEce(bins, order)
    result = objective.loss_of_confidences(NumpyOps(), confidence, correct, weights)
    assert result == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("order", [1.0, 2.0, 3.0])
def test_narrow_soft_bins_equal_hard_bins(order: float, rows: Rows) -> None:
    """At 1e-8 a membership is 0 or 1 to the last digit, but for a confidence within
    1e-8 · 36 · M/2 of a bin's edge; none of these is."""
    options = {"bins": 15, "order": order}
    narrow = {**options, "bin_temperature": 1e-8}
    hard = value(objective_of("hb_ece", **options), rows)
    assert value(objective_of("sb_ece", **narrow), rows) == pytest.approx(hard, rel=1e-9)
    logits, labels, weights = rows
    log_p = [definitions.log_softmax(row) for row in logits.tolist()]
    label_binned = definitions.label_binned_ece(log_p, labels.tolist(), weights.tolist(), **options)
    result = value(objective_of("sb_ece", **narrow, variant="label_binned"), rows)
    assert result == pytest.approx(label_binned, rel=1e-9)


@pytest.mark.parametrize("order", [1.0, 2.0, 4.0])
@pytest.mark.parametrize("width", [1e-4, 0.003, 0.1, 10.0])
def test_label_binned_error_is_at_least_the_binned_error(
    width: float, order: float, rows: Rows
) -> None:
    """Jensen's inequality, paper 000 after eq. 7."""
    options = {"bin_temperature": width, "order": order}
    binned = value(objective_of("sb_ece", **options), rows)
    label_binned = value(objective_of("sb_ece", **options, variant="label_binned"), rows)
    assert label_binned > binned


def test_zero_gamma_and_zero_smoothing_equal_nll(masked: Rows) -> None:
    nll = value(objective_of("nll"), masked)
    assert value(objective_of("focal", gamma=0.0), masked) == pytest.approx(nll, rel=1e-12)
    unsmoothed = objective_of("label_smoothing", smoothing=0.0)
    assert value(unsmoothed, masked) == pytest.approx(nll, rel=1e-12)


def test_smoothing_of_one_is_rejected() -> None:
    with pytest.raises(InputError, match=r"options\.smoothing: found 1"):
        objective_of("label_smoothing", smoothing=1.0)


class TestClasswiseScaling:
    """Class-wise loss scaling, paper 003."""

    @pytest.mark.parametrize("normalisation", ["nd", "mm", "cm"])
    @pytest.mark.parametrize("ddof", [0, 1])
    def test_matches_the_formula_of_the_paper(
        self, normalisation: str, ddof: int, rows: Rows
    ) -> None:
        """Ours adds a hundredth of the mean loss to deviations, so that equal losses scale
        nothing. Where losses range over their own mean, that is a hundredth of w at most."""
        logits, labels, weights = rows
        logits = logits - np.eye(5)[labels] * labels[:, None] * 0.7
        options = {"normalisation": normalisation, "ddof": ddof, "alpha": 0.8, "beta": 1.7}
        result = value(objective_of("classwise_scaled_nll", **options), (logits, labels, weights))
        printed = by_definition(
            "classwise_scaled_nll", (logits, labels, weights), kink=0, **options
        )
        assert result == pytest.approx(printed, rel=0.01)

    def test_single_class_equals_nll(self, rows: Rows) -> None:
        logits, labels, weights = rows
        single = (logits, np.zeros_like(labels), weights)
        nll = value(objective_of("nll"), single)
        assert value(objective_of("classwise_scaled_nll"), single) == pytest.approx(nll, rel=1e-12)

    @pytest.mark.parametrize("normalisation", ["nd", "cm"])
    def test_equal_losses_give_equal_scales(self, normalisation: str, rows: Rows) -> None:
        logits, labels = rows[0], np.arange(120) % 5
        rolled = np.stack([np.roll(logits[i // 5], i % 5) for i in range(120)])
        equal = (rolled, labels, np.ones(120))
        result = value(objective_of("classwise_scaled_nll", normalisation=normalisation), equal)
        assert result == pytest.approx(value(objective_of("nll"), equal), rel=1e-9)

    @pytest.mark.parametrize("step", [0.01, pytest.param(0.3, marks=pytest.mark.slow)])
    @pytest.mark.parametrize("normalisation", ["nd", "mm", "cm"])
    def test_chosen_parameters_minimise_equation_6(self, normalisation: str, step: float) -> None:
        """Against a grid of 60 x 3 over the box [0.1, ln(K)/2] x [1.5, 2], for 40 draws of losses.

        Three values of beta do: for a given alpha eq. 6 squared is a parabola in it, and what
        lies between them can only be lower for what was found.
        """
        rng = np.random.default_rng(0)
        for _ in range(40):
            classes = int(rng.integers(2, 12))
            before = rng.gamma(2, size=classes)
            after = before * np.exp(rng.normal(size=classes) * step)
            settled = settled_on(before, after, normalisation=normalisation)
            highest = max(np.log(classes) / 2, 0.1)
            assert 0.1 <= settled.alpha <= highest
            assert 1.5 <= settled.beta <= 2

            def at(alpha: float, beta: float) -> float:
                scales = definitions.scale(after.tolist(), alpha, beta, normalisation, kink=1e-2)  # noqa: B023
                return definitions.spread(before, after, scales)  # noqa: B023

            alphas = np.linspace(0.1, highest, 60)
            least = min(at(alpha, beta) for alpha in alphas for beta in (1.5, 1.75, 2))
            assert at(settled.alpha, settled.beta) <= least * (1 + 1e-9)

    def test_given_parameters_are_kept(self) -> None:
        """The other parameter is optimal given the fixed one."""
        before, after = np.array([1.0, 2.0, 3.0]), np.array([0.9, 2.2, 2.0])
        pair = settled_on(before, after, alpha=5.0, beta=0.5)
        assert (pair.alpha, pair.beta) == (5.0, 0.5)
        for alpha in (0.05, 0.5, 5.0):
            settled = settled_on(before, after, alpha=alpha)
            values = {
                beta: definitions.spread(
                    before, after, definitions.scale(after.tolist(), alpha, beta, kink=1e-2)
                )
                for beta in (*np.linspace(1.5, 2, 100), settled.beta)
            }
            assert settled.alpha == alpha
            assert values[settled.beta] <= min(values.values()) * (1 + 1e-9)


def settled_on(
    before: NDArray[np.float64], after: NDArray[np.float64], **options: Any
) -> ClasswiseScaledNll:
    """Choose parameters from one row per class with that class's loss."""
    objective = objective_of("classwise_scaled_nll", **options)
    log_p = [np.full((len(value), len(value)), -9.0) for value in (before, after)]
    for matrix, losses in zip(log_p, (before, after), strict=True):
        np.fill_diagonal(matrix, -losses)
    rows = np.arange(len(before)), np.ones(len(before))
    sums = (objective.sums(NumpyOps(), matrix, *rows) for matrix in log_p)
    settled = objective.settled_by_sums(NumpyOps(), *sums)
    assert isinstance(settled, ClasswiseScaledNll)
    return settled
