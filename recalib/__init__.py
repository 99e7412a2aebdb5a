"""Recalib calibrates the probabilities of deployed classifiers.

>>> import recalib
>>> calibrator = recalib.fit(logits, labels, map="temperature")     # doctest: +SKIP
>>> calibrator.predict(new_logits)                                  # doctest: +SKIP

Names are imported on first use, so importing the package is fast and never loads torch.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recalib.api import evaluate, load
    from recalib.calibrator import Calibrator
    from recalib.fitting.fit import fit
    from recalib.onnx_fusion.fuse import fuse

__all__ = ["Calibrator", "__version__", "evaluate", "fit", "fuse", "load"]

__version__ = version("recalib")

_MODULES = {
    "Calibrator": "recalib.calibrator",
    "evaluate": "recalib.api",
    "fit": "recalib.fitting.fit",
    "fuse": "recalib.onnx_fusion.fuse",
    "load": "recalib.api",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'recalib' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
