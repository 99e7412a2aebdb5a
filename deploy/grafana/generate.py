"""Write the dashboards: `python deploy/grafana/generate.py`.

What is committed beside this file is what it writes; a test compares the two. Queries speak of
metrics and of the recording rules in `deploy/prometheus`, and a test runs every one of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from grafana_foundation_sdk.builders import dashboard, prometheus, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import DataSourceRef, VariableRefresh

FOLDER = Path(__file__).parent
_SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
_OF = '{model=~"$model"}'
_WIDTH, _HEIGHT = 12, 8


class Panel(NamedTuple):
    """One panel: queries by what the legend calls their series."""

    title: str
    unit: str
    description: str
    queries: dict[str, str]


def error(estimator: str, segment: str = '""') -> str:
    """Return a query of one estimate of the calibration error."""
    of = f'model=~"$model", segment={segment}, estimator="{estimator}"'
    return f"recalib_calibration_error_ratio{{{of}}}"


SERVICE = [
    Panel("Requests", "reqps", "By route and status.", {
        "{{route}} {{status}}": "recalib:http_requests:rate5m",
    }),
    Panel("Share of requests that fail", "percentunit", "Answers with 500 and above.", {
        "five minutes": "recalib:http_request_errors:ratio5m",
        "an hour": "recalib:http_request_errors:ratio1h",
    }),
    Panel("Latency of calibrate", "s", "From a request's arrival to its answer's end.", {
        "p99": "recalib:calibrate_duration_seconds:p99_5m",
        "p50": "histogram_quantile(0.5, sum by (le) (rate("
        'recalib_http_request_duration_seconds_bucket{route="/v1/models/{model}/calibrate"}[5m])))',
    }),
    Panel("Rows calibrated", "short", "By model and version.", {
        "{{model}} {{calibrator}}": "sum by (model, calibrator) "
        f"(rate(recalib_calibrated_rows_total{_OF}[5m]))",
    }),
    Panel("Jobs", "short", "By kind and state, as the registry has them.", {
        "{{kind}} {{state}}": "recalib_jobs",
    }),
    Panel("Registry", "short", "Whether it answers; what is loaded serves without it.", {
        "up": "recalib_registry_up",
    }),
]  # fmt: skip

CALIBRATION = [
    Panel("State", "short", "1 for the state that a champion is in.", {
        "{{model}} {{calibrator}} {{state}}": f"recalib_calibration_state{_OF}",
    }),
    Panel("ECE of the window, with its noise floor", "percentunit",
          "A perfectly calibrated model shows the floor.", {
        "{{model}} ECE": error("ece"),
        "{{model}} low": error("ece_low"),
        "{{model}} high": error("ece_high"),
        "{{model}} floor": error("ece_floor"),
        "{{model}} objective": f"recalib_calibration_objective_ratio{_OF}",
    }),
    Panel("Calibration error without bias", "percentunit", "With its interval.", {
        "{{model}} CE": error("ce"),
        "{{model}} low": error("ce_low"),
        "{{model}} high": error("ce_high"),
    }),
    Panel("ECE of a day", "percentunit", "From counters of matured predictions.", {
        "{{model}} {{calibrator}}": f"recalib:ece:ratio1d{_OF}",
    }),
    Panel("Accuracy and confidence", "percentunit", "Of the window's labels.", {
        "{{model}} accuracy": f"recalib_accuracy_ratio{_OF}",
        "{{model}} confidence": f"recalib_confidence_ratio{_OF}",
    }),
    Panel("ECE by segment", "percentunit", "Those that the model declares, and the rest.", {
        "{{model}} {{segment}}": 'recalib_calibration_error_ratio{model=~"$model", '
        'segment!="", estimator="ece"}',
    }),
]  # fmt: skip

DRIFT = [
    Panel("Evidence of drift", "short", "log E, and what it must reach to call a version stale.", {
        "{{model}} log E": f"recalib_log_evidence{_OF}",
        "{{model}} threshold": f"recalib_log_evidence_threshold{_OF}",
    }),
    Panel("Shift of confidences", "short", "PSI against the calibration set, and its threshold.", {
        "{{model}} PSI": f"recalib_confidence_psi{_OF}",
        "{{model}} threshold": f"recalib_confidence_psi_threshold{_OF}",
    }),
    Panel("Labels of the window", "short", "How many, of how many predictions.", {
        "{{model}} labels": f"recalib_window_labels{_OF}",
        "{{model}} predictions": f"recalib_window_predictions{_OF}",
    }),
    Panel("Share of predictions with labels", "percentunit", "Of the window, and of a day.", {
        "{{model}} window": f"recalib_label_coverage_ratio{_OF}",
        "{{model}} day": f"recalib:label_coverage:ratio1d{_OF}",
    }),
    Panel("Delay of labels", "s", "Mean time from prediction to label.", {
        "{{model}}": f"recalib_label_delay_seconds{_OF}",
    }),
    Panel("Labels", "cps", "By what became of them.", {
        "{{model}} {{status}}": f"sum by (model, status) (rate(recalib_labels_total{_OF}[5m]))",
    }),
    Panel("Last look", "s", "How long ago somebody looked.", {
        "{{model}}": f"time() - recalib_assessed_timestamp_seconds{_OF}",
    }),
    Panel("In its state", "s", "For how long.", {
        "{{model}}": f"time() - recalib_calibration_state_since_timestamp_seconds{_OF}",
    }),
]  # fmt: skip

#: Panels by the dashboard's name.
DASHBOARDS = {"service": SERVICE, "calibration": CALIBRATION, "drift": DRIFT}


def drawn(name: str) -> str:
    """Return a dashboard as Grafana reads it."""
    built = (
        dashboard.Dashboard(f"Recalib: {name}")
        .uid(f"recalib-{name}")
        .tags(["recalib"])
        .refresh("30s")
        .time("now-24h", "now")
        .timezone("utc")
        .readonly()
        .with_variable(dashboard.DatasourceVariable("datasource").type("prometheus"))
    )
    # Models that serve, for the service; those that are watched, for the others.
    of = "calibrated_rows_total" if name == "service" else "calibration_state"
    built = built.with_variable(
        dashboard.QueryVariable("model")
        .query(f"label_values(recalib_{of}, model)")
        .datasource(_SOURCE)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .multi(True)
        .include_all(True)
        .all_value(".*")
    )
    for panel in DASHBOARDS[name]:
        built = built.with_panel(_panel(panel))
    return JSONEncoder(sort_keys=True, indent=2).encode(built.build()) + "\n"


def _panel(panel: Panel) -> timeseries.Panel:
    built = (
        timeseries.Panel()
        .title(panel.title)
        .description(panel.description)
        .unit(panel.unit)
        .datasource(_SOURCE)
        .span(_WIDTH)
        .height(_HEIGHT)
    )
    for place, (legend, query) in enumerate(panel.queries.items()):
        target = prometheus.Dataquery().expr(query).legend_format(legend).ref_id("ABCDEFGH"[place])
        built = built.with_target(target)
    return built


if __name__ == "__main__":
    for name in DASHBOARDS:
        (FOLDER / f"{name}.json").write_text(drawn(name))
