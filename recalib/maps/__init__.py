"""Post-hoc maps: a new map is one file and one line here; its contract tests come for free."""

from recalib.maps.base import Map, Parameter, Parameters
from recalib.maps.class_temperature import ClassTemperature
from recalib.maps.ensemble_temperature import EnsembleTemperature
from recalib.maps.identity import Identity
from recalib.maps.temperature import Temperature

__all__ = ["MAPS", "Map", "Parameter", "Parameters"]

MAPS: dict[str, type[Map]] = {
    "identity": Identity,
    "temperature": Temperature,
    "class_temperature": ClassTemperature,
    "ensemble_temperature": EnsembleTemperature,
}
