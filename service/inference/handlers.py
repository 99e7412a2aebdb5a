"""What a model's calibrator says of itself in the Open Inference Protocol; no transport here."""

from __future__ import annotations

from recalib.errors import UnavailableError
from recalib.registry import Registry
from service.inference.schemas import ModelMetadata, TensorMetadata
from service.inference.tensors import INPUT, OUTPUT
from service.predict.loaded import Loaded

__all__ = ["metadata_of"]

#: How many versions are listed, the newest; more can be asked for by number.
_MOST_VERSIONS = 100


def metadata_of(registry: Registry | None, loaded: Loaded) -> ModelMetadata:
    """Return the metadata of a loaded calibrator, with its model's versions from the registry.

    Without a registry, and while it cannot be reached, with the loaded version alone.
    """
    versions = [loaded.version]
    if registry is not None:
        try:
            with registry.reading() as tx:
                model = tx.models.get(loaded.model)
                newest = tx.calibrators.latest(model)
                last = newest.version if newest is not None else loaded.version
                first = max(0, last - _MOST_VERSIONS)
                found = tx.calibrators.page(model, first, _MOST_VERSIONS)
                versions = [one.version for one in found]
        except UnavailableError:
            pass
    classes = loaded.calibrator.card.classes
    return ModelMetadata(
        name=loaded.model,
        versions=[str(version) for version in versions],
        platform="recalib",
        inputs=[TensorMetadata(name=INPUT, datatype="FP32", shape=[-1, classes])],
        outputs=[TensorMetadata(name=OUTPUT, datatype="FP32", shape=[-1, classes])],
    )
