"""Has what a calibrator sees, or how right it is, changed? With labels and without."""

from recalib.drift.bettors import BETTORS, Bettor
from recalib.drift.calibration_sums import Sums
from recalib.drift.calibration_test import CalibrationTest
from recalib.drift.label_shift import estimated_priors
from recalib.drift.monitor import Monitor, MonitorOptions, SegmentStatus, Status, spent_alpha
from recalib.drift.monitor_state import STATES, Evidence, State
from recalib.drift.psi import ConfidenceShift, confidence_shift, quantile_edges
from recalib.drift.score_test import ScoreTest, ScoreVerdict
from recalib.drift.stream_monitor import Part
from recalib.drift.windows import Coverage, Weighting, Window, label_coverage, window

__all__ = [
    "BETTORS",
    "STATES",
    "Bettor",
    "CalibrationTest",
    "ConfidenceShift",
    "Coverage",
    "Evidence",
    "Monitor",
    "MonitorOptions",
    "Part",
    "ScoreTest",
    "ScoreVerdict",
    "SegmentStatus",
    "State",
    "Status",
    "Sums",
    "Weighting",
    "Window",
    "confidence_shift",
    "estimated_priors",
    "label_coverage",
    "quantile_edges",
    "spent_alpha",
    "window",
]
