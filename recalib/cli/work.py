"""Commands on one file: fit, apply, export, evaluate."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from recalib.cli.arguments import Calib, Data, Input, Json, Output, check_target
from recalib.errors import InputError
from recalib.terminal import (
    candidates_table,
    metrics_table,
    print_json,
    progress,
    say,
    warn,
)

if TYPE_CHECKING:
    from altair.typing import ChartType

__all__ = ["apply", "evaluate", "export", "fit"]

Picture = Literal["reliability", "smooth", "classwise", "confidence", "risk"]


def fit(
    data: Data,
    output: Output,
    map: Annotated[
        str, typer.Option(help="The post-hoc map; `auto` for what held-out rows prefer.")
    ] = "temperature",
    objective: Annotated[str, typer.Option(help="What the fit minimises.")] = "nll",
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="An option of the map or objective; repeatable."),
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(help="How much each row counts: an .npy file of one number a row."),
    ] = None,
    start: Annotated[
        Path | None,
        typer.Option(help="Begin from this parameter file, a fit of the same map and options."),
    ] = None,
    input: Input = "logits",
    json_output: Json = False,
) -> None:
    """Fit a calibrator to validation logits and save it."""
    from recalib import files
    from recalib.api import load
    from recalib.card import DataSummary
    from recalib.fitting.fit import fit as fit_calibrator
    from recalib.fitting.fit import resolve_fit

    check_target("output", output, data)
    options = _options(option or [])
    resolve_fit(map, objective, options)  # a typo must not wait for a large file
    earlier = load(start) if start is not None else None
    counts = _numbers("weights", weights) if weights is not None else None
    with progress("fit", quiet=json_output) as at:
        at("reading")
        rows = files.read(data, input=input)
        summary = DataSummary(rows=len(rows.logits), digest=files.digest(data), name=data.name)
        calibrator = fit_calibrator(
            rows.logits,
            rows.labels,
            map,
            objective,
            input=input,
            weights=counts,
            start=earlier,
            data=summary,
            progress=lambda stage, i, value: at(f"{stage}, iteration {i}, objective {value:.5f}"),
            **options,
        )
    calibrator.save(output)
    card = calibrator.card
    if json_output:
        parameters = {name: value.tolist() for name, value in calibrator.parameters.items()}
        print_json({"output": str(output), "parameters": parameters, "card": card.to_dict()})
        return
    for text in (*card.fit.bounds_reached, *card.fit.warnings):
        warn(text)
    if card.choice is not None:
        say(candidates_table(card.choice))
        say(card.choice.reason)
    for name, value in calibrator.parameters.items():
        say(f"{name}: {_short(value)}")
    size = f"{card.data.rows} rows, {card.classes} classes"
    title = f"{card.map} by {card.objective} on {size} (in sample)"
    say(metrics_table(card.metrics, title))
    say(f"saved {output}")


def _numbers(field: str, path: Path) -> Any:
    """Return the array of an .npy file."""
    import numpy as np

    try:
        return np.load(path, allow_pickle=False)
    except OSError as error:
        why = error.strerror or "unreadable"
        raise InputError(field, found=f"{path} ({why})", accepted="an .npy file") from None
    except (ValueError, EOFError):
        raise InputError(field, found=f"{path}", accepted="an .npy file of numbers") from None


def apply(
    calibrator: Calib,
    data: Annotated[Path, typer.Argument(help="Logits, labels not needed.", show_default=False)],
    output: Output,
    input: Input = "logits",
    json_output: Json = False,
) -> None:
    """Turn logits into calibrated probabilities, saved as `probabilities` in an .npz file."""
    from recalib import files
    from recalib.api import load

    if output.suffix != ".npz":
        raise InputError("output", found=str(output), accepted="a name that ends in .npz")
    check_target("output", output, calibrator, data)
    fitted = load(calibrator)
    with progress("apply", quiet=json_output):
        rows = files.read(data, input=input, labels="optional")
        probabilities = fitted.predict(rows.logits, input=input)
        files.write_npz(output, probabilities=probabilities)
    n, k = probabilities.shape
    if json_output:
        print_json({"output": str(output), "rows": n, "classes": k})
    else:
        say(f"saved {n} rows of {k} probabilities to {output}")


def export(calibrator: Calib, output: Output, json_output: Json = False) -> None:
    """Write a calibrator as an ONNX graph from `logits` to `probabilities`."""
    from recalib.api import load
    from recalib.files import write_atomically

    if output.suffix != ".onnx":
        raise InputError("output", found=str(output), accepted="a name that ends in .onnx")
    check_target("output", output, calibrator)
    graph = load(calibrator).to_onnx()
    write_atomically(output, graph)
    if json_output:
        print_json({"output": str(output), "bytes": len(graph)})
    else:
        say(f"saved {len(graph)} bytes to {output}")


def evaluate(
    data: Data,
    calibrator: Annotated[
        Path | None, typer.Option(help="Calibrate with this parameter file first.")
    ] = None,
    bins: Annotated[int, typer.Option(min=1, max=10_000, help="Bins of binned metrics.")] = 15,
    intervals: Annotated[
        bool, typer.Option("--intervals", help="Add 95% intervals and noise floors to JSON.")
    ] = False,
    diagram: Annotated[
        Path | None, typer.Option(help="Draw a reliability diagram too: .png, .svg, .html, .json.")
    ] = None,
    picture: Annotated[
        Picture | None, typer.Option(help="What --diagram draws; reliability unless given.")
    ] = None,
    input: Input = "logits",
    json_output: Json = False,
) -> None:
    """Measure accuracy, proper scores and calibration errors."""
    from recalib import files
    from recalib.api import load
    from recalib.metrics.evaluate import evaluate as measure

    if picture is not None and diagram is None:
        raise InputError("picture", found=picture, accepted="only together with --diagram FILE")
    if diagram is not None:
        from recalib.reporting.plots import check_bins, check_suffix

        check_suffix(diagram)
        check_target("diagram", diagram, data)
        if picture != "risk":  # which has none
            check_bins(bins)
    fitted = load(calibrator) if calibrator is not None else None
    with progress("evaluate", quiet=json_output):
        rows = files.read(data, input=input)
        values: dict[str, Any] = {input: rows.logits}
        if fitted is not None:
            values = {"probabilities": fitted.predict(rows.logits, input=input)}
        level = 0.95 if intervals or not json_output else None
        estimates = measure(rows.labels, **values, bins=bins, level=level)
        if diagram is not None:
            _draw(diagram, values, rows.labels, bins, picture or "reliability")
    if json_output:
        print_json({name: _plain(one, intervals) for name, one in estimates.items()})
        return
    say(metrics_table({"value": estimates}, f"{data.name}: {len(rows.logits)} rows"))
    if diagram is not None:
        say(f"saved {diagram}")


def _options(pairs: list[str]) -> dict[str, Any]:
    """Return NAME=VALUE pairs as a dictionary; a value is JSON, or else text."""
    options = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise InputError("option", found=repr(pair), accepted="NAME=VALUE")
        try:
            options[name] = json.loads(text)
        except ValueError:
            options[name] = text
    return options


def _plain(estimate: Any, intervals: bool) -> Any:
    if not intervals:
        return estimate.value
    return {name: getattr(estimate, name) for name in ("value", "low", "high", "floor")}


def _short(value: Any) -> str:
    """Return a parameter on one line, long ones by their range."""
    flat = value.reshape(-1)
    if flat.size <= 12:
        return ", ".join(f"{one:#.5g}" for one in flat)
    return f"{flat.size} values from {flat.min():.5g} to {flat.max():.5g}"


def _draw(path: Path, values: dict[str, Any], labels: Any, bins: int, picture: Picture) -> None:
    from recalib.metrics import Predictions
    from recalib.reporting import plots

    ((kind, array),) = values.items()
    make = Predictions.from_logits if kind == "logits" else Predictions.from_probabilities
    predictions = make(array, labels)
    series = {path.stem: predictions}
    draw: dict[Picture, Callable[[], ChartType]] = {
        "reliability": lambda: plots.reliability_diagram(series, bins=bins),
        "smooth": lambda: plots.reliability_diagram(series, bins=bins, smooth=True),
        "classwise": lambda: plots.classwise_diagram(predictions, bins=bins),
        "confidence": lambda: plots.confidence_histogram(series, bins=bins),
        "risk": lambda: plots.risk_coverage(series),
    }
    plots.save(draw[picture](), path)
