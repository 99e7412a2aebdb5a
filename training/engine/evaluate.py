"""Predict the logits of a split, and compute the metrics of an epoch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import entr
from torch import Tensor, nn

from recalib.errors import InputError
from recalib.losses.base import sum_dtype
from recalib.metrics.dense import DenseResult
from recalib.metrics.evaluate import evaluate
from recalib.metrics.headline import epoch_metrics
from recalib.metrics.predictions import Predictions
from recalib.recipe import Recipe
from training.data import Split, Splits
from training.engine.dense import DensePrediction, dense_measures
from training.engine.divergence import DivergedError
from training.engine.kernels import float32_kernels
from training.engine.loading import BatchLoader, Share
from training.models import head

if TYPE_CHECKING:
    from lightning_fabric import Fabric

#: Rows of a prediction batch; without gradients a batch needs less memory.
_BATCH = 512
_LogitsNK = NDArray[np.float32]


@dataclass(frozen=True)
class Prediction:
    """What a network predicts for rows of a split; the measures are those of all rows or pixels.

    Dense predictions have a sample of pixels as rows, and more metrics.
    """

    #: float32 (n, K), and int64 (n,).
    logits: _LogitsNK
    labels: NDArray[np.int64]
    measures: dict[str, float | None]
    dense: DenseResult | None = None


def predict_split(
    recipe: Recipe,
    loader: BatchLoader,
    network: nn.Module,
    splits: Splits,
    name: str,
    *,
    rows: NDArray[np.int64] | None = None,
    with_logits: bool = False,
) -> Prediction:
    """Return the prediction for a split, `train`, `validation` or `test`.

    Parameters
    ----------
    rows: positions in the split; all by default.
    with_logits: whether dense predictions have the logits of a sample of pixels.

    Raises
    ------
    InputError: the network has diverged.
    """
    split: Split = getattr(splits, name)
    rows = np.arange(len(split)) if rows is None else rows
    labels, fabric = split.labels[rows], loader.fabric
    if not splits.is_dense:
        logits = _logits(loader, network, name, rows)
        return Prediction(logits, labels, measure(logits, labels))
    seed = recipe.seed if with_logits else None
    prediction = DensePrediction(splits.classes, splits.ignore_index, recipe.dense, seed)
    # A batch of the size of a training step's part fits into memory.
    size = max(1, recipe.batch_size // (recipe.accumulate * fabric.world_size))
    for numbers, batch in _batches(loader, network, name, rows, min(size, _BATCH)):
        images = numbers[numbers < len(rows)]  # others are padding
        logits = batch[: len(images)].cpu().numpy()
        prediction.add(images.tolist(), logits, labels[images])
    prediction.gather(fabric)
    result = prediction.finish()
    return Prediction(*prediction.rows(), dense_measures(result), result)


def predict(
    fabric: Fabric,
    network: nn.Module,
    split: Split,
    rows: NDArray[np.int64] | None = None,
) -> _LogitsNK:
    """Return the logits (N, K) of `rows` of a split, by default of all.

    Several processes share the rows; each returns the complete logits.

    Raises
    ------
    InputError: the network has diverged.
    """
    rows = np.arange(len(split)) if rows is None else rows
    return _logits(BatchLoader(fabric, {"rows": split}), network, "rows", rows)


def _logits(
    loader: BatchLoader, network: nn.Module, name: str, rows: NDArray[np.int64]
) -> _LogitsNK:
    """Return the logits (N, K) of these rows of a split."""
    batches = _batches(loader, network, name, rows, _BATCH)
    logits = torch.cat([batch for _, batch in batches])
    if loader.fabric.world_size > 1:
        gathered = cast("Tensor", loader.fabric.all_gather(logits))
        logits = gathered.transpose(0, 1).flatten(0, 1)
    answer: _LogitsNK = logits[: len(rows)].cpu().numpy()
    if not np.isfinite(answer).all():
        raise DivergedError("a network whose logits are not finite")
    return answer


def _batches(
    loader: BatchLoader, network: nn.Module, name: str, rows: NDArray[np.int64], size: int
) -> Iterator[tuple[NDArray[np.int64], Tensor]]:
    """Yield batches of this process: positions in `rows`, and their logits in float32.

    Position i is of process i modulo the number of processes. All processes have equally many:
    positions from N on are padding, with the first rows.
    """
    fabric, total = loader.fabric, len(rows)
    count = -(-total // fabric.world_size)
    numbers = fabric.global_rank + fabric.world_size * np.arange(count)
    batches = [numbers[start : start + size] for start in range(0, count, size)]
    shares = [Share(rows[batch % total]) for batch in batches]
    with evaluating(network), torch.inference_mode():
        for batch, (inputs, _) in zip(batches, loader.load(name, shares), strict=True):
            yield batch, forward(network, inputs).float()


def measure(logits: _LogitsNK, labels: NDArray[np.int64]) -> dict[str, float | None]:
    """Return accuracy, scores, calibration errors, entropy, and NLL of correct and incorrect rows.

    Paper 004, figures 2 and 3, show the last three over the epochs. `nll_right` and `nll_wrong` are
    None where no row is correct or incorrect.
    """
    names = [*epoch_metrics(logits.shape[1]), "ece_equal_mass", "ece_l2_equal_mass"]
    metrics = evaluate(labels, logits=logits, metrics=names)
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
        squares = [p.detach().to(sum_dtype(p.device)).square().sum() for p in module.parameters()]
        return float(torch.stack(squares).sum().sqrt()) if squares else 0.0

    return {"weight_norm": norm(network), "head_norm": norm(head(network))}


def forward(network: nn.Module, inputs: Any) -> Tensor:
    """Return the logits of a batch: one tensor, a tuple of tensors, or keyword arguments.

    The network returns them, or an object or a dictionary with `logits`, or as networks for
    segmentation of torchvision a dictionary with `out`. Log-odds (N, 1) become (N,).
    """
    if isinstance(inputs, Mapping):
        output = network(**inputs)
    else:
        output = network(*inputs) if isinstance(inputs, tuple) else network(inputs)
    if isinstance(output, Mapping):
        output = output.get("logits", output.get("out"))
    elif not isinstance(output, Tensor):
        output = getattr(output, "logits", output)
    if not isinstance(output, Tensor):
        found = f"a network that returns {type(output).__name__}"
        raise InputError("model.name", found=found, accepted="logits, or an object with `logits`")
    return output[:, 0] if output.ndim == 2 and output.shape[1] == 1 else output


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Set evaluation mode, and restore the mode of each layer afterwards.

    `train()` would also set frozen layers to training mode. In this context nothing is compiled and
    nothing is rounded to TF32: predictions are those of the network as it is saved, in float32.
    """
    modes = {module: module.training for module in network.modules()}
    network.eval()
    try:
        with float32_kernels(), torch.compiler.set_stance("force_eager"):
            yield
    finally:
        for module, mode in modes.items():
            module.training = mode
