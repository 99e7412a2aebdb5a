"""Fit any map with any objective."""

from recalib.fitting.fit import fit
from recalib.fitting.selection import compare_by_cross_validation

__all__ = ["compare_by_cross_validation", "fit"]
