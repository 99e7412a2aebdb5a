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
    from recalib.api import (
        classwise_diagram,
        confidence_histogram,
        evaluate,
        load,
        reliability_diagram,
        risk_coverage,
    )
    from recalib.api.comparison import compare, report
    from recalib.api.fit import fit
    from recalib.api.monitoring import monitor, timeline
    from recalib.calibrator import Calibrator
    from recalib.metrics.evaluate import StreamingEvaluation
    from recalib.onnx_fusion.fuse import fuse
    from recalib.segments import SegmentCalibrator, fit_segments
    from recalib.shift.prior import adjust_prior

__all__ = [
    "Calibrator",
    "SegmentCalibrator",
    "StreamingEvaluation",
    "__version__",
    "adjust_prior",
    "classwise_diagram",
    "compare",
    "confidence_histogram",
    "evaluate",
    "fit",
    "fit_segments",
    "fuse",
    "load",
    "monitor",
    "reliability_diagram",
    "report",
    "risk_coverage",
    "timeline",
]

__version__ = version("recalib")

_MODULES = {
    "Calibrator": "recalib.calibrator",
    "SegmentCalibrator": "recalib.segments",
    "StreamingEvaluation": "recalib.metrics.evaluate",
    "adjust_prior": "recalib.shift.prior",
    "classwise_diagram": "recalib.api",
    "compare": "recalib.api.comparison",
    "confidence_histogram": "recalib.api",
    "evaluate": "recalib.api",
    "fit": "recalib.api.fit",
    "fit_segments": "recalib.segments",
    "fuse": "recalib.onnx_fusion.fuse",
    "load": "recalib.api",
    "monitor": "recalib.api.monitoring",
    "reliability_diagram": "recalib.api",
    "report": "recalib.api.comparison",
    "risk_coverage": "recalib.api",
    "timeline": "recalib.api.monitoring",
}

#: The documented modules. `recalib.sklearn.CalibratedClassifier` needs no import of its own.
_SUBMODULES = frozenset(
    {
        "client",
        "drift",
        "errors",
        "lightning",
        "llm",
        "losses",
        "maps",
        "metrics",
        "mlflow",
        "objectives",
        "replay",
        "scale",
        "sklearn",
        "torch",
        "torchmetrics",
        "transformers",
    }
)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value = globals()[name] = getattr(import_module(_MODULES[name]), name)
        return value
    if name in _SUBMODULES:
        try:
            return import_module(f"recalib.{name}")
        except ImportError as error:
            # `hasattr` and `inspect.getmembers` expect this class where a package is not installed.
            raise AttributeError(f"recalib.{name} cannot be imported: {error}") from error
    raise AttributeError(f"module 'recalib' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names, so that notebooks complete names that are not loaded yet."""
    return sorted({*__all__, *_SUBMODULES})
