"""Self-contained HTML reports: of maps that are fitted and compared, and of published versions."""

from recalib.core.packages import optional_packages

with optional_packages("pictures"):
    from recalib.reporting.html_report.label_report import LabelReport, create_label_report
    from recalib.reporting.html_report.page import Report, create_report
    from recalib.reporting.html_report.rendering import Source
    from recalib.reporting.html_report.replay import ReplayReport, create_replay_report
    from recalib.reporting.html_report.results import LabelResult, VersionResult
    from recalib.reporting.html_report.versions import (
        VersionPicture,
        VersionsReport,
        create_versions_report,
    )
