"""An HTML report of a classifier's calibration, with recommendations."""

from recalib.reporting.html_report.page import Source, write_report

__all__ = ["Source", "write_report"]
