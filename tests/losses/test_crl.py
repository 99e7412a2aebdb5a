"""Correctness ranking: its formula, its history, and what a checkpoint keeps of it."""

from __future__ import annotations

import pytest
import torch

from recalib.errors import InputError
from recalib.losses import LOSSES
from tests.losses.definitions import top
from tests.losses.test_losses import batch


def test_value_is_the_mean_of_eq_18_over_pairs():
    logits, labels = batch()
    history = [i * 7 % 5 for i in range(len(labels))]
    loss = LOSSES["crl"](samples=100).eval()
    indices = torch.arange(len(labels)) + 40
    loss.history[indices] = torch.tensor(history, dtype=torch.int32)
    confidence = [c for c, _ in top(logits.tolist(), labels.tolist())]
    total = 0.0
    n = len(history)
    for i in range(n):
        for j in range(n):
            sign = (history[i] > history[j]) - (history[i] < history[j])
            total += max(0.0, -sign * (confidence[i] - confidence[j]))
    assert loss(logits, labels, indices=indices) == pytest.approx(total / (n * (n - 1)))


@pytest.mark.parametrize("epoch", [0, 1, 2, 7])
def test_released_form_ranks_neighbours_by_the_difference_of_their_counts(epoch):
    """As torch's MarginRankingLoss of rows and their successors, in float64."""
    logits, labels = batch()
    n, samples = len(labels), 60
    counts = [i * 7 % (epoch + 1) for i in range(samples)]
    loss = LOSSES["crl"](samples=samples, variant="released").eval()
    loss.history[:] = torch.tensor(counts, dtype=torch.int32)
    loss.start_epoch(epoch, 10)
    z = logits.requires_grad_()
    value = loss(z, labels, indices=torch.arange(n) + 20)
    lowest, most = min(counts), max(epoch, 1)
    normal = [(count - lowest) / (most - lowest) for count in counts[20 : 20 + n]]
    confidence = [c for c, _ in top(logits.tolist(), labels.tolist())]
    total, slopes = 0.0, [0.0] * n
    for i in range(n):
        j = (i + 1) % n
        sign = (normal[i] > normal[j]) - (normal[i] < normal[j])
        term = abs(normal[i] - normal[j]) - sign * (confidence[i] - confidence[j])
        if sign and term > 0:
            total += term
            slopes[i] -= sign / n
            slopes[j] += sign / n
    assert value.item() == pytest.approx(total / n, rel=1e-12)
    assert (epoch == 0) == (total == 0)
    (actual,) = torch.autograd.grad(value, z)
    (expected,) = torch.autograd.grad(z.softmax(1).amax(1) @ torch.tensor(slopes).double(), z)
    torch.testing.assert_close(actual, expected)


def test_released_form_has_no_division_by_zero():
    """The released code has 0/0 where all samples were right in every epoch."""
    logits, labels = batch(8)
    loss = LOSSES["crl"](samples=8, variant="released").eval()
    loss.history[:] = 3
    loss.start_epoch(3, 10)
    assert loss(logits, labels, indices=torch.arange(8)) == 0


def test_pair_gradient_matches_the_definition():
    """Paper 001, S1.5, eq. 19: λ p(1 − p) at ŷ, −λ p_ŷ p_j elsewhere, the other row's reversed."""
    logits = torch.tensor([[2.0, 0.0, 1.0], [0.5, 1.0, 0.0]], dtype=torch.float64)
    logits.requires_grad_()
    loss = LOSSES["crl"]().eval()
    loss.history = torch.tensor([0, 3], dtype=torch.int32)  # the surer row was right less often
    loss(logits, torch.tensor([0, 1]), indices=torch.arange(2)).backward()
    p = logits.detach().softmax(1)
    assert logits.grad is not None
    for row, place, sign in ((0, 0, 1.0), (1, 1, -1.0)):
        expected = -p[row, place] * p[row]
        expected[place] = p[row, place] * (1 - p[row, place])
        torch.testing.assert_close(logits.grad[row], sign * expected)


def test_history_counts_correct_training_predictions():
    logits = torch.tensor([[2.0, 0.0], [0.0, 2.0], [2.0, 0.0]])
    labels = torch.tensor([0, 1, 1])
    indices = torch.tensor([5, 0, 2])
    loss = LOSSES["crl"]()
    assert loss(logits, labels, indices=indices) == 0  # nothing is known in a first epoch
    loss(logits, labels, indices=indices)
    loss.eval()(logits, labels, indices=indices)
    assert loss.history.tolist() == [2, 0, 0, 0, 0, 2]


def test_checkpoint_keeps_the_history():
    logits, labels = batch(8)
    loss = LOSSES["crl"]()
    loss(logits, labels, indices=torch.arange(8) * 3)
    again = LOSSES["crl"]()
    again.load_state_dict(loss.state_dict())
    assert torch.equal(again.history, loss.history)
    nested = torch.nn.ModuleList([LOSSES["crl"]()])
    nested.load_state_dict(torch.nn.ModuleList([loss]).state_dict())
    assert torch.equal(nested[0].history, loss.history)


@pytest.mark.parametrize(
    "indices",
    [
        None,
        torch.arange(7),
        torch.arange(8).float(),
        torch.arange(8)[:, None],
        torch.arange(8) - 1,
        torch.arange(8) + 3,
    ],
)
def test_invalid_indices_are_refused_and_not_counted(indices):
    logits, labels = batch(8)
    loss = LOSSES["crl"](samples=10)
    with pytest.raises(InputError, match="indices"):
        loss(logits, labels, indices=indices)
    assert int(loss.history.sum()) == 0


def test_dense_predictions_have_no_history():
    with pytest.raises(InputError, match="history"):
        LOSSES["crl"]()(
            torch.zeros(2, 3, 4, 4), torch.zeros(2, 4, 4).long(), indices=torch.arange(2)
        )


def test_ignored_rows_do_not_count() -> None:
    """Neither in the value nor in the history."""
    logits = torch.tensor([[2.0, 0.0], [0.0, 1.0], [3.0, 0.0], [0.0, 2.0]])
    labels, indices = torch.tensor([0, 9, 0, 0]), torch.arange(4)
    counts = labels != 9
    ignoring, alone = LOSSES["crl"](samples=4, ignore_index=9), LOSSES["crl"](samples=4)
    for loss in (ignoring, alone):
        loss.history = torch.tensor([2, 0, 1, 1], dtype=torch.int32)
    value = ignoring(logits, labels, indices=indices)
    assert value == alone(logits[counts], labels[counts], indices=indices[counts])
    assert torch.equal(ignoring.history, torch.tensor([3, 0, 2, 1], dtype=torch.int32))
    assert ignoring(logits, torch.full((4,), 9), indices=indices) == 0
