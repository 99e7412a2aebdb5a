"""Calibration by segment: offsets of a common map for countries, devices or other groups."""

from recalib.calibrator import Calibrator as SegmentCalibrator
from recalib.core.card import Segment, SegmentSummary
from recalib.segments.fit import fit_segments

__all__ = ["Segment", "SegmentCalibrator", "SegmentSummary", "fit_segments"]
