"""The worker program: claims jobs, fits, publishes. `training.train` trains a network directly."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from training.loader_training import TrainedModel, train

__all__ = ["TrainedModel", "train"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'training' has no attribute {name!r}")
    return getattr(import_module("training.loader_training"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
