"""Maps of independent labels: each label has its own probability, and rows need no sum of 1.

A new map is one file in this package and one line in `LABEL_MAPS`.
"""

from recalib.maps.labels.base import LabelMap
from recalib.maps.labels.beta import LabelBeta
from recalib.maps.labels.identity import LabelIdentity
from recalib.maps.labels.isotonic import LabelIsotonic
from recalib.maps.labels.platt import LabelPlatt
from recalib.maps.labels.temperature import LabelTemperature

__all__ = ["LABEL_MAPS", "LabelMap"]

#: The maps of multilabel problems by name.
LABEL_MAPS: dict[str, type[LabelMap]] = {
    "identity": LabelIdentity,
    "temperature": LabelTemperature,
    "platt": LabelPlatt,
    "beta": LabelBeta,
    "isotonic": LabelIsotonic,
}
