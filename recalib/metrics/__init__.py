"""How good predictions are: a new metric is one file and one line here."""

from collections.abc import Callable

from recalib.metrics.accuracy import Accuracy
from recalib.metrics.aurc import ExcessRiskCoverageArea, RiskCoverageArea
from recalib.metrics.base import Estimate, Metric, State, StreamingMetric
from recalib.metrics.binning import BinState
from recalib.metrics.brier import Brier
from recalib.metrics.brier_decomposition import (
    BrierReliability,
    BrierResolution,
    BrierUncertainty,
)
from recalib.metrics.classwise import ClasswiseError, MarginalError
from recalib.metrics.classwise_equal_mass import ClasswiseEqualMassError
from recalib.metrics.classwise_loss_std import ClasswiseLossDeviation
from recalib.metrics.confidence import S99, MeanConfidence, MeanEntropy, S99Accuracy
from recalib.metrics.ece import (
    ExpectedCalibrationError,
    L2CalibrationError,
    MaximumCalibrationError,
)
from recalib.metrics.ece_debiased import DebiasedError
from recalib.metrics.ece_kde import CanonicalKernelError, ClasswiseKernelError, KernelError
from recalib.metrics.ece_label_binned import LabelBinnedError
from recalib.metrics.ece_sweep import SweepError
from recalib.metrics.equal_mass import EqualMassError, EqualMassL2Error
from recalib.metrics.ks_error import ClasswiseKsError, KsError
from recalib.metrics.nll import NegativeLogLikelihood
from recalib.metrics.predictions import Predictions
from recalib.metrics.smooth_ece import SmoothError
from recalib.metrics.top5_accuracy import Top5Accuracy

__all__ = [
    "METRICS",
    "BinState",
    "Estimate",
    "Metric",
    "Predictions",
    "State",
    "StreamingMetric",
]

#: Each name with what makes the metric, given the number of bins.
METRICS: dict[str, Callable[[int], Metric]] = {
    "accuracy": lambda bins: Accuracy(),
    "top5_accuracy": lambda bins: Top5Accuracy(),
    "nll": lambda bins: NegativeLogLikelihood(),
    "brier": lambda bins: Brier(),
    "ece": ExpectedCalibrationError,
    "ece_equal_mass": EqualMassError,
    "ece_l2": L2CalibrationError,
    "ece_l2_equal_mass": EqualMassL2Error,
    "ece_label_binned": LabelBinnedError,
    "ece_debiased": DebiasedError,
    "ece_sweep": lambda bins: SweepError(),
    "ks_error": lambda bins: KsError(),
    "smooth_ece": lambda bins: SmoothError(),
    "mce": MaximumCalibrationError,
    "classwise_ece": ClasswiseError,
    "classwise_ece_equal_mass": ClasswiseEqualMassError,
    "marginal_ece_l2": MarginalError,
    "ks_error_classwise": lambda bins: ClasswiseKsError(),
    "ece_kde": lambda bins: KernelError(),
    "ece_kde_classwise": lambda bins: ClasswiseKernelError(),
    "ece_kde_canonical": lambda bins: CanonicalKernelError(),
    "aurc": lambda bins: RiskCoverageArea(),
    "e_aurc": lambda bins: ExcessRiskCoverageArea(),
    "brier_reliability": BrierReliability,
    "brier_resolution": BrierResolution,
    "brier_uncertainty": BrierUncertainty,
    "s99": lambda bins: S99(),
    "s99_accuracy": lambda bins: S99Accuracy(),
    "mean_confidence": lambda bins: MeanConfidence(),
    "mean_entropy": lambda bins: MeanEntropy(),
    "classwise_loss_std": lambda bins: ClasswiseLossDeviation(),
}
