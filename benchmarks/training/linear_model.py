"""`python -m benchmarks.training.linear_model`: paper 004's appendix B, a linear model.

Two classes of two normal clusters each, at the corners of a square of side 4, each cluster mixed by
a random matrix; 10% of the labels flipped; 4,000 rows to train on and 1,000 to test. The model has
two weights and no offset: P(y = 1) is the sigmoid of w·x. It is trained by gradient descent with
cross-entropy and with focal loss of gamma 1.

The paper says that both find the same boundary, that cross-entropy's weights and logits are much
larger, and that "CE misclassifies almost always with greater than 90% confidence". It gives neither
the rate, nor the number of steps, nor the matrices: here they are uniform in [-1, 1] as
scikit-learn's `make_classification` draws them, and descent goes on until the weights rest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from recalib.losses import LOSSES
from training.models import build

_TRAIN, _TEST = 4000, 1000
_CORNERS = np.array([[-2.0, -2.0], [-2.0, 2.0], [2.0, -2.0], [2.0, 2.0]])
_FLIPPED = 0.1


@dataclass(frozen=True)
class Outcome:
    """What a loss ends at.

    `weights` w of P(y = 1) = sigmoid(w·x); `path`, the norm of w after 1, 10, 100, ... steps;
    `logit`, the mean of |w·x| over test rows; `sure`, the share of misclassified test rows with a
    confidence above .9; `accuracy` on test rows.
    """

    weights: NDArray[np.float64]
    path: list[float]
    logit: float
    sure: float
    accuracy: float

    @property
    def norm(self) -> float:
        """The weights' Euclidean norm."""
        return float(np.linalg.norm(self.weights))


def draw(seed: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return 5,000 rows (N, 2) and labels (N,); corners 0 and 1 are class 0."""
    rng = np.random.default_rng(seed)
    total = _TRAIN + _TEST
    cluster = rng.integers(0, 4, total)
    mixing = rng.uniform(-1, 1, (4, 2, 2))
    points = np.einsum("ni,nij->nj", rng.standard_normal((total, 2)), mixing[cluster])
    labels = (cluster >= 2).astype(np.int64)
    flipped = rng.permutation(total)[: round(_FLIPPED * total)]
    labels[flipped] = 1 - labels[flipped]
    return points + _CORNERS[cluster], labels


def descend(loss: str, inputs: NDArray[np.float64], labels: NDArray[np.int64]) -> Outcome:
    """Return what full gradient descent from zero ends at."""
    x, y = torch.tensor(inputs), torch.tensor(labels)
    model = build("linear", 2, features=2, offsets=False).double()
    weight = next(model.parameters())
    torch.nn.init.zeros_(weight)
    objective = LOSSES[loss](**({"gamma": 1.0} if loss == "focal" else {}))
    path, step, moved = [], 0, np.inf
    while moved > 1e-9 and step < 20_000:
        value = objective(model(x[:_TRAIN]), y[:_TRAIN])
        (slope,) = torch.autograd.grad(value, weight)
        # 1 is below 2 over the largest curvature of either loss on such rows.
        with torch.no_grad():
            weight -= slope
        moved, step = float(slope.norm()), step + 1
        if np.log10(step) == round(np.log10(step)):
            path.append(float((weight[1] - weight[0]).detach().norm()))
    direction = (weight[1] - weight[0]).detach().numpy()
    logits = inputs[_TRAIN:] @ direction
    wrong = (logits > 0) != labels[_TRAIN:]
    confidence = 1 / (1 + np.exp(-np.abs(logits)))
    overconfident = float((confidence[wrong] > 0.9).mean())
    return Outcome(
        direction, path, float(np.abs(logits).mean()), overconfident, 1 - float(wrong.mean())
    )


def compare(seed: int) -> dict[str, Outcome]:
    """Return both losses' outcomes on one draw."""
    inputs, labels = draw(seed)
    return {loss: descend(loss, inputs, labels) for loss in ("cross_entropy", "focal")}


def main() -> None:
    """Print the outcomes of five draws."""
    table = Table("seed", "loss", "|w|", "on the way", "mean |logit|", "errors surer than .9",
                  "accuracy", "cosine", box=None)  # fmt: skip
    for seed in range(5):
        outcomes = compare(seed)
        first, second = (outcome.weights / outcome.norm for outcome in outcomes.values())
        for loss, outcome in outcomes.items():
            table.add_row(
                f"{seed}", loss, f"{outcome.norm:.3f}",
                ", ".join(f"{norm:.2f}" for norm in outcome.path),
                f"{outcome.logit:.2f}", f"{outcome.sure:.0%}", f"{outcome.accuracy:.1%}",
                f"{first @ second:.4f}",
            )  # fmt: skip
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
