"""Set up Lightning Fabric: device, processes, precision and determinism."""

from __future__ import annotations

import logging
import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins import MixedPrecision, Precision
from lightning_fabric.strategies.ddp import DDPStrategy

from recalib.errors import InputError
from recalib.recipe import Recipe
from training.engine.kernels import accelerator_of, choose_kernels


def launch_fabric(recipe: Recipe) -> Fabric:
    """Return a launched Fabric for a recipe.

    Under torchrun this process is one of a group, with one device for each process on the machine;
    gradients are averaged over the group. Otherwise there is one device.

    Raises
    ------
    InputError: a device or precision that this machine lacks, or more parts than rows.
    """
    accelerator = accelerator_of(recipe.device)
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if recipe.batch_size < 2 * processes * recipe.accumulate:
        raise InputError(
            "batch_size",
            found=f"{recipe.batch_size} rows for {processes} processes x {recipe.accumulate} parts",
            accepted="two rows for each of them, at least",
        )
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    if accelerator == "cuda":
        choose_kernels(deterministic=recipe.deterministic)
    number = recipe.device.partition(":")[2]
    if (number or accelerator == "mps") and processes > 1:
        accepted = "cuda: several processes use a GPU each"
        raise InputError("device", found=recipe.device, accepted=accepted)
    fabric = Fabric(
        accelerator=accelerator,
        devices=[int(number)] if number else here,
        num_nodes=processes // here,
        strategy="ddp" if processes > 1 else "auto",
        plugins=_precision(recipe.precision, accelerator),
    )
    fabric.launch()
    return fabric


def find_unused_parameters(fabric: Fabric) -> None:
    """Let networks that are set up later have parameters without gradient, in several processes.

    Fabric takes this setting before the network exists; it costs a pass over the graph of a step.
    """
    if isinstance(fabric.strategy, DDPStrategy):
        fabric.strategy._ddp_kwargs["find_unused_parameters"] = True


def _precision(precision: str, accelerator: str) -> Precision:
    able = accelerator == "cpu" or torch.cuda.is_bf16_supported(including_emulation=False)
    if precision == "bf16" and not able:
        accepted = "fp16 or 32"
        raise InputError("precision", found="bf16, which this device lacks", accepted=accepted)
    # CPUs support both halves, but few are faster with them.
    if precision == "auto":
        precision = "bf16" if able and accelerator == "cuda" else "32"
    return Precision() if precision == "32" else _HalfTraining(precision, accelerator)


class _HalfTraining(MixedPrecision):
    """bf16 or fp16 where gradients are computed; predictions are of the saved weights, in float32.

    Logits in bf16 change probabilities by up to .006. The gradients of fp16 are scaled, and a step
    whose gradients overflow is left out.
    """

    def __init__(self, precision: str, device: str) -> None:
        super().__init__("16-mixed" if precision == "fp16" else "bf16-mixed", device)

    def forward_context(self) -> AbstractContextManager[Any]:
        return super().forward_context() if torch.is_grad_enabled() else nullcontext()

    def convert_input(self, data: Any) -> Any:
        """Return the inputs as they are: autocast rounds them where an operation is in bf16."""
        return data
