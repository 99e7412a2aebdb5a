"""Plots of calibration, as Vega-Lite specifications and as files; one module per plot.

Altair writes a specification and vl-convert renders it, offline. Altair takes about half a second
to import, so callers import this package where they draw. A specification holds bins, or curves of
about 200 points, and no row of the data: its size does not depend on the number of rows.
"""

from recalib.core.packages import optional_packages

with optional_packages("pictures"):
    import altair  # noqa: F401
    import vl_convert  # noqa: F401

    from recalib.reporting.plots.classwise_diagram import classwise_diagram, label_diagram
    from recalib.reporting.plots.confidence_histogram import confidence_histogram
    from recalib.reporting.plots.error_over_shift import ShiftRow, error_over_shift
    from recalib.reporting.plots.picture import Picture
    from recalib.reporting.plots.reliability_diagram import reliability_diagram
    from recalib.reporting.plots.reliability_overlay import reliability_overlay
    from recalib.reporting.plots.risk_coverage import risk_coverage
    from recalib.reporting.plots.save import check_suffix, save
    from recalib.reporting.plots.style import check_bins
    from recalib.reporting.plots.timeline import timeline
    from recalib.reporting.plots.training_curves import training_curves

__all__ = [
    "Picture",
    "ShiftRow",
    "check_bins",
    "check_suffix",
    "classwise_diagram",
    "confidence_histogram",
    "error_over_shift",
    "label_diagram",
    "reliability_diagram",
    "reliability_overlay",
    "risk_coverage",
    "save",
    "timeline",
    "training_curves",
]
