"""Predict the logits of a split, and compute the metrics of an epoch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
from training.engine.divergence import DivergedError
from training.models import head

__all__ = ["as_rows", "evaluating", "forward", "measure", "predict", "to_device", "weight_norms"]

#: Rows of a prediction batch; without gradients a batch needs less memory.
_BATCH = 512
_METRICS = ("accuracy", "nll", "brier", "ece", "ece_equal_mass", "ece_l2_equal_mass")
_LogitsNK = NDArray[np.float32]


def predict(
    fabric: Fabric, network: nn.Module, split: Split, rows: NDArray[np.int64] | None = None
) -> _LogitsNK:
    """Return the logits (N, K), or (N, K, H, W), of `rows` of a split, by default of all.

    Several processes share the rows; each returns the complete logits.

    Raises
    ------
    InputError: the network has diverged.
    """
    rows = np.arange(len(split)) if rows is None else rows
    processes = fabric.world_size
    # Padded with the first rows, so that all processes have equally many.
    filled = np.resize(rows, -(-len(rows) // processes) * processes)
    mine = filled[fabric.global_rank :: processes]
    batches = []
    with evaluating(network), torch.inference_mode():
        for start in range(0, len(mine), _BATCH):
            inputs = to_device(fabric, split.batch(mine[start : start + _BATCH]))
            batches.append(forward(network, inputs).float())
    logits = torch.cat(batches)
    if processes > 1:
        gathered = cast("Tensor", fabric.all_gather(logits))
        logits = gathered.transpose(0, 1).flatten(0, 1)
    answer: _LogitsNK = logits[: len(rows)].cpu().numpy()
    if not np.isfinite(answer).all():
        raise DivergedError("a network whose logits are not finite")
    return answer


def measure(logits: _LogitsNK, labels: NDArray[np.int64]) -> dict[str, float | None]:
    """Return accuracy, scores, calibration errors, entropy, and NLL of correct and incorrect rows.

    Paper 004, figures 2 and 3, show the last three over the epochs. `nll_right` and `nll_wrong` are
    None where no row is correct or incorrect.
    """
    logits, labels = as_rows(logits, labels)
    metrics = evaluate(labels, logits=logits, metrics=_METRICS)
    measures: dict[str, float | None] = {name: metric.value for name, metric in metrics.items()}
    predictions = Predictions.from_logits(logits, labels)
    nll, right = -predictions.label_log_probabilities, predictions.correct
    p = predictions.probabilities.astype(np.float64)
    measures["entropy"] = float(entr(p).sum(axis=1).mean())
    measures["nll_right"] = float(nll[right].mean()) if right.any() else None
    measures["nll_wrong"] = float(nll[~right].mean()) if not right.all() else None
    return measures


def weight_norms(network: nn.Module) -> dict[str, float]:
    """Return the ℓ2 norms of all weights and of the last layer's weights (paper 004, figure 3e)."""

    def norm(module: nn.Module) -> float:
        squares = [parameter.detach().double().square().sum() for parameter in module.parameters()]
        return float(torch.stack(squares).sum().sqrt()) if squares else 0.0

    return {"weight_norm": norm(network), "head_norm": norm(head(network))}


def as_rows(logits: Any, labels: Any) -> tuple[Any, Any]:
    """Return logits (N, K) and labels (N,); each pixel of a dense prediction becomes a row."""
    if logits.ndim == 2:
        return logits, labels
    return np.moveaxis(logits, 1, -1).reshape(-1, logits.shape[1]), labels.reshape(-1)


def forward(network: nn.Module, inputs: Any) -> Tensor:
    """Return the logits of a batch: one tensor, a tuple of tensors, or keyword arguments.

    The network returns them, or an object or a dictionary with `logits`.
    """
    if isinstance(inputs, Mapping):
        output = network(**inputs)
    else:
        output = network(*inputs) if isinstance(inputs, tuple) else network(inputs)
    if isinstance(output, Mapping):
        output = output.get("logits")
    elif not isinstance(output, Tensor):
        output = getattr(output, "logits", output)
    if not isinstance(output, Tensor):
        found = f"a network that returns {type(output).__name__}"
        raise InputError("model.name", found=found, accepted="logits, or an object with `logits`")
    return output


def to_device(fabric: Fabric, inputs: Any) -> Any:
    """Return the batch on the device of the network."""
    return fabric.to_device(inputs)


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Set evaluation mode, and restore the mode of each layer afterwards.

    `train()` would also set frozen layers to training mode.
    """
    modes = {module: module.training for module in network.modules()}
    network.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
