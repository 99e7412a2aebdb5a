"""Drift detection: calibration over time, with labels and without."""

from recalib.drift.bettors import Bettor, default_bettors
from recalib.drift.calibration_sums import CalibrationSums
from recalib.drift.calibration_test import CalibrationTest
from recalib.drift.class_monitor import ClassEvidence, ClassGap, ClassMonitor
from recalib.drift.class_rows import ClassRows
from recalib.drift.class_traffic import ClassTraffic, ClassWindow
from recalib.drift.coverage import Coverage, label_coverage
from recalib.drift.expected_performance import (
    ExpectedPerformance,
    ExpectedValue,
    expected_performance,
)
from recalib.drift.label_shift import estimate_priors
from recalib.drift.monitor import Monitor, SegmentStatus, Status, spend_alpha
from recalib.drift.monitor_options import MonitorOptions
from recalib.drift.monitor_state import STATES, Evidence, State
from recalib.drift.psi import ConfidenceShift, confidence_shift, quantile_edges
from recalib.drift.score_test import ScoreTest, ScoreVerdict
from recalib.drift.silence import SilentClasses
from recalib.drift.stream_monitor import Cohort
from recalib.drift.windows import Weighting, Window, summarise_window

__all__ = [
    "STATES",
    "Bettor",
    "CalibrationSums",
    "CalibrationTest",
    "ClassEvidence",
    "ClassGap",
    "ClassMonitor",
    "ClassRows",
    "ClassTraffic",
    "ClassWindow",
    "Cohort",
    "ConfidenceShift",
    "Coverage",
    "Evidence",
    "ExpectedPerformance",
    "ExpectedValue",
    "Monitor",
    "MonitorOptions",
    "ScoreTest",
    "ScoreVerdict",
    "SegmentStatus",
    "SilentClasses",
    "State",
    "Status",
    "Weighting",
    "Window",
    "confidence_shift",
    "default_bettors",
    "estimate_priors",
    "expected_performance",
    "label_coverage",
    "quantile_edges",
    "spend_alpha",
    "summarise_window",
]
