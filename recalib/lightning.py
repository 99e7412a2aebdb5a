"""A callback for Lightning: metrics of calibration each epoch, logits, and a calibrator.

It works with the packages `lightning` and `pytorch-lightning`; `recalib[lightning]` installs the
latter.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from recalib.calibrator import Calibrator
from recalib.core.packages import is_installed, optional_packages
from recalib.errors import InputError

if TYPE_CHECKING:
    from pytorch_lightning import Callback, LightningModule, Trainer
elif is_installed("lightning.pytorch"):
    from lightning.pytorch import Callback
else:
    with optional_packages("recalib.lightning", "recalib[lightning]"):
        from pytorch_lightning import Callback

from recalib.recorder import CalibrationRecorder

__all__ = ["CalibrationCallback"]


class CalibrationCallback(Callback):
    """Metrics of calibration after each validation epoch, logits, and a calibrator at the end.

    `validation_step` returns a dictionary with logits (N, K) and labels (N,). After an epoch the
    callback logs the metrics of the rows of all processes, so that loggers write them, and a
    checkpoint or early stopping can monitor `val_ece`. After training, and after
    `trainer.validate`, it fits a map: `trainer.validate(ckpt_path="best")` is the way to a
    calibrator of the best weights.

    Parameters
    ----------
    folder: gets `metrics.jsonl`, a line for each epoch; `validation.npz`, the logits of the last
        epoch, for `recalib fit`; and `calibrator.calib`. None by default: nothing is written. The
        process of rank 0 writes.
    prefix: of the names of logged metrics.
    options: `metrics`, `bins`, `level`, `input`, `map` and `ignore_index`, as in
        `recalib.recorder.CalibrationRecorder`. With `input="probabilities"`, `validation_step`
        returns `probabilities`.

    Raises
    ------
    InputError: an unknown metric or map; in an epoch, another output of `validation_step`, or
        invalid values.

    Examples
    --------
    >>> from pytorch_lightning import Trainer
    >>> from recalib.lightning import CalibrationCallback
    >>> trainer = Trainer(callbacks=[CalibrationCallback("runs/digits")], logger=False)
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        prefix: str = "val_",
        **options: Any,
    ) -> None:
        self.recorder = CalibrationRecorder(folder, **options)
        #: The calibrator of the last fit.
        self.calibrator: Calibrator | None = None
        self._prefix = prefix

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Forget the rows of an evaluation that was interrupted."""
        self.recorder.reset()

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
        scores = self.recorder.input
        if not isinstance(outputs, Mapping) or not {scores, "labels"} <= set(outputs):
            kind = sorted(outputs) if isinstance(outputs, Mapping) else type(outputs).__name__
            raise InputError(
                "validation_step",
                found=f"an output of {kind}",
                accepted=f"a dictionary with {scores} and labels",
            )
        self.recorder.update(outputs[scores], outputs["labels"])

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log the metrics of the epoch, and write them and the logits."""
        if trainer.sanity_checking:
            return
        values = self.recorder.compute()
        # The values of all processes are equal; their mean avoids a warning of Lightning.
        named = {f"{self._prefix}{name}": value for name, value in values.items()}
        pl_module.log_dict(named, sync_dist=trainer.world_size > 1)
        self.recorder.save(epoch=trainer.current_epoch, step=trainer.global_step)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Fit the map, after `trainer.validate`."""
        if trainer.state.fn == "validate":
            self.calibrator = self.recorder.fit_at_end(trainer.global_step)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Fit the map to the logits of the last epoch."""
        self.calibrator = self.recorder.fit_at_end(trainer.global_step)
