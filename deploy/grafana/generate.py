"""Write the Grafana dashboards: `python deploy/grafana/generate.py`.

The JSON files in this folder are its output, and a test compares them. Queries use the metrics
and the recording rules of `deploy/prometheus`; a test runs every query.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from grafana_foundation_sdk.builders import dashboard, prometheus, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import DataSourceRef, VariableRefresh

FOLDER = Path(__file__).parent
_SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
_MODEL = '{model=~"$model"}'
_WIDTH, _HEIGHT = 12, 8


class Panel(NamedTuple):
    """One panel. `queries` maps the legend of a series to its query."""

    title: str
    unit: str
    description: str
    queries: dict[str, str]


def error(estimator: str, segment: str = '""') -> str:
    """Return the query of one estimate of the calibration error."""
    selector = f'model=~"$model", segment={segment}, estimator="{estimator}"'
    return f"recalib_calibration_error_ratio{{{selector}}}"


SERVICE = [
    Panel("Requests", "reqps", "Requests per second by route and status.", {
        "{{route}} {{status}}": "recalib:http_requests:rate5m",
    }),
    Panel("Error rate", "percentunit", "Share of responses with status 500 and above.", {
        "5 minutes": "recalib:http_request_errors:ratio5m",
        "1 hour": "recalib:http_request_errors:ratio1h",
    }),
    Panel("Latency of calibrate", "s",
          "From the arrival of a request to the end of its response.", {
        "p99": "recalib:calibrate_duration_seconds:p99_5m",
        "p50": "histogram_quantile(0.5, sum by (le) (rate("
        'recalib_http_request_duration_seconds_bucket{route="/v1/models/{model}/calibrate"}[5m])))',
    }),
    Panel("Rows calibrated", "short", "Rows per second by model and version.", {
        "{{model}} {{calibrator}}": "sum by (model, calibrator) "
        f"(rate(recalib_calibrated_rows_total{_MODEL}[5m]))",
    }),
    Panel("Jobs", "short", "Number of jobs by kind and state.", {
        "{{kind}} {{state}}": "recalib_jobs",
    }),
    Panel("Registry", "short", "1 if the registry answers. Loaded calibrators serve without it.", {
        "up": "recalib_registry_up",
    }),
]  # fmt: skip

CALIBRATION = [
    Panel("State", "short", "1 for the current state of each champion.", {
        "{{model}} {{calibrator}} {{state}}": f"recalib_calibration_state{_MODEL}",
    }),
    Panel("ECE of the window with its noise floor", "percentunit",
          "Of two classes it is the error of P(y = 1), binary_ece. A perfectly calibrated model has"
          " an ECE near the floor. With a selection_ratio, the band of selection holds for labels "
          "selected by outcome up to this ratio.", {
        "{{model}} ECE": error("ece"),
        "{{model}} low": error("ece_low"),
        "{{model}} high": error("ece_high"),
        "{{model}} low, selection": error("selection_low"),
        "{{model}} high, selection": error("selection_high"),
        "{{model}} floor": error("ece_floor"),
        "{{model}} objective": f"recalib_calibration_objective_ratio{_MODEL}",
    }),
    Panel("Calibration error (unbiased)", "percentunit", "Estimate with its 95% interval.", {
        "{{model}} CE": error("ce"),
        "{{model}} low": error("ce_low"),
        "{{model}} high": error("ce_high"),
    }),
    Panel("ECE of one day", "percentunit", "From the counters of matured predictions.", {
        "{{model}} {{calibrator}}": f"recalib:ece:ratio1d{_MODEL}",
    }),
    Panel("ROC AUC", "percentunit",
          "Of P(y = 1), for models of two classes, over the matured labels of the version.", {
        "{{model}} {{calibrator}}": f"recalib_roc_auc{_MODEL}",
    }),
    Panel("Accuracy and confidence", "percentunit",
          "Over the labels of the window. Of two classes: the frequency of class 1, and the mean of"
          " P(y = 1).", {
        "{{model}} accuracy": f"recalib_accuracy_ratio{_MODEL}",
        "{{model}} confidence": f"recalib_confidence_ratio{_MODEL}",
    }),
    Panel("Evidence may come from the selection of labels", "short",
          "1 if labels are evidence against the champion, their rates depend on the confidence or "
          "cannot be tested, and a selection by outcome can explain the error.", {
        "{{model}} {{calibrator}} {{segment}}": f"recalib_evidence_may_be_selection{_MODEL}",
    }),
    Panel("Dependent rows", "short",
          "1 if neighbouring rows depend on each other, or are repeats, without a group: alarms "
          "and intervals cannot be trusted.", {
        "{{model}} {{calibrator}} {{segment}}": f"recalib_evidence_dependent{_MODEL}",
        "{{model}} {{calibrator}} {{segment}} repeats": f"recalib_evidence_has_repeats{_MODEL}",
    }),
    Panel("ECE by segment", "percentunit", "Declared segments, and the remaining traffic.", {
        "{{model}} {{segment}}": 'recalib_calibration_error_ratio{model=~"$model", '
        'segment!="", estimator="ece"}',
    }),
]  # fmt: skip

DRIFT = [
    Panel("Evidence of drift", "short", "log E, and the threshold at which a version is stale.", {
        "{{model}} log E": f"recalib_log_evidence{_MODEL}",
        "{{model}} threshold": f"recalib_log_evidence_threshold{_MODEL}",
    }),
    Panel("Shift of confidences", "short", "PSI against the calibration set, with its threshold.", {
        "{{model}} PSI": f"recalib_confidence_psi{_MODEL}",
        "{{model}} threshold": f"recalib_confidence_psi_threshold{_MODEL}",
    }),
    Panel("Labels of the window", "short", "Number of labels and of predictions.", {
        "{{model}} labels": f"recalib_window_labels{_MODEL}",
        "{{model}} predictions": f"recalib_window_predictions{_MODEL}",
    }),
    Panel("Label coverage", "percentunit",
          "Share of predictions with labels, in the window and in one day.", {
        "{{model}} window": f"recalib_label_coverage_ratio{_MODEL}",
        "{{model}} day": f"recalib:label_coverage:ratio1d{_MODEL}",
    }),
    Panel("Silent traffic", "percentunit",
          "Share of the window's predictions about which labels say nothing: bins of confidence "
          "and segments with significantly fewer labels than the rest. It adds its largest "
          "possible error to the interval of the ECE.", {
        "{{model}} silent": f"recalib_silent_traffic_ratio{_MODEL}",
        "{{model}} objective": f"recalib_calibration_objective_ratio{_MODEL}",
    }),
    Panel("Delay of labels", "s", "Mean time from prediction to label.", {
        "{{model}}": f"recalib_label_delay_seconds{_MODEL}",
    }),
    Panel("Labels", "cps", "Labels per second by outcome.", {
        "{{model}} {{status}}": f"sum by (model, status) (rate(recalib_labels_total{_MODEL}[5m]))",
    }),
    Panel("Time since the last assessment", "s", "Seconds since a worker assessed the champion.", {
        "{{model}}": f"time() - recalib_assessed_timestamp_seconds{_MODEL}",
    }),
    Panel("Time in the current state", "s", "Seconds since the last change of state.", {
        "{{model}}": f"time() - recalib_calibration_state_since_timestamp_seconds{_MODEL}",
    }),
]  # fmt: skip

#: Panels by the dashboard's name.
DASHBOARDS = {"service": SERVICE, "calibration": CALIBRATION, "drift": DRIFT}


def render(name: str) -> str:
    """Return a dashboard as Grafana's JSON."""
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
    # The service dashboard offers models with traffic, the others offer monitored models.
    metric = "calibrated_rows_total" if name == "service" else "calibration_state"
    built = built.with_variable(
        dashboard.QueryVariable("model")
        .query(f"label_values(recalib_{metric}, model)")
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
    for index, (legend, query) in enumerate(panel.queries.items()):
        target = prometheus.Dataquery().expr(query).legend_format(legend).ref_id("ABCDEFGH"[index])
        built = built.with_target(target)
    return built


if __name__ == "__main__":
    for name in DASHBOARDS:
        (FOLDER / f"{name}.json").write_text(render(name))
