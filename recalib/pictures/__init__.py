"""Pictures of calibration, as Vega-Lite specifications and as files: a picture is one file here.

Altair writes a specification and vl-convert renders it, offline. Both are imported where they are
used, since they take a second. A specification holds bins, or curves of some 200 points, and never
a row of the data: its size does not grow with what was measured.
"""

from importlib.util import find_spec

from recalib.errors import UnsupportedError
from recalib.pictures.classwise import classwise_diagram
from recalib.pictures.confidence import confidence_histogram
from recalib.pictures.overlay import reliability_overlay
from recalib.pictures.reliability import reliability_diagram
from recalib.pictures.risk import risk_coverage
from recalib.pictures.saving import check_suffix, save
from recalib.pictures.shift import ShiftRow, error_over_shift
from recalib.pictures.style import check_bins
from recalib.pictures.timeline import timeline
from recalib.pictures.training import training_curves

__all__ = [
    "ShiftRow",
    "check_bins",
    "check_suffix",
    "classwise_diagram",
    "confidence_histogram",
    "error_over_shift",
    "reliability_diagram",
    "reliability_overlay",
    "risk_coverage",
    "save",
    "timeline",
    "training_curves",
]

for _package in ("altair", "vl_convert"):
    if find_spec(_package) is None:
        raise UnsupportedError(
            "pictures", found=f"no package {_package}", accepted="pip install 'recalib[pictures]'"
        )
