"""A page that says how good a classifier's probabilities are, and what to do about it."""

from recalib.reporting.html_report.page import Source, write_report

__all__ = ["Source", "write_report"]
