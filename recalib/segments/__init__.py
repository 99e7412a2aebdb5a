"""Calibration by segment: offsets of a common map for countries, devices or other groups."""

from recalib.segments.calibrator import Segment, SegmentCalibrator, SegmentSummary
from recalib.segments.fit import fit_segments

__all__ = ["Segment", "SegmentCalibrator", "SegmentSummary", "fit_segments"]
