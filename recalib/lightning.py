"""A callback for Lightning that logs and writes metrics of calibration.

It works with the packages `lightning` and `pytorch-lightning`; `recalib[lightning]` installs the
latter.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from recalib.errors import InputError
from recalib.metrics.headline import epoch_metrics
from recalib.torchmetrics import calibration_metrics

if TYPE_CHECKING:
    from pytorch_lightning import Callback, LightningModule, Trainer
    from torchmetrics import MetricCollection
else:
    try:
        from lightning.pytorch import Callback
    except ModuleNotFoundError:
        from pytorch_lightning import Callback


class CalibrationCallback(Callback):
    """Metrics of calibration after each validation epoch.

    `validation_step` returns a dictionary with logits (N, K) and labels (N,). After an epoch the
    callback logs the metrics of the rows of all processes, so that a checkpoint or early stopping
    can monitor `val_ece`, and appends a line to a file.

    Parameters
    ----------
    path: a file of JSON lines: the epoch, the step and the metrics; none by default. Its folder is
        created. The process of rank 0 writes it.
    metrics: names of streaming metrics, see docs/metrics.md; by default accuracy, NLL, Brier score
        and ECE, of two classes also ROC AUC and the ECE of P(y = 1).
    bins: the number of bins of binned metrics.
    input: whether `validation_step` returns logits or probabilities; also the name of their entry
        in the dictionary. The entry of the labels is `labels`.
    prefix: of the names of logged metrics.

    Raises
    ------
    InputError: an unknown metric; in an epoch, another output of `validation_step`, or invalid
        values.

    Examples
    --------
    >>> Trainer(callbacks=[CalibrationCallback("calibration.jsonl")])  # doctest: +SKIP
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        metrics: Iterable[str] | None = None,
        bins: int = 15,
        input: Literal["logits", "probabilities"] = "logits",
        prefix: str = "val_",
    ) -> None:
        self._path = None if path is None else Path(path)
        self._names = None if metrics is None else tuple(metrics)
        self._bins, self._prefix = bins, prefix
        self._input: Literal["logits", "probabilities"] = input
        self._metrics: MetricCollection | None = None
        self._collection(classes=2)  # for its errors

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Forget the rows of the last epoch."""
        self._metrics = None

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Add the batch."""
        if not isinstance(outputs, Mapping) or not {self._input, "labels"} <= set(outputs):
            kind = sorted(outputs) if isinstance(outputs, Mapping) else type(outputs).__name__
            raise InputError(
                "validation_step",
                found=f"an output of {kind}",
                accepted=f"a dictionary with {self._input} and labels",
            )
        scores = outputs[self._input]
        if self._metrics is None:
            self._metrics = self._collection(scores.shape[-1] if scores.ndim > 1 else 2)
            if trainer.world_size > 1:  # NCCL adds tensors on its device only
                self._metrics.to(pl_module.device)
        self._metrics.update(scores, outputs["labels"])

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log the metrics of the epoch, and append them to the file."""
        if self._metrics is None or trainer.sanity_checking:
            return
        # A metric for which no row counts is NaN there: ROC AUC of one class.
        values = {
            name: value.item()
            for name, value in self._metrics.compute().items()
            if not value.isnan()
        }
        # The values of all processes are equal; their mean avoids a warning of Lightning.
        named = {f"{self._prefix}{name}": value for name, value in values.items()}
        pl_module.log_dict(named, sync_dist=trainer.world_size > 1)
        if self._path is not None and trainer.is_global_zero:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            line = {"epoch": trainer.current_epoch, "step": trainer.global_step, **values}
            with self._path.open("a") as file:
                file.write(json.dumps(line) + "\n")

    def _collection(self, classes: int) -> MetricCollection:
        names = epoch_metrics(classes) if self._names is None else self._names
        return calibration_metrics(classes, names, bins=self._bins, input=self._input)
