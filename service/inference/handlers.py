"""Model metadata of the Open Inference Protocol, independent of the transport."""

from __future__ import annotations

from functools import partial

from recalib.errors import UnavailableError
from recalib.maps.venn_abers import VennAbers
from recalib.registry import Registry
from service.inference.schemas import ModelMetadata, TensorMetadata
from service.inference.tensors import ACCEPTED, IDS, INPUT, INTERVALS, OUTPUT, OUTPUTS, SETS
from service.serving.loaded_calibrators import LoadedCalibrator
from service.state import State

#: Versions in the list, the newest; older ones can be requested by number.
_MAX_VERSIONS = 100
#: Wait for the registry. Clients request metadata first, and a loaded calibrator must be usable
#: while the registry is unreachable.
_PATIENCE_SECONDS = 0.5


def model_metadata(
    state: State, loaded: LoadedCalibrator, *, single_version: bool
) -> ModelMetadata:
    """Return the metadata of a loaded calibrator.

    Parameters
    ----------
    single_version: list only the loaded version. Otherwise the model's versions are read from the
        registry; if it does not answer in time, only the loaded version is listed.
    """
    versions = [] if loaded.is_uncalibrated else [loaded.version]
    if not single_version:
        try:
            read_versions = partial(_versions, state.registry, loaded)
            versions = state.single_flight.submit(("versions", loaded.model), read_versions).result(
                _PATIENCE_SECONDS
            )
        except (UnavailableError, TimeoutError):
            pass
    card = loaded.calibrator.card
    shapes = {OUTPUT: [-1, card.classes], IDS: [-1]}  # ids are returned only on request
    if card.sets is not None:
        shapes[SETS] = [-1, card.classes]
    if card.map == VennAbers.name and card.segments is None:
        shapes[INTERVALS] = [-1, card.classes, 2]
    if card.rejection is not None:
        shapes[ACCEPTED] = [-1]
    return ModelMetadata(
        name=loaded.model,
        versions=[str(version) for version in versions],
        platform="recalib",
        inputs=[TensorMetadata(name=INPUT, datatype="FP32", shape=[-1, card.classes])],
        outputs=[
            TensorMetadata(name=name, datatype=OUTPUTS[name], shape=shape)
            for name, shape in shapes.items()
        ],
    )


def _versions(registry: Registry, loaded: LoadedCalibrator) -> list[int]:
    with registry.reading() as tx:
        model = tx.models.get(loaded.model)
        newest = tx.calibrators.latest(model)
        last = newest.version if newest is not None else loaded.version
        first = max(0, last - _MAX_VERSIONS)
        return [row.version for row in tx.calibrators.page(model, first, _MAX_VERSIONS)]
