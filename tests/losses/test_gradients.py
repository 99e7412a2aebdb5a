"""Gradients as the papers state them, under the stop-gradients that they need."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.training.overhead import saved_bytes
from recalib.losses import LOSSES
from recalib.losses.base import possible_classes, predict
from recalib.losses.focal import gamma_for
from tests.losses.definitions import g
from tests.losses.test_losses import batch


def gradient(name: str, logits: Tensor, labels: Tensor, **options: object) -> Tensor:
    """The slope in each row's logits, times N: what a row alone would have."""
    z = logits.clone().requires_grad_()
    LOSSES[name](**options)(z, labels).backward()
    assert z.grad is not None
    return z.grad * len(labels)


def one_hot(logits: Tensor, labels: Tensor) -> Tensor:
    return functional.one_hot(labels, logits.shape[1]).double()


def close(actual: Tensor, expected: Tensor) -> None:
    np.testing.assert_allclose(actual.numpy(), expected.numpy(), rtol=1e-9, atol=1e-12)


def test_cross_entropy_is_p_minus_q():
    """Paper 001, eq. 3."""
    logits, labels = batch()
    close(gradient("cross_entropy", logits, labels), logits.softmax(1) - one_hot(logits, labels))


def test_label_smoothing_gradient_is_p_minus_smoothed_target():
    """Paper 001, eqs. 4 and 5, for ε = α K/(K−1): α of the label, spread over the others."""
    logits, labels = batch()
    k = logits.shape[1]
    q = one_hot(logits, labels)
    epsilon = 0.1 * k / (k - 1)
    target = q * (1 - epsilon) + epsilon / k
    close(gradient("label_smoothing", logits, labels, smoothing=0.1), logits.softmax(1) - target)


@pytest.mark.parametrize("gamma", [0.5, 1.0, 2.0, 3.0, 7.0])
def test_focal_is_cross_entropy_times_g(gamma):
    """Paper 004, proposition 1."""
    logits, labels = batch()
    p = logits.softmax(1)
    factor = torch.tensor([g(float(p[i, y]), gamma) for i, y in enumerate(labels)])
    expected = factor[:, None].double() * (p - one_hot(logits, labels))
    np.testing.assert_allclose(
        gradient("focal", logits, labels, gamma=gamma), expected, rtol=1e-6, atol=1e-9
    )


def test_sample_dependent_focal_has_the_g_of_its_row():
    """γ is 5 for p in [0, .2), 3 for [.2, 1], and no gradient runs through the choice."""
    logits, labels = batch(200)
    p = logits.softmax(1)
    values = [float(p[i, y]) for i, y in enumerate(labels)]
    assert min(values) < 0.2 < max(values)
    factor = torch.tensor([g(value, 5.0 if value < 0.2 else 3.0) for value in values]).double()
    expected = factor[:, None] * (p - one_hot(logits, labels))
    np.testing.assert_allclose(
        gradient("focal_sample_dependent", logits, labels), expected, rtol=1e-5, atol=1e-8
    )


def test_probability_at_the_end_of_an_interval_has_the_next_exponent():
    logits, labels = torch.zeros(1, 4).double(), torch.zeros(1, dtype=torch.int64)
    p = float(logits.log_softmax(1).exp()[0, 0])
    loss = LOSSES["focal_sample_dependent"](gamma=(5.0, 3.0), until=(p,))
    assert float(loss(logits, labels)) == pytest.approx(-((1 - p) ** 3) * math.log(p))


def test_gamma_matches_proposition_2():
    """g(p0, γ*) = 1, larger below p0 and smaller above; 4.85 at .2 and 3.07 at .25."""
    assert gamma_for(0.2) == pytest.approx(4.85, abs=0.005)
    assert gamma_for(0.25) == pytest.approx(3.07, abs=0.005)
    for p0 in (0.01, 0.1, 0.2, 0.25, 0.4, 0.49):
        gamma = gamma_for(p0)
        assert g(p0, gamma) == pytest.approx(1, abs=1e-9)
        assert g(p0 / 2, gamma) > 1 > g((1 + p0) / 2, gamma)


def test_gammas_can_be_computed_from_p0():
    logits, labels = batch(100)
    with_gamma = LOSSES["focal_sample_dependent"](gamma=(gamma_for(0.2), gamma_for(0.25)))
    with_p0 = LOSSES["focal_sample_dependent"](p0=(0.2, 0.25))
    assert with_p0(logits, labels) == with_gamma(logits, labels)


def test_scheduled_focal_decreases_at_the_epochs_of_the_paper():
    """Of 350 epochs: 5 for the first 100, 3 for the next 150, 2 for the last 100."""
    logits, labels = batch()
    loss = LOSSES["focal_scheduled"]()
    for epoch, gamma in ((0, 5), (99, 5), (100, 3), (249, 3), (250, 2), (349, 2)):
        loss.start_epoch(epoch, 350)
        assert loss(logits, labels) == LOSSES["focal"](gamma=float(gamma))(logits, labels)


def test_inverse_focal_gradient_changes_sign_above_gamma_3_6():
    """Its slope in p_y is positive somewhere for γ = 3.7, and nowhere for 3.5: paper 002, C.2."""
    p = torch.linspace(0.001, 0.999, 999, dtype=torch.float64)
    slopes = {}
    for gamma in (3.5, 3.7):
        z = torch.stack([p.log(), (1 - p).log()], dim=1).requires_grad_()
        loss = LOSSES["inverse_focal"](gamma=gamma)(z, torch.zeros(len(p), dtype=torch.int64))
        loss.backward()
        assert z.grad is not None
        slopes[gamma] = float(z.grad[:, 0].max())
    assert slopes[3.5] < 0 < slopes[3.7]


def test_acls_has_the_gradient_of_eq_12():
    """In its `gradient` variant; that of eq. 13 as written is another."""
    logits, labels = batch(scale=8)
    margin = 3.0
    options = {"margin": margin, "lambda1": 0.1, "lambda2": 0.01}
    largest, place = logits.max(dim=1, keepdim=True)
    expected = -0.01 * (largest - logits - margin).relu()
    smallest = logits.amin(dim=1, keepdim=True)
    expected = expected.scatter(1, place, 0.1 * (largest - smallest - margin).relu())
    close(gradient("acls", logits, labels, variant="gradient", **options), expected)
    assert not torch.allclose(gradient("acls", logits, labels, **options), expected)


def test_omitted_factors_of_acls_shrink_with_the_classes():
    """The released form has the paper's; an impossible class does not count."""
    for classes, lambda1 in ((10, 0.1), (200, 1 / 199)):
        logits = torch.linspace(0.0, 20.0, classes, dtype=torch.float64)[None]
        labels, rest = torch.tensor([0]), {"lambda2": 0.01 / (classes - 1)}
        for variant, given in (("loss", lambda1), ("gradient", lambda1)):
            close(
                LOSSES["acls"](variant=variant)(logits, labels),
                LOSSES["acls"](variant=variant, lambda1=given, **rest)(logits, labels),
            )
        released = {"lambda1": 0.1, "lambda2": 0.01, "variant": "released"}
        close(
            LOSSES["acls"](variant="released")(logits, labels),
            LOSSES["acls"](**released)(logits, labels),
        )
        masked = torch.cat([logits, torch.full((1, 300), -torch.inf, dtype=torch.float64)], dim=1)
        close(LOSSES["acls"]()(masked, labels), LOSSES["acls"]()(logits, labels))


def test_acls_variants_differ_as_stated():
    logits, labels = batch(scale=8)
    loss = LOSSES["acls"]
    full = loss(margin=3.0, lambda2=0.01 / 4)(logits, labels)
    assert loss(margin=3.0)(logits, labels) == pytest.approx(float(full))
    assert loss(margin=3.0, variant="gradient")(logits, labels) == pytest.approx(float(full / 2))
    released = loss(margin=3.0, variant="released")(logits, labels)
    largest, place = logits.max(dim=1, keepdim=True)
    other_squares = (largest - logits - 3).relu().square().scatter(1, place, 0).sum(1) / 4
    expected = (0.1 * (largest[:, 0] - 3).relu().square() + 0.01 * other_squares).mean()
    assert released == pytest.approx(float(expected))
    # The largest logit is held in the second term.
    slopes = -2 * 0.01 / 4 * (largest - logits - 3).relu()
    slopes = slopes.scatter(1, place, 0.2 * (largest - 3).relu())
    close(gradient("acls", logits, labels, margin=3.0, variant="released"), slopes)


def test_mbls_has_the_gradient_of_eq_15():
    """−1 for each logit beyond the margin, and 0 for the largest, once that is held constant."""
    logits, labels = batch(scale=8)
    beyond = (logits.amax(dim=1, keepdim=True) - logits >= 4).double()
    close(gradient("mbls", logits, labels, margin=4.0, variant="gradient"), -beyond)
    place = logits.argmax(dim=1, keepdim=True)
    written = (-beyond).scatter(1, place, beyond.sum(dim=1, keepdim=True))
    close(gradient("mbls", logits, labels, margin=4.0), written)


def test_mdca_has_the_gradient_of_eq_10():
    """Per row λ p_j (a_j − Σ a_k p_k) / N, a being the signs of the batch's differences."""
    logits, labels = batch()
    p = logits.softmax(1)
    signs = torch.sign(p.mean(0) - one_hot(logits, labels).mean(0))
    close(gradient("mdca", logits, labels), p * (signs - (p @ signs)[:, None]))


def test_mdca_gradient_approximates_table_2():
    """λ p(1 − p) for ŷ and −λ p_j (1 + p_ŷ) elsewhere, up to twice Σ_{k≠ŷ} p_k."""
    logits = torch.tensor([[9.0, 0.0, 1.0, 0.5]] * 6, dtype=torch.float64)
    labels = torch.tensor([0, 1, 2, 3, 1, 2])  # overconfident in class 0, under in all others
    p = logits.softmax(1)
    actual = gradient("mdca", logits, labels)
    rest = float(1 - p[0, 0])
    expected = -p * (1 + p[:, :1])
    expected[:, 0] = p[:, 0] * (1 - p[:, 0])
    assert bool(((actual - expected).abs() <= 2 * rest * p).all())


def test_cpc_has_the_gradients_of_eqs_5_and_6():
    logits, labels = batch()
    p = logits.softmax(1)
    for i, y in enumerate(labels.tolist()):
        row = p[i].tolist()
        for options, of_label, of_other in (
            (
                {"lambda1": 1.0, "lambda2": 0.0},
                -math.fsum(q / (row[y] + q) for k, q in enumerate(row) if k != y),
                lambda j, row=row, y=y: row[j] / (row[y] + row[j]),
            ),
            (
                {"lambda1": 0.0, "lambda2": 1.0},
                0.0,
                lambda j, row=row, y=y: (
                    2 * math.fsum((row[j] - q) / (row[j] + q) for k, q in enumerate(row) if k != y)
                ),
            ),
        ):
            actual = gradient("cpc", logits[i : i + 1], labels[i : i + 1], **options)[0]
            expected = [of_label if j == y else of_other(j) for j in range(len(row))]
            np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-12)


def test_cpc_of_parts_keeps_no_array_of_all_pairs(monkeypatch):
    logits = torch.randn(5, 40, dtype=torch.float64, requires_grad=True)
    labels, sizes, results = torch.arange(5), [], []
    for elements in (4_000_000, 300):
        monkeypatch.setattr("recalib.losses.cpc._MAX_ELEMENTS", elements)
        with torch.autograd.graph.saved_tensors_hooks(
            lambda saved: sizes.append(saved.numel()) or saved, lambda saved: saved
        ):
            value = LOSSES["cpc"]()(logits, labels)
        results.append((value.item(), *torch.autograd.grad(value, logits)))
    assert max(sizes) == logits.numel()
    assert results[0][0] == pytest.approx(results[1][0], rel=1e-12)
    torch.testing.assert_close(results[0][1], results[1][1], rtol=1e-12, atol=1e-14)
    torch.autograd.gradgradcheck(lambda z: LOSSES["cpc"]()(z, labels[:2]), logits[:2, :4])


@pytest.mark.parametrize("name", ["sb_ece", "s_avuc"])
def test_parts_of_rows_give_the_same_and_keep_little(name, monkeypatch):
    """Of pixels, less than twice the memory of cross-entropy is kept for the gradient."""
    logits = (3 * torch.randn(1, 21, 64, 64)).requires_grad_()
    labels = torch.randint(21, (1, 64, 64))
    results = []
    for rows in (16384, 1000):
        monkeypatch.setattr("recalib.losses.base._ROWS", rows)
        value = LOSSES[name]()(logits, labels)
        results.append((value, *torch.autograd.grad(value, logits)))
    for whole, parts in zip(*results, strict=True):
        torch.testing.assert_close(parts, whole, rtol=1e-5, atol=1e-6 * whole.abs().max().item())
    kept, least = (
        saved_bytes(lambda loss=loss: loss(logits, labels))
        for loss in (LOSSES[name](), torch.nn.functional.cross_entropy)
    )
    assert kept < 2 * least


@pytest.mark.parametrize("axis", [0, 1])
def test_predictions_of_both_layouts_are_the_first_largest_logits(axis):
    """Rows of pixels lie class by class, others row by row; with ties and impossible classes."""
    logits = torch.randint(3, (200, 5)).double()
    logits[logits == 0] = -torch.inf
    logits[:, 2] = 0.5
    logits = logits if axis else logits.T.contiguous().T
    top, prediction = predict(logits)
    assert torch.equal(top, logits.amax(dim=1))
    assert prediction.tolist() == [row.index(max(row)) for row in logits.tolist()]
    assert torch.equal(possible_classes(logits), logits.isfinite().sum(dim=1).double())


@pytest.mark.parametrize("name", ["sb_ece", "s_avuc", "mmce"])
def test_gradients_of_pixels_are_those_of_finite_differences(name):
    """Two images, with an impossible class, and a pixel that has one possible class."""
    torch.manual_seed(1)
    logits = 2 * torch.randn(2, 4, 3, 2, dtype=torch.float64)
    labels = torch.randint(3, (2, 3, 2))
    logits[0, 3], logits[1, :, 0, 0], labels[1, 0, 0] = -torch.inf, -torch.inf, 1
    logits[1, 1, 0, 0] = 1.0
    moved = logits.isfinite()
    loss = LOSSES[name]()

    def value(free: Tensor) -> Tensor:
        return loss(logits.masked_scatter(moved, free), labels)

    free = logits[moved].requires_grad_()
    assert torch.autograd.gradcheck(value, free)
    if name == "mmce":
        assert torch.autograd.gradgradcheck(value, free)


def test_avuc_gs_stops_the_gradient_of_confidence():
    """The gradient is that of the terms with c held: appendix F of paper 000."""
    logits, labels = batch()
    assert LOSSES["avuc_gs"]()(logits, labels) == LOSSES["avuc"]()(logits, labels)
    z = logits.clone().requires_grad_()
    log_p = z.log_softmax(1)
    h = -(log_p.exp() * log_p).sum(1)
    c = logits.softmax(1).amax(1)
    right = logits.argmax(1) == labels
    certain = h.detach() <= 0.5 * math.log(5)
    n = {
        "AU": (c * h.tanh())[right & ~certain].sum(),
        "IC": ((1 - c) * (1 - h.tanh()))[~right & certain].sum(),
        "AC": (c * (1 - h.tanh()))[right & certain].sum(),
        "IU": ((1 - c) * h.tanh())[~right & ~certain].sum(),
    }
    (1 + (n["AU"] + n["IC"]) / (n["AC"] + n["IU"])).log().backward()
    assert z.grad is not None
    np.testing.assert_allclose(
        gradient("avuc_gs", logits, labels) / len(labels), z.grad, rtol=1e-6, atol=1e-9
    )
    assert not torch.allclose(
        gradient("avuc", logits, labels), gradient("avuc_gs", logits, labels), rtol=1e-2
    )


def test_only_avuc_rewards_confidence_in_errors():
    """A wrong and certain row, surer still: what paper 000 holds against avuc, section 4.2."""
    logits = torch.tensor([[6.0, 0.0, 0.0], [0.3, 0.0, 0.1]], dtype=torch.float64)
    labels = torch.tensor([1, 0])
    slopes = {name: gradient(name, logits, labels)[0, 0] for name in ("avuc", "avuc_gs", "s_avuc")}
    assert slopes["avuc"] < slopes["avuc_gs"]
    assert slopes["avuc_gs"] > 0
    assert slopes["s_avuc"] > 0


@pytest.mark.parametrize("kind", ["msp", "margin", "negative_entropy"])
def test_selective_risk_has_the_gradient_of_eq_27(kind):
    """∇β ℓ + β ∇ℓ with ∇β = ∇G/(1 − G) under a threshold that is held, and 0 above it."""
    logits, labels = batch()
    coverage, nu, bins = 0.6, 0.1, 15
    low, high = (-math.log(5), 0.0) if kind == "negative_entropy" else (0.0, 1.0)
    z = logits.clone().requires_grad_()
    p = z.softmax(1)
    first, second = p.topk(2, dim=1).values.unbind(dim=1)
    scores = {
        "msp": first, "margin": first - second, "negative_entropy": (p * p.log()).sum(1)
    }  # fmt: skip
    score = scores[kind]
    losses = functional.cross_entropy(z, labels, reduction="none")
    values = score.detach().numpy()
    counts = torch.tensor(np.histogram(values, bins, (low, high))[0])
    edges = torch.linspace(low, high, bins + 1, dtype=torch.float64)
    centres = (edges[1:] + edges[:-1]) / 2
    threshold = np.sort(values)[int(coverage * len(values))]

    def distribution(at: Tensor) -> Tensor:
        return (counts * torch.sigmoid((at[:, None] - centres) / nu)).sum(1) / len(values)

    below = values < threshold
    cdf = distribution(torch.where(torch.tensor(below), score, float(threshold)).detach())
    sigma = torch.sigmoid((score.detach()[:, None] - centres) / nu)
    slope = (counts * sigma * (1 - sigma)).sum(1) / (nu * len(values))  # dG/dg
    weight_slope = torch.where(torch.tensor(below), slope / (1 - cdf), 0.0)
    # ∇β ℓ + β ∇ℓ, the score's and the loss's own gradients by autograd.
    (weight_slope * losses.detach() * score - (1 - cdf).log() * losses).sum().backward()
    assert z.grad is not None
    close(
        gradient(
            "selective_risk", logits, labels, coverage=coverage, nu=nu, bins=bins, confidence=kind
        ),
        z.grad,
    )


def test_mmce_has_a_finite_gradient_without_errors():
    """All right, with confidence 1 up to rounding: the root of nothing has a finite gradient."""
    for scale in (20.0, 40.0, 80.0, 1e4):
        logits = (torch.eye(6) * scale).requires_grad_()
        value = LOSSES["mmce"]()(logits, torch.arange(6))
        value.backward()
        assert value >= 0
        assert logits.grad is not None
        assert bool(logits.grad.isfinite().all())
        assert float(logits.grad.abs().max()) < 1e-3


@pytest.mark.parametrize("off", [0, 1, 4])
def test_sb_ece_of_equal_confidences_is_a_number(off):
    """As of a network whose last layer is 0; accuracy is close to all confidences."""
    logits = torch.zeros(1, 2, 130, 130, requires_grad=True)
    labels = torch.arange(130 * 130).reshape(1, 130, 130) % 2
    labels.view(-1)[: 2 * off : 2] = 1
    loss = LOSSES["sb_ece"]()(logits, labels)
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(logits.grad).all()


#: The gradient of the others is not the slope of their value: they stop it in places.
_WITH_SLOPES = [name for name in LOSSES if name not in ("selective_risk", "avuc_gs")]


@pytest.mark.parametrize("name", _WITH_SLOPES)
@pytest.mark.filterwarnings(
    "ignore:`torch.jit.script` is deprecated:DeprecationWarning"
)  # of torch
def test_second_derivatives_are_differences_of_the_gradient(name):
    """By `torch.func`, forward mode, and backward twice; also with an impossible class."""
    torch.manual_seed(3)
    logits, labels = torch.randn(6, 4, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 0, 1])
    possible, loss, arguments = torch.arange(24).reshape(6, 4) < 23, LOSSES[name](), {}
    if name == "crl":
        loss, arguments = LOSSES["crl"](samples=6).eval(), {"indices": torch.arange(6)}

    def value(free: Tensor) -> Tensor:
        return loss(torch.where(possible, free, -torch.inf), labels, **arguments)

    def slopes(free: Tensor) -> Tensor:
        return torch.autograd.grad(value(free.requires_grad_()), free)[0].flatten()

    steps = 1e-6 * torch.eye(24).double().reshape(24, 6, 4)
    rows = [(slopes(logits + step) - slopes(logits - step)) / 2e-6 for step in steps]
    expected = torch.stack(rows).reshape(6, 4, 6, 4)
    for actual in (
        torch.func.hessian(value)(logits),
        torch.autograd.functional.hessian(value, logits),
    ):
        torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-8)
    tangent = torch.randn_like(logits)
    expected_change = slopes(logits.clone()) @ tangent.flatten()
    _, change = torch.func.jvp(value, (logits,), (tangent,))
    torch.testing.assert_close(change, expected_change)
    with torch.autograd.forward_ad.dual_level():
        dual = value(torch.autograd.forward_ad.make_dual(logits, tangent))
        change = torch.autograd.forward_ad.unpack_dual(dual).tangent
    torch.testing.assert_close(change, expected_change)
