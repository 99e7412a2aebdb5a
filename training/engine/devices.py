"""The device of a recipe, found without Lightning Fabric, which takes seconds to import."""

from __future__ import annotations

from typing import Literal

import torch

from recalib.errors import InputError


def accelerator_of(device: str) -> Literal["cpu", "cuda", "mps"]:
    """Return the kind of a recipe's device; `InputError` where torch does not see it."""
    cuda = torch.cuda.is_available()
    kind, _, number = device.partition(":")
    present = {"cuda": cuda and int(number or 0) < torch.cuda.device_count()}
    present["mps"] = torch.backends.mps.is_available()
    if not present.get(kind, True):
        raise InputError("device", found=f"{device}, which torch does not see", accepted="cpu")
    return "mps" if kind == "mps" else "cuda" if cuda and kind != "cpu" else "cpu"
