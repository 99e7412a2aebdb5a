"""An HTML report of a classifier's calibration, with recommendations."""

from recalib.reporting.html_report.page import Report, Source, create_report

__all__ = ["Report", "Source", "create_report"]
