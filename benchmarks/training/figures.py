"""`python -m benchmarks.training.figures`: gradients, ablations, MC dropout, an ensemble; small.

The network, data and optimiser of `make papers`, in a plain loop: two hidden layers on fixed
features of 10,000 images, SGD with momentum 0.9, the rate divided by 10 at 150/350 and 250/350.

- Paper 004, figure 4: norms of the gradient of the last layer's weights over training rows, of
  cross-entropy and focal loss; after 1, 10 and 20 of 35 epochs, as the paper after 10, 100 and 200.
- Paper 004, figures 6 and 10: the probability at which focal loss is least, and norms of features.
- Paper 002, figure 3: slopes of losses in the label's probability, for cross-entropy's network.
- Paper 001, tables 5, 6 and A: halves and conditions of ACLS and CRL, and a grid by `tune`.
- Paper 001, table B: ECE and AECE with 10 and 15 bins of MC dropout, and of an ensemble.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from torch import Tensor, nn
from torch.nn import functional

import recalib
from benchmarks.training.features import Features
from benchmarks.training.networks import Mlp
from benchmarks.training.running import Budget, NoOp, prepare_all, recipe_for
from benchmarks.training.table import cell, markdown_table
from recalib.files import write_atomically
from recalib.losses import LOSSES
from recalib.losses.focal import Focal
from recalib.ops import NumpyOps
from recalib.ops.formulas import focal_terms_from_log_p
from recalib.recipe import Tune
from training.engine.tuning import tune

_EPOCHS, _SHOWN = 35, (1, 10, 20)
#: Of focal loss; 0 is cross-entropy.
_GAMMAS = (0.0, 1.0, 2.0, 3.0)
_SHARES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.99)
_PASSES, _DROPOUT = 30, 0.2
_MARGIN, _SEEDS = 6.0, (1, 2, 3)
#: Tables 5 and 6 of paper 001: f and C of `Smoothing`; the paper's ECE and AECE.
ABLATIONS: dict[str, tuple[str, str, str, str]] = {
    "label smoothing": ("constant", "always", "3.17", "3.16"),
    "AR only: eq. 10": ("eq. 10", "always", "1.54", "1.42"),
    "CR only: eq. 11": ("constant", "margin", "1.32", "1.43"),
    "ACLS, margin: both": ("eq. 10", "margin", "1.05", "1.03"),
    "ACLS, ranking": ("eq. 10", "ranking", "1.48", "1.19"),
    "CRL, margin": ("eq. 20", "margin", "1.47", "1.40"),
    "CRL, ranking": ("eq. 20", "ranking", "1.65", "1.52"),
}
_GRID = {"lambda1": [0.0, 0.05, 0.1, 0.15], "lambda2": [0.0, 0.005, 0.01, 0.015]}
_BUDGET = Budget(model="mlp", size=32, rows=10_000, shifted=0)
#: Inputs (N, D) and labels (N,) of `train`, `validation` and `test`.
Data = dict[str, tuple[Tensor, Tensor]]


class Smoothing(nn.Module):
    """Cross-entropy with the gradient of a regulariser; its value is not that of a loss.

    As eq. 8 has it, the gradient is C f at the predicted class and −C f elsewhere. A smoothing
    function f is eq. 10 (ACLS), eq. 20 (CRL) or that of label smoothing; a condition C is eq. 11
    (margin), or 1. Eqs. 10 and 11 and λ are as in the released ACLS: by eq. 12 as written, networks
    diverge here. The paper does not say how pairs of rows give a condition (ranking): a row is
    penalised where the next row of the batch was right more often and has no more confidence.
    """

    def __init__(self, smoothing: str, condition: str, samples: int = 0) -> None:
        super().__init__()
        self._smoothing, self._condition, self.samples = smoothing, condition, samples
        self.history = torch.zeros(samples)

    def forward(self, logits: Tensor, labels: Tensor, indices: Tensor | None = None) -> Tensor:
        """Return a number whose gradient is p − q plus that of eq. 8, averaged over the rows."""
        slopes = self.slopes(logits.detach(), labels, indices)
        return functional.cross_entropy(logits, labels) + (slopes * logits).sum(dim=1).mean()

    def slopes(self, logits: Tensor, labels: Tensor, indices: Tensor | None) -> Tensor:
        """Return C f (N, K), with its sign."""
        p, (top, prediction) = logits.softmax(dim=1), logits.max(dim=1, keepdim=True)
        is_top = torch.arange(logits.shape[1]) == prediction
        gaps = torch.where(is_top, top, top - logits) - _MARGIN
        confidence, uniform = p.gather(1, prediction), 1 / logits.shape[1]
        amounts = {
            "eq. 10": 2 * gaps * torch.where(is_top, 0.1, 0.01 / (logits.shape[1] - 1)),
            "eq. 20": torch.where(is_top, confidence * (1 - confidence), confidence * p),
            "constant": torch.where(is_top, 0.05 * (1 - uniform), 0.05 * uniform),
        }[self._smoothing]
        holds = gaps >= 0 if self._condition == "margin" else torch.ones_like(is_top)
        if self._condition == "ranking":
            before = self.history[indices][:, None]
            holds = (before < before.roll(-1, 0)) & (confidence >= confidence.roll(-1, 0))
            self.history[indices] += (prediction[:, 0] == labels).float()
        return torch.where(is_top, amounts, -amounts) * holds


def ablations(data: Data, names: Iterable[str] = ABLATIONS, epochs: int = 15) -> list[list[str]]:
    """Return rows of tables 5 and 6: accuracy, ECE and AECE of test rows, beside the paper's."""
    rows = []
    for name in names:
        first, second, *published = ABLATIONS[name]
        results = []
        for seed in _SEEDS:
            loss = Smoothing(first, second, len(data["train"][1]))
            logits = logits_of(fit(data, loss, seed=seed, epochs=epochs), data, "test")
            accuracy, _, _, *both = errors(data["test"][1].numpy(), logits.softmax(dim=1).numpy())
            results.append((accuracy, *both))
        rows.append([name, *(cell(v, "") for v in zip(*results, strict=True)), *published])
    return rows


def grid(cache: Path) -> list[list[str]]:
    """Return table A by `tune`: for each λ1 and λ2, accuracy and ECE of validation rows."""
    values = {f"loss.secondary_options.{name}": numbers for name, numbers in _GRID.items()}
    part = Tune(search="grid", values=values, error="ece")
    recipe = recipe_for("CE + ACLS, released", 1, replace(_BUDGET, epochs=15, batch=128, width=256))
    recipe = recipe.model_copy(update={"report": False, "tune": part})
    trials = tune(recipe, partial(prepare_all, _BUDGET, cache), cache / "grid", NoOp())["trials"]
    numbers = [[t[name] or np.nan for name in ("accuracy", "error")] for t in trials]
    cells = [f"{100 * accuracy:.1f} / {100 * error:.1f}" for accuracy, error in numbers]
    return [[f"{number:g}", *cells[4 * i : 4 * i + 4]] for i, number in enumerate(_GRID["lambda1"])]


def load_features(cache: Path) -> Data:
    """Return the features of `make papers`."""
    splits = prepare_all(_BUDGET, cache).splits
    data = {}
    for name in ("train", "validation", "test"):
        split = getattr(splits, name)
        assert isinstance(split.inputs, Features)
        data[name] = tuple(map(torch.from_numpy, (split.inputs.values[split.rows], split.labels)))
    return data  # type: ignore[return-value]


def fit(
    data: Data,
    loss: Callable[..., Tensor],
    *,
    seed: int,
    epochs: int = 15,
    dropout: float = 0.0,
    after_epoch: Callable[[int, Mlp], object] = lambda epoch, network: None,
) -> Mlp:
    """Return a trained network; `after_epoch` gets the number of epochs done, and the network."""
    torch.manual_seed(seed)
    inputs, labels = data["train"]
    network = Mlp(int(labels.max()) + 1, features=inputs.shape[1], dropout=dropout)
    optimiser = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    milestones = [round(epochs * 150 / 350), round(epochs * 250 / 350)]
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimiser, milestones)
    for epoch in range(epochs):
        network.train()
        for rows in torch.randperm(len(labels)).split(128):
            optimiser.zero_grad()
            indices = {"indices": rows} if getattr(loss, "samples", 0) else {}
            loss(network(inputs[rows]), labels[rows], **indices).backward()
            optimiser.step()
        schedule.step()
        after_epoch(epoch + 1, network.eval())
    return network


@torch.no_grad()
def logits_of(network: nn.Module, data: Data, name: str) -> Tensor:
    """Return the logits of a split, float64."""
    logits: Tensor = network(data[name][0])
    return logits.double()


def gradient_norms(loss: nn.Module, features: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
    """Return ‖∂ℓ_i/∂W‖ (N,), W the weights of the last layer: ‖∂ℓ_i/∂z_i‖ ‖h_i‖."""
    leaf = logits.detach().requires_grad_()
    (slopes,) = torch.autograd.grad(loss(leaf, labels) * len(labels), leaf)
    return slopes.norm(dim=1) * features.detach().norm(dim=1)


def slopes_in_label(logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Return ∂ℓ/∂p_y (N,) of paper 002's losses, with the rival's probability held constant."""
    p = logits.softmax(dim=1)
    own = p.gather(1, labels[:, None])[:, 0].detach().requires_grad_()
    rival = p.scatter(1, labels[:, None], 0.0).amax(dim=1)
    behind = (own > rival).to(p.dtype) * rival
    weights = {
        "focal, γ = 3": (1 - own) ** 3, "inverse focal, γ = 2": (1 + own) ** 2,
        "dual focal, γ = 5": (1 - own + rival) ** 5,
        "dual focal as released, γ = 5": (1 - own + behind) ** 5,
    }  # fmt: skip
    return {
        name: torch.autograd.grad((-weight * own.log()).sum(), own, retain_graph=True)[0]
        for name, weight in weights.items()
    }


def mean_probabilities(passes: Sequence[Tensor]) -> NDArray[np.float64]:
    """Return the mean of the probabilities of several networks, or passes of one."""
    return torch.stack([logits.softmax(dim=1) for logits in passes]).mean(dim=0).numpy()


def baselines(data: Data, epochs: int = 15) -> list[tuple[str, ...]]:
    """Return the rows of table B: accuracy, and ECE and AECE with 10 and with 15 bins."""
    loss, labels = LOSSES["cross_entropy"](), data["test"][1].numpy()
    networks = [fit(data, loss, seed=seed, epochs=epochs) for seed in range(1, 6)]
    test = [logits_of(network, data, "test") for network in networks]
    validation = logits_of(networks[0], data, "validation").numpy()
    fitted = recalib.fit(validation, data["validation"][1].numpy(), map="temperature")
    dropout = fit(data, loss, seed=1, epochs=epochs, dropout=_DROPOUT)
    once = logits_of(dropout, data, "test")
    dropout.dropout.train()  # the batch normalisation stays in evaluation mode
    passes = [logits_of(dropout, data, "test") for _ in range(_PASSES)]
    probabilities = {
        "CE": mean_probabilities(test[:1]), "CE + TS": fitted.predict(test[0].numpy()),
        f"dropout {_DROPOUT}": mean_probabilities([once]),
        f"MC dropout {_DROPOUT}, {_PASSES} passes": mean_probabilities(passes),
        "ensemble of 5": mean_probabilities(test),
    }  # fmt: skip
    return [
        (name, *(f"{100 * value:.2f}" for value in errors(labels, p)))
        for name, p in probabilities.items()
    ]


def errors(labels: NDArray[np.int64], probabilities: NDArray[np.float64]) -> list[float]:
    """Return accuracy, and ECE and AECE with 10 and with 15 bins."""
    values = [float(np.mean(probabilities.argmax(axis=1) == labels))]
    for bins in (10, 15):
        metrics = ("ece", "ece_equal_mass")
        results = recalib.evaluate(labels, probabilities, metrics=metrics, bins=bins)
        values += [float(results[metric]) for metric in metrics]
    return values


def gradients(data: Data) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Return the rows of 004's figure 4, and of 002's figure 3."""
    norms: list[tuple[str, ...]] = []
    slopes: list[tuple[str, ...]] = []
    labels = data["train"][1]
    for name in ("cross_entropy", "focal"):
        loss = LOSSES[name]()

        def after(epoch: int, network: Mlp, name: str = name, loss: nn.Module = loss) -> None:
            if epoch not in _SHOWN:
                return
            logits = logits_of(network, data, "train")
            values = gradient_norms(loss, network.hidden(data["train"][0]), logits, labels)
            quantiles = values.quantile(torch.tensor([0.1, 0.5, 0.9], dtype=values.dtype))
            norms.append((f"{epoch}", name, *(f"{float(value):.3g}" for value in quantiles)))
            right = logits.argmax(dim=1) == labels
            for text, slope in slopes_in_label(logits, labels).items() if name != "focal" else ():
                cells = (f"{float(slope[mask].median()):.3g}" for mask in (right, ~right))
                slopes.append((f"{epoch}", text, *cells))

        fit(data, loss, seed=1, epochs=_EPOCHS, after_epoch=after)
    return norms, slopes


def optimal_probability(q: float, gamma: float) -> float:
    """Return the p at which the mean focal loss of two classes is least: 004, eq. 5.

    q is the frequency of the class, and p the predicted probability of it.
    """

    def risk(p: float) -> float:
        log_p = np.log([p, 1 - p])
        return float([q, 1 - q] @ focal_terms_from_log_p(NumpyOps(), log_p, gamma))

    return float(minimize_scalar(risk, bounds=(0, 1), options={"xatol": 1e-9}).x)


def feature_norms(data: Data, epochs: int = _EPOCHS) -> list[tuple[str, ...]]:
    """Return rows of 004's figure 10: the mean norm of the last features of training rows."""
    rows = []
    for gamma in _GAMMAS:
        norms: dict[int, float] = {}

        @torch.no_grad()
        def after(epoch: int, network: Mlp, norms: dict[int, float] = norms) -> None:
            norms[epoch] = float(network.hidden(data["train"][0]).norm(dim=1).mean())

        fit(data, Focal(gamma=gamma), seed=1, epochs=epochs, after_epoch=after)
        cells = (f"{norms[epoch]:.2f}" for epoch in (*_SHOWN, epochs))
        rows.append((f"{gamma:g}", *cells))
    return rows


def main() -> None:
    """Train, and write the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training.figures")
    parser.add_argument("--output", type=Path, default=Path("figures.md"))
    output = parser.parse_args().output
    torch.set_num_threads(1)
    cache = Path(__file__).parents[1] / "results" / "training"
    data = load_features(cache)
    heads = ("method", "accuracy", "10 bins: ECE", "AECE", "15 bins: ECE", "AECE")
    parts = ["# Gradients in training, MC dropout and an ensemble, small"]
    parts += ["`python -m benchmarks.training.figures`"]
    parts += ["One seed unless said; 10,000 test images; in percent."]
    parts += ["## MC dropout and an ensemble: 001, table B", markdown_table(heads, baselines(data))]
    parts += ["## Ablations of ACLS and CRL: 001, tables 5 and 6"]
    parts += ["A mean over three seeds with its standard error; the paper has Tiny-ImageNet."]
    heads = ("method", "accuracy", "ECE", "AECE", "ECE, paper", "AECE, paper")
    parts += [markdown_table(heads, ablations(data)), "## λ1 and λ2 by `tune`: 001, table A"]
    parts += ["The released ACLS: accuracy and ECE of 5,000 validation images; nan: it diverges."]
    columns = ("λ1 \\ λ2", *(f"{number:g}" for number in _GRID["lambda2"]))
    parts += [markdown_table(columns, grid(cache))]
    norms, slopes = gradients(data)
    parts += ["## Norms of gradients of the last layer: 004, figure 4"]
    parts += [markdown_table(("epoch", "loss", "10% below", "median", "90% below"), norms)]
    gammas = [f"γ = {gamma:g}" for gamma in _GAMMAS]
    parts += ["## Where focal loss is least, by the frequency q: 004, figure 6"]
    optima = [[f"{q:g}", *(f"{optimal_probability(q, g):.3f}" for g in _GAMMAS)] for q in _SHARES]
    parts += [markdown_table(("q", *gammas), optima)]
    parts += ["## Mean norms of the last features of training rows: 004, figure 10"]
    heads = ("γ", *(f"epoch {epoch}" for epoch in (*_SHOWN, _EPOCHS)))
    parts += [markdown_table(heads, feature_norms(data))]
    parts += ["## Median slopes in the label's probability: 002, figure 3"]
    parts += [markdown_table(("epoch", "loss", "right rows", "wrong rows"), slopes)]
    write_atomically(output, ("\n\n".join(parts) + "\n").encode())


if __name__ == "__main__":
    main()
