"""What a network says of a split, and how good that is: the numbers of each epoch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from scipy.special import entr
from torch import Tensor, nn

from recalib.errors import InputError
from recalib.metrics.evaluate import evaluate
from recalib.metrics.predictions import Predictions
from training.data import Split
from training.models import head

__all__ = ["as_rows", "forward", "measure", "predict", "to_device", "weight_norms"]

#: Rows of a batch without gradients, which takes less memory than one with.
_BATCH = 512
_METRICS = ("accuracy", "nll", "brier", "ece", "ece_equal_mass", "ece_l2_equal_mass")
_LogitsNK = NDArray[np.float32]


def predict(
    fabric: Fabric, network: nn.Module, split: Split, rows: NDArray[np.int64] | None = None
) -> _LogitsNK:
    """Return logits (N, K), or (N, K, H, W), of all rows of a split or of some.

    Several processes share the rows, and each gets the whole answer.

    Raises
    ------
    InputError: the network has diverged.
    """
    rows = np.arange(len(split)) if rows is None else rows
    processes = fabric.world_size
    # Filled up with first rows, so that all have as many.
    filled = np.resize(rows, -(-len(rows) // processes) * processes)
    mine = filled[fabric.global_rank :: processes]
    found = []
    with _evaluating(network), torch.inference_mode():
        for start in range(0, len(mine), _BATCH):
            inputs = to_device(fabric, split.batch(mine[start : start + _BATCH]))
            found.append(forward(network, inputs).float())
    logits = torch.cat(found)
    if processes > 1:
        gathered = cast("Tensor", fabric.all_gather(logits))
        logits = gathered.transpose(0, 1).flatten(0, 1)
    answer: _LogitsNK = logits[: len(rows)].cpu().numpy()
    if not np.isfinite(answer).all():
        raise InputError(
            "optimiser.learning_rate",
            found="a network whose logits are not finite",
            accepted="one that converges: try a smaller rate, or a warm-up",
        )
    return answer


def measure(logits: _LogitsNK, labels: NDArray[np.int64]) -> dict[str, float | None]:
    """Return accuracy, scores, calibration errors, entropy, and NLL of right and wrong rows.

    Paper 004, figures 2 and 3, follow the last three over the epochs. `nll_right` and `nll_wrong`
    are None where no row is so.
    """
    logits, labels = as_rows(logits, labels)
    said = evaluate(labels, logits=logits, metrics=_METRICS)
    found: dict[str, float | None] = {name: one.value for name, one in said.items()}
    predictions = Predictions.from_logits(logits, labels)
    nll, right = -predictions.label_log_probabilities, predictions.correct
    p = predictions.probabilities.astype(np.float64)
    found["entropy"] = float(entr(p).sum(axis=1).mean())
    found["nll_right"] = float(nll[right].mean()) if right.any() else None
    found["nll_wrong"] = float(nll[~right].mean()) if not right.all() else None
    return found


def weight_norms(network: nn.Module) -> dict[str, float]:
    """Return the ℓ2 norms of all weights, and of the last layer's alone (paper 004, figure 3e)."""

    def norm(module: nn.Module) -> float:
        squares = [one.detach().double().square().sum() for one in module.parameters()]
        return float(torch.stack(squares).sum().sqrt()) if squares else 0.0

    return {"weight_norm": norm(network), "head_norm": norm(head(network))}


def as_rows(logits: Any, labels: Any) -> tuple[Any, Any]:
    """Return (N, K) and (N,) of what may be dense: every place is a row."""
    if logits.ndim == 2:
        return logits, labels
    return np.moveaxis(logits, 1, -1).reshape(-1, logits.shape[1]), labels.reshape(-1)


def forward(network: nn.Module, inputs: Any) -> Tensor:
    """Return the logits of a batch, one tensor or several."""
    logits: Tensor = network(*inputs) if isinstance(inputs, tuple) else network(inputs)
    return logits


def to_device(fabric: Fabric, inputs: Any) -> Any:
    """Return a batch where the network is."""
    return fabric.to_device(inputs)


@contextmanager
def _evaluating(network: nn.Module) -> Iterator[None]:
    """Let the network evaluate; afterwards each layer is in the mode that it was in.

    Not `train()`, which would wake frozen layers up.
    """
    modes = {one: one.training for one in network.modules()}
    network.eval()
    try:
        yield
    finally:
        for one, mode in modes.items():
            one.training = mode
