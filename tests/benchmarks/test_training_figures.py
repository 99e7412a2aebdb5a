"""Gradients in training, ensembles, class-wise losses, and errors within subjects."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks import classwise_losses
from benchmarks.training import figures
from benchmarks.training.claims import within_subject_error
from benchmarks.training.networks import Mlp
from recalib.losses import LOSSES


def _data() -> figures.Data:
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(3, 4, generator=generator)

    def rows(count: int) -> tuple[Tensor, Tensor]:
        labels = torch.arange(count) % 3
        return centres[labels] + torch.randn(count, 4, generator=generator), labels

    return {name: rows(count) for name, count in (("train", 600), ("validation", 90), ("test", 90))}


def test_gradient_norms_are_those_of_the_last_layer() -> None:
    """Row by row by autograd."""
    torch.manual_seed(0)
    network = Mlp(3, features=4, width=8).double().eval()
    inputs, labels = torch.randn(6, 4, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1, 2])
    features = network.hidden(inputs)
    loss = LOSSES["focal"](gamma=2.0)
    norms = figures.gradient_norms(loss, features.detach(), network.head(features), labels)
    for row in range(6):
        value = loss(network(inputs[row : row + 1]), labels[row : row + 1])
        (slopes,) = torch.autograd.grad(value, network.head.weight)
        assert float(norms[row]) == pytest.approx(float(slopes.norm()), rel=1e-10)


def test_slopes_in_the_label_are_finite_differences() -> None:
    """Dual focal loss at p_y = .3 with a rival of .5: as released, the rival does not count."""
    logits = torch.tensor([[0.3, 0.5, 0.2]], dtype=torch.float64).log()
    slopes = figures.slopes_in_label(logits, torch.tensor([0]))
    step = 1e-6
    for name, weight in (
        ("dual focal, γ = 5", lambda p: (1 - p + 0.5) ** 5),
        ("dual focal as released, γ = 5", lambda p: (1 - p) ** 5),
    ):
        values = [-weight(p) * np.log(p) for p in (0.3 - step, 0.3 + step)]
        difference = (values[1] - values[0]) / (2 * step)
        assert float(slopes[name][0]) == pytest.approx(difference, rel=1e-6)


def test_baselines_are_measured() -> None:
    """An ensemble is the mean of probabilities, and passes with dropout differ."""
    rows = {name: cells for name, *cells in figures.baselines(_data(), epochs=2)}
    assert len(rows) == 5
    assert all(len(cells) == 5 and float(cells[0]) > 40 for cells in rows.values())
    assert rows["dropout 0.2"] != rows["MC dropout 0.2, 30 passes"]
    passes = [torch.tensor([[0.0, 2.0]]), torch.tensor([[1.0, 0.0]])]
    expected = (passes[0].softmax(1) + passes[1].softmax(1)) / 2
    np.testing.assert_allclose(figures.mean_probabilities(passes), expected)


def test_focal_loss_is_least_at_a_less_certain_probability() -> None:
    """Cross-entropy at q itself; others by a grid over the formula of eq. 5."""
    grid = np.linspace(0, 1, 100_001)[1:-1]
    for q in (0.2, 0.5, 0.9):
        assert figures.optimal_probability(q, 0.0) == pytest.approx(q, abs=1e-6)
        for gamma in (1.0, 3.0):
            first = (1 - grid) ** gamma * q * np.log(grid)
            risks = -first - grid**gamma * (1 - q) * np.log(1 - grid)
            p = figures.optimal_probability(q, gamma)
            assert p == pytest.approx(grid[risks.argmin()], abs=1e-5)
            assert abs(p - 0.5) <= abs(q - 0.5) + 1e-6


def test_norms_of_features_are_listed_by_gamma() -> None:
    rows = figures.feature_norms(_data(), epochs=20)
    assert [row[0] for row in rows] == ["0", "1", "2", "3"]
    assert all(float(cell) > 0 for row in rows for cell in row[1:])
    assert len({row[1:] for row in rows}) == 4


def test_error_within_subjects() -> None:
    """By hand, and no effect of what is common to a subject: Masson and Loftus 2003, eq. 2."""
    values = np.array([[1.0, 2.0], [2.0, 5.0], [3.0, 5.0]])
    residuals = np.array([[0.5, -0.5], [-0.5, 0.5], [0.0, 0.0]])
    expected = np.sqrt((residuals**2).sum() / 2 / 3)
    assert within_subject_error(values) == pytest.approx(expected)
    shifted = values + np.array([[10.0], [-4.0], [0.3]])
    assert within_subject_error(shifted) == pytest.approx(expected)
    # With two conditions it is the error of the mean difference, divided by √2.
    gaps = values[:, 1] - values[:, 0]
    assert expected == pytest.approx(gaps.std(ddof=1) / np.sqrt(3) / np.sqrt(2))


def test_toy_trains_three_classes_and_finds_equal_totals() -> None:
    """Points A and B by hand; the losses of the three classes fall, and the layer starts at I."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 5, 500)
    logits = 3 * (rng.normal(size=(500, 5)) + 1.5 * np.eye(5)[labels])
    epochs = classwise_losses.toy(logits, labels, epochs=20)
    start = classwise_losses.state(0, torch.from_numpy(logits), torch.from_numpy(labels))
    assert epochs[0] == start
    assert start.total == pytest.approx(sum(start.losses))
    chosen = np.argsort(start.losses)[-3:]
    assert np.take(epochs[-1].losses, chosen).sum() < np.take(start.losses, chosen).sum()

    def points(*totals: float) -> list[float]:
        made = [classwise_losses.Epoch(i, (), total, 0.0, 0.0) for i, total in enumerate(totals)]
        return [epoch.total for epoch in classwise_losses.equal_totals(made)]

    assert points(3.0, 2.5, 2.0, 2.4, 2.9, 3.4) == [3.0, 2.9]
    assert points(4.0, 3.0, 2.0, 2.5, 3.1) == [3.0, 3.1]


def test_curves_of_objectives_start_at_the_logits() -> None:
    """After the likelihood's minimum, label smoothing has a larger total loss."""
    rng = np.random.default_rng(1)
    labels = torch.from_numpy(rng.integers(0, 4, 400))
    logits = torch.from_numpy(2.0 * (rng.normal(size=(400, 4)) + 2 * np.eye(4)[labels.numpy()]))
    likelihood, smooth = (
        classwise_losses.trained(name, logits, labels, shown=(60,))
        for name in ("cross-entropy", "label smoothing")
    )
    assert likelihood[0] == smooth[0] == classwise_losses.state(0, logits, labels)
    assert likelihood[-1].total < min(likelihood[0].total, smooth[-1].total)


def test_acls_of_the_ablations_has_the_gradient_of_the_released_loss() -> None:
    """Both halves of it: the smoothing function of eq. 10 under the condition of eq. 11."""
    logits = 6 * torch.randn(50, 5, dtype=torch.float64)
    slopes = figures.Smoothing("eq. 10", "margin").slopes(logits, logits.argmax(1), None)
    leaf = logits.clone().requires_grad_()
    LOSSES["acls"](variant="released", margin=6.0, reduction="sum")(
        leaf, logits.argmax(1)
    ).backward()
    torch.testing.assert_close(slopes, leaf.grad)
    always = figures.Smoothing("eq. 10", "always").slopes(logits, logits.argmax(1), None)
    assert torch.equal(always[slopes != 0], slopes[slopes != 0])
    assert (always[slopes == 0] != 0).any()


def test_smoothing_of_crl_is_the_slope_of_the_confidence() -> None:
    """Eq. 19: under a condition that holds, the slope of λ p of the predicted class."""
    leaf = torch.randn(20, 4, dtype=torch.float64).requires_grad_()
    leaf.softmax(1).amax(1).sum().backward()
    slopes = figures.Smoothing("eq. 20", "always").slopes(leaf.detach(), leaf.argmax(1), None)
    torch.testing.assert_close(slopes, leaf.grad)


def test_ranking_penalises_a_row_that_was_right_less_often_than_the_next() -> None:
    module = figures.Smoothing("eq. 20", "ranking", samples=3)
    module.history = torch.tensor([1.0, 3.0, 1.0])
    logits = torch.tensor([[2.0, 0.0], [1.0, 0.0], [3.0, 0.0]])
    slopes = module.slopes(logits, torch.tensor([0, 1, 0]), torch.tensor([0, 1, 2]))
    assert [bool(row.any()) for row in slopes] == [True, False, False]
    assert module.history.tolist() == [2.0, 3.0, 2.0]


def test_rows_of_the_ablations_are_measured() -> None:
    names = ["label smoothing", "CRL, ranking"]
    rows = figures.ablations(_data(), names, epochs=1)
    assert [row[0] for row in rows] == names
    assert all(len(row) == 6 and "±" in row[2] for row in rows)
