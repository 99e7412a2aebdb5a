"""`python -m benchmarks.training.figures`: gradients in training, MC dropout, an ensemble; small.

The network, data and optimiser of `make papers`, in a plain loop: two hidden layers on fixed
features of 10,000 images, SGD with momentum 0.9, the rate divided by 10 at 150/350 and 250/350.

- Paper 004, figure 4: norms of the gradient of the last layer's weights over training rows, of
  cross-entropy and focal loss; after 1, 10 and 20 of 35 epochs, as the paper after 10, 100 and 200.
- Paper 002, figure 3: slopes of losses in the label's probability, for cross-entropy's network.
- Paper 001, table B: ECE and AECE with 10 and 15 bins of MC dropout, and of an ensemble.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import recalib
from benchmarks.data import folder_with
from benchmarks.training.features import Features
from benchmarks.training.networks import Mlp
from benchmarks.training.running import Budget, prepare
from benchmarks.training.table import markdown_table
from recalib.files import write_atomically
from recalib.losses import LOSSES

_EPOCHS, _SHOWN = 35, (1, 10, 20)
_PASSES, _DROPOUT = 30, 0.2
#: Inputs (N, D) and labels (N,) of `train`, `validation` and `test`.
Data = dict[str, tuple[Tensor, Tensor]]


def load_features(cache: Path) -> Data:
    """Return the features of `make papers`."""
    budget = Budget(model="mlp", size=32, rows=10_000, shifted=0)
    splits = prepare(folder_with("cifar10-train.parquet"), budget, cache)
    data = {}
    for name in ("train", "validation", "test"):
        split = getattr(splits, name)
        assert isinstance(split.inputs, Features)
        data[name] = tuple(map(torch.from_numpy, (split.inputs.values[split.rows], split.labels)))
    return data  # type: ignore[return-value]


def fit(
    data: Data,
    loss: nn.Module,
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
            loss(network(inputs[rows]), labels[rows]).backward()
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
    return [(name, *_errors(labels, p)) for name, p in probabilities.items()]


def _errors(labels: NDArray[np.int64], probabilities: NDArray[np.float64]) -> list[str]:
    values = [float(np.mean(probabilities.argmax(axis=1) == labels))]
    for bins in (10, 15):
        metrics = ("ece", "ece_equal_mass")
        results = recalib.evaluate(labels, probabilities, metrics=metrics, bins=bins)
        values += [float(results[metric]) for metric in metrics]
    return [f"{100 * value:.2f}" for value in values]


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


def main() -> None:
    """Train, and write the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training.figures")
    parser.add_argument("--output", type=Path, default=Path("figures.md"))
    output = parser.parse_args().output
    torch.set_num_threads(1)
    data = load_features(Path(__file__).parents[1] / "results" / "training")
    heads = ("method", "accuracy", "10 bins: ECE", "AECE", "15 bins: ECE", "AECE")
    parts = ["# Gradients in training, MC dropout and an ensemble, small"]
    parts += [
        "`python -m benchmarks.training.figures`",
        "One seed; 10,000 test images; in percent.",
    ]
    parts += ["## MC dropout and an ensemble: 001, table B", markdown_table(heads, baselines(data))]
    norms, slopes = gradients(data)
    quantiles = ("10% are below", "median", "90% are below")
    parts += ["## Norms of gradients of the last layer: 004, figure 4"]
    parts += [markdown_table(("epoch", "loss", *quantiles), norms)]
    parts += ["## Median slopes in the label's probability: 002, figure 3"]
    parts += [markdown_table(("epoch", "loss", "right rows", "wrong rows"), slopes)]
    write_atomically(output, ("\n\n".join(parts) + "\n").encode())


if __name__ == "__main__":
    main()
