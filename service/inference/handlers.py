"""What a model's calibrator says of itself in the Open Inference Protocol; no transport here."""

from __future__ import annotations

from functools import partial

from recalib.errors import UnavailableError
from recalib.registry import Registry
from service.inference.schemas import ModelMetadata, TensorMetadata
from service.inference.tensors import IDS, INPUT, OUTPUT
from service.serving.loaded_calibrators import LoadedCalibrator
from service.state import State

__all__ = ["model_metadata"]

#: How many versions are listed, the newest; more can be asked for by number.
_MOST_VERSIONS = 100
#: Clients ask for metadata first, and what is loaded can be asked whatever the registry does.
_PATIENCE_SECONDS = 0.5


def model_metadata(state: State, loaded: LoadedCalibrator, *, alone: bool) -> ModelMetadata:
    """Return the metadata of a loaded calibrator, with its model's versions from the registry.

    With the loaded version alone where that is asked for, and where the registry cannot be reached
    or does not answer at once.
    """
    versions = [loaded.version]
    if not alone:
        try:
            look = partial(_versions, state.registry, loaded)
            versions = state.single_flight.submit(("versions", loaded.model), look).result(
                _PATIENCE_SECONDS
            )
        except (UnavailableError, TimeoutError):
            pass
    classes = loaded.calibrator.card.classes
    return ModelMetadata(
        name=loaded.model,
        versions=[str(version) for version in versions],
        platform="recalib",
        inputs=[TensorMetadata(name=INPUT, datatype="FP32", shape=[-1, classes])],
        # The second is made only where it is asked for.
        outputs=[
            TensorMetadata(name=OUTPUT, datatype="FP32", shape=[-1, classes]),
            TensorMetadata(name=IDS, datatype="BYTES", shape=[-1]),
        ],
    )


def _versions(registry: Registry, loaded: LoadedCalibrator) -> list[int]:
    with registry.reading() as tx:
        model = tx.models.get(loaded.model)
        newest = tx.calibrators.latest(model)
        last = newest.version if newest is not None else loaded.version
        first = max(0, last - _MOST_VERSIONS)
        return [one.version for one in tx.calibrators.page(model, first, _MOST_VERSIONS)]
