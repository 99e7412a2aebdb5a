"""The accelerator of a recipe, and its kernels: reproducible or fast ones, float32 or TF32.

Lightning Fabric takes seconds to import, and is not needed here.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from recalib.errors import InputError

_LOGGER = logging.getLogger(__name__)


def accelerator_of(device: str) -> str:
    """Return `cpu`, `cuda` or `mps`; `InputError` for a device that torch does not see."""
    cuda = torch.cuda.is_available()
    kind, _, number = device.partition(":")
    present = {"cuda": cuda and int(number or 0) < torch.cuda.device_count()}
    present["mps"] = torch.backends.mps.is_available()
    if not present.get(kind, True):
        raise InputError("device", found=f"{device}, which torch does not see", accepted="cpu")
    return "mps" if kind == "mps" else "cuda" if cuda and kind != "cpu" else "cpu"


def choose_kernels(*, deterministic: bool) -> None:
    """Choose the kernels of this process; call it before CUDA starts.

    Parameters
    ----------
    deterministic: kernels that give the same bits each time, where they exist, and float32.
        Otherwise cuDNN tries its algorithms on the first batches, and float32 operations round
        their inputs to TF32.
    """
    if deterministic:
        # Without it, cuBLAS chooses its workspace by the free memory, and results differ in
        # rounding.
        has_started = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        if has_started and "CUBLAS_WORKSPACE_CONFIG" not in os.environ:
            _LOGGER.warning(
                "deterministic: CUDA has started without CUBLAS_WORKSPACE_CONFIG=:4096:8, so "
                "cuBLAS may give other bits each time",
                extra={"action": "choose_kernels"},
            )
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(deterministic, warn_only=True)
    # Every use of uninitialised memory would be a defect: do not spend time on filling it.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cudnn.benchmark = not deterministic
    torch.backends.cudnn.allow_tf32 = not deterministic
    torch.set_float32_matmul_precision("highest" if deterministic else "high")


@contextmanager
def float32_kernels() -> Iterator[None]:
    """Return a context without TF32."""
    precision, allow_tf32 = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(precision)
        torch.backends.cudnn.allow_tf32 = allow_tf32
