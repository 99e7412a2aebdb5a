"""Fit any map with any objective."""

from recalib.fitting.cross_validation import compare_by_cross_validation
from recalib.fitting.fit import fit

__all__ = ["compare_by_cross_validation", "fit"]
