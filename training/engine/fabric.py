"""Set up Lightning Fabric: device, processes, precision and determinism."""

from __future__ import annotations

import logging
import os
from typing import Literal

import torch
from lightning_fabric import Fabric

from recalib.errors import InputError
from recalib.recipe import Recipe

__all__ = ["launch_fabric"]


def launch_fabric(recipe: Recipe) -> Fabric:
    """Return a launched Fabric for a recipe.

    Under torchrun this process is one of a group, with one device for each process on the machine;
    gradients are averaged over the group. Otherwise there is one device. Deterministic kernels are
    used where they exist.

    Raises
    ------
    InputError: a device or precision that this machine lacks, or more parts than rows.
    """
    accelerator = _accelerator(recipe.device)
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
        # Set before CUDA starts. Without it, cuBLAS chooses its workspace by the free memory, and
        # results differ in rounding.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.backends.cudnn.benchmark = False
        torch.use_deterministic_algorithms(True, warn_only=True)
    fabric = Fabric(
        accelerator=accelerator,
        devices=here,
        num_nodes=processes // here,
        strategy="ddp" if processes > 1 else "auto",
        precision=_precision(recipe.precision, accelerator),
    )
    fabric.launch()
    return fabric


def _accelerator(device: Literal["auto", "cpu", "cuda"]) -> Literal["cpu", "cuda"]:
    present = torch.cuda.is_available()
    if device == "cuda" and not present:
        raise InputError("device", found="cuda, which torch does not see here", accepted="cpu")
    return "cuda" if present and device != "cpu" else "cpu"


def _precision(precision: str, accelerator: str) -> Literal["32-true", "bf16-mixed"]:
    able = accelerator == "cpu" or torch.cuda.is_bf16_supported(including_emulation=False)
    if precision == "bf16" and not able:
        raise InputError("precision", found="bf16, which this device lacks", accepted="32")
    # CPUs support bf16, but few are faster with it.
    automatic = precision == "auto" and able and accelerator == "cuda"
    return "bf16-mixed" if precision == "bf16" or automatic else "32-true"
