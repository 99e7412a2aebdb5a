"""Metrics of predictions.

A new metric is one file in this package, which states its name, summary and unit, and one line in
`METRICS`. Two tests then name what is missing: a row in `docs/metrics.md`, and an independent
definition in `tests/metrics/definitions.py`.
"""

from recalib.metrics.accuracy import Accuracy
from recalib.metrics.aurc import ExcessRiskCoverageArea, RiskCoverageArea
from recalib.metrics.base import Estimate, Metric, StreamingMetric, Unit
from recalib.metrics.brier import Brier
from recalib.metrics.brier_decomposition import (
    BrierReliability,
    BrierResolution,
    BrierUncertainty,
)
from recalib.metrics.classwise_ce import UnbiasedClasswiseError
from recalib.metrics.classwise_equal_mass import ClasswiseEqualMassError
from recalib.metrics.classwise_loss_std import ClasswiseLossDeviation
from recalib.metrics.confidence import S99, MeanConfidence, MeanEntropy, S99Accuracy
from recalib.metrics.ece import (
    BinaryCalibrationError,
    ClasswiseError,
    ExpectedCalibrationError,
    L2CalibrationError,
    MarginalError,
    MaximumCalibrationError,
    TopKError,
)
from recalib.metrics.ece_debiased import DebiasedError
from recalib.metrics.ece_kde import CanonicalKernelError, ClasswiseKernelError, KernelError
from recalib.metrics.ece_label_binned import LabelBinnedError
from recalib.metrics.ece_sweep import SweepError
from recalib.metrics.equal_mass import EqualMassError, EqualMassL2Error
from recalib.metrics.ks_error import ClasswiseKsError, KsError
from recalib.metrics.marginal_sb_ece import SoftBinnedMarginalError
from recalib.metrics.nll import NegativeLogLikelihood
from recalib.metrics.predictions import Predictions
from recalib.metrics.roc_auc import RocAuc
from recalib.metrics.smooth_ece import SmoothError
from recalib.metrics.top5_accuracy import Top5Accuracy
from recalib.stats.sums import State

__all__ = [
    "METRICS",
    "Estimate",
    "Metric",
    "Predictions",
    "State",
    "StreamingMetric",
    "Unit",
]

#: The metrics by name; `METRICS[name](bins)` makes one.
METRICS: dict[str, type[Metric]] = {
    "accuracy": Accuracy,
    "top5_accuracy": Top5Accuracy,
    "roc_auc": RocAuc,
    "nll": NegativeLogLikelihood,
    "brier": Brier,
    "binary_ece": BinaryCalibrationError,
    "ece": ExpectedCalibrationError,
    "top5_ece": TopKError,
    "ece_equal_mass": EqualMassError,
    "ece_l2": L2CalibrationError,
    "ece_l2_equal_mass": EqualMassL2Error,
    "ece_label_binned": LabelBinnedError,
    "ece_debiased": DebiasedError,
    "ece_sweep": SweepError,
    "ks_error": KsError,
    "smooth_ece": SmoothError,
    "mce": MaximumCalibrationError,
    "classwise_ce": UnbiasedClasswiseError,
    "classwise_ece": ClasswiseError,
    "classwise_ece_equal_mass": ClasswiseEqualMassError,
    "marginal_ece_l2": MarginalError,
    "marginal_sb_ece": SoftBinnedMarginalError,
    "ks_error_classwise": ClasswiseKsError,
    "ece_kde": KernelError,
    "ece_kde_classwise": ClasswiseKernelError,
    "ece_kde_canonical": CanonicalKernelError,
    "aurc": RiskCoverageArea,
    "e_aurc": ExcessRiskCoverageArea,
    "brier_reliability": BrierReliability,
    "brier_resolution": BrierResolution,
    "brier_uncertainty": BrierUncertainty,
    "s99": S99,
    "s99_accuracy": S99Accuracy,
    "mean_confidence": MeanConfidence,
    "mean_entropy": MeanEntropy,
    "classwise_loss_std": ClasswiseLossDeviation,
}
