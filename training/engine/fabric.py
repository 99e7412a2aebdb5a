"""What a run computes on: one process or those of torchrun, in which precision, and repeatably."""

from __future__ import annotations

import logging
import os
from typing import Literal

import torch
from lightning_fabric import Fabric

from recalib.errors import InputError
from recalib.recipe import Recipe

__all__ = ["machine"]


def machine(recipe: Recipe) -> Fabric:
    """Return the launched Fabric that a recipe asks for.

    Under torchrun it is one process of a group, with as many devices as there are processes on
    this machine; gradients are averaged over the group. Otherwise it is one device. Kernels that
    give other bits each time are avoided where there is a choice.

    Raises
    ------
    InputError: a device or a precision that this machine does not have; more parts than rows.
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
        # Before CUDA starts: without it, matrix products take whatever memory there is, and round
        # accordingly.
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


def _accelerator(wanted: Literal["auto", "cpu", "cuda"]) -> Literal["cpu", "cuda"]:
    present = torch.cuda.is_available()
    if wanted == "cuda" and not present:
        raise InputError("device", found="cuda, which torch does not see here", accepted="cpu")
    return "cuda" if present and wanted != "cpu" else "cpu"


def _precision(wanted: str, accelerator: str) -> Literal["32-true", "bf16-mixed"]:
    able = accelerator == "cpu" or torch.cuda.is_bf16_supported(including_emulation=False)
    if wanted == "bf16" and not able:
        raise InputError("precision", found="bf16, which this device lacks", accepted="32")
    # A CPU computes in bf16 as well, but few do so any faster.
    automatic = wanted == "auto" and able and accelerator == "cuda"
    return "bf16-mixed" if wanted == "bf16" or automatic else "32-true"
