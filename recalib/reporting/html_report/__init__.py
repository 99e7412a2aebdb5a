"""Self-contained HTML reports: of maps that are fitted and compared, and of published versions."""

from recalib.reporting.html_report.page import Report, create_report
from recalib.reporting.html_report.rendering import Source
from recalib.reporting.html_report.versions import (
    VersionPicture,
    VersionResult,
    VersionsReport,
    create_versions_report,
)

__all__ = [
    "Report",
    "Source",
    "VersionPicture",
    "VersionResult",
    "VersionsReport",
    "create_report",
    "create_versions_report",
]
