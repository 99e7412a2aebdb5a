"""Post-hoc calibration maps.

A new map is one file in this package and one line in `MAPS`; `tests/maps/test_contract.py` then
tests its contract. It needs a row in `docs/maps.md`. A map that is not fitted by gradient
(`fitted_by = "solver"`) also needs its solver in `MAP_SOLVERS` of `recalib.fitting.solvers`, which
may also name a faster solver for a map that is.
"""

from collections.abc import Mapping
from typing import Any

from recalib.maps.base import Map, Parameter, Parameters
from recalib.maps.beta import Beta
from recalib.maps.class_temperature import ClassTemperature
from recalib.maps.dirichlet import Dirichlet
from recalib.maps.ensemble_temperature import EnsembleTemperature
from recalib.maps.histogram_binning import HistogramBinning
from recalib.maps.identity import Identity
from recalib.maps.intra_order_preserving import IntraOrderPreserving
from recalib.maps.isotonic import Isotonic
from recalib.maps.matrix import Matrix
from recalib.maps.meta_cal import MetaAccuracy, MetaMiscoverage
from recalib.maps.parameterized_temperature import ParameterizedTemperature
from recalib.maps.quadratic import Quadratic
from recalib.maps.spline import Spline
from recalib.maps.stack import Stack
from recalib.maps.structured_matrix import StructuredMatrix
from recalib.maps.structured_vector import StructuredVector
from recalib.maps.temperature import Temperature
from recalib.maps.vector import Vector
from recalib.maps.venn_abers import VennAbers

__all__ = ["MAPS", "Map", "Parameter", "Parameters", "card_options"]

MAPS: dict[str, type[Map]] = {
    "identity": Identity,
    "temperature": Temperature,
    "class_temperature": ClassTemperature,
    "parameterized_temperature": ParameterizedTemperature,
    "ensemble_temperature": EnsembleTemperature,
    "vector": Vector,
    "matrix": Matrix,
    "dirichlet": Dirichlet,
    "structured_vector": StructuredVector,
    "structured_matrix": StructuredMatrix,
    "intra_order_preserving": IntraOrderPreserving,
    "histogram_binning": HistogramBinning,
    "isotonic": Isotonic,
    "venn_abers": VennAbers,
    "beta": Beta,
    "spline": Spline,
    "quadratic": Quadratic,
    "meta_miscoverage": MetaMiscoverage,
    "meta_accuracy": MetaAccuracy,
    "stack": Stack,
}


def card_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a card's options of the map `name`, with those that its version did not have.

    Examples
    --------
    >>> from recalib.maps import card_options
    >>> card_options("temperature", {})
    {}
    """
    older = MAPS[name].older_options if name in MAPS else {}
    return {**older, **options}
