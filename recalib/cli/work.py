"""Commands on files: fit, apply, export, evaluate, compare."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import typer

from recalib.card import CandidateResult
from recalib.errors import InputError
from recalib.terminal import (
    candidates_table,
    comparison_table,
    metrics_table,
    print_json,
    progress,
    say,
    warn,
)

__all__ = ["apply", "compare", "evaluate", "export", "fit"]

_Data = Annotated[
    Path,
    typer.Argument(
        help="Logits with labels: .npz, .parquet, .arrow, .csv, .safetensors, .json.",
        show_default=False,
    ),
]
_Calib = Annotated[Path, typer.Argument(help="A parameter file.", show_default=False)]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
_Input = Annotated[
    Literal["logits", "probabilities"],
    typer.Option(help="What the file holds; never guessed from its values."),
]
_Output = Annotated[
    Path, typer.Option("--output", "-o", help="The file to write.", show_default=False)
]


def fit(
    data: _Data,
    output: _Output,
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
    input: _Input = "logits",
    json_output: _Json = False,
) -> None:
    """Fit a calibrator to validation logits and save it."""
    from recalib import files
    from recalib.api import load
    from recalib.card import DataSummary
    from recalib.fitting.fit import fit as fit_calibrator
    from recalib.fitting.fit import wanted

    _check_target("output", output, data)
    options = _options(option or [])
    wanted(map, objective, options)  # a typo must not wait for a large file
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
    calibrator: _Calib,
    data: Annotated[Path, typer.Argument(help="Logits, labels not needed.", show_default=False)],
    output: _Output,
    input: _Input = "logits",
    json_output: _Json = False,
) -> None:
    """Turn logits into calibrated probabilities, saved as `probabilities` in an .npz file."""
    from recalib import files
    from recalib.api import load

    if output.suffix != ".npz":
        raise InputError("output", found=str(output), accepted="a name that ends in .npz")
    _check_target("output", output, calibrator, data)
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


def export(calibrator: _Calib, output: _Output, json_output: _Json = False) -> None:
    """Write a calibrator as an ONNX graph from `logits` to `probabilities`."""
    from recalib.api import load
    from recalib.files import write_atomically

    if output.suffix != ".onnx":
        raise InputError("output", found=str(output), accepted="a name that ends in .onnx")
    _check_target("output", output, calibrator)
    graph = load(calibrator).onnx()
    write_atomically(output, graph)
    if json_output:
        print_json({"output": str(output), "bytes": len(graph)})
    else:
        say(f"saved {len(graph)} bytes to {output}")


def evaluate(
    data: _Data,
    calibrator: Annotated[
        Path | None, typer.Option(help="Calibrate with this parameter file first.")
    ] = None,
    bins: Annotated[int, typer.Option(min=1, max=10_000, help="Bins of binned metrics.")] = 15,
    intervals: Annotated[bool, typer.Option("--intervals", help="Add 95% intervals.")] = False,
    diagram: Annotated[
        Path | None, typer.Option(help="Draw a reliability diagram too: .png, .svg, .html, .json.")
    ] = None,
    input: _Input = "logits",
    json_output: _Json = False,
) -> None:
    """Measure accuracy, proper scores and calibration errors."""
    from recalib import files
    from recalib.api import load
    from recalib.metrics.evaluate import evaluate as measure

    if diagram is not None:
        from recalib.pictures import check_suffix

        check_suffix(diagram)
        _check_target("diagram", diagram, data)
    fitted = load(calibrator) if calibrator is not None else None
    with progress("evaluate", quiet=json_output):
        rows = files.read(data, input=input)
        values: dict[str, Any] = {input: rows.logits}
        if fitted is not None:
            values = {"probabilities": fitted.predict(rows.logits, input=input)}
        level = 0.95 if intervals or not json_output else None
        estimates = measure(rows.labels, **values, bins=bins, level=level)
        if diagram is not None:
            _draw(diagram, values, rows.labels, bins)
    if json_output:
        print_json({name: _plain(one, intervals) for name, one in estimates.items()})
        return
    say(metrics_table({"value": estimates}, f"{data.name}: {len(rows.logits)} rows"))
    if diagram is not None:
        say(f"saved {diagram}")


def compare(
    validation: _Data,
    test: Annotated[Path, typer.Argument(help="Data that no fit sees.", show_default=False)],
    maps: Annotated[str, typer.Option(help="Maps, comma-separated; all by default.")] = "",
    objectives: Annotated[
        str, typer.Option(help="Objectives, comma-separated; `all` of them takes minutes.")
    ] = "nll",
    preserve_accuracy: Annotated[
        bool,
        typer.Option(
            "--preserve-accuracy/--any-accuracy",
            help="Recommend only maps that never change the predicted class.",
        ),
    ] = True,
    input: _Input = "logits",
    json_output: _Json = False,
) -> None:
    """Fit several maps on one file and measure them on another.

    One of them is recommended: by cross-validation on the first file, as `fit --map auto` chooses,
    so that the second one has no part in it. Pairs that do not go together, and maps that the data
    is too large for, are left out.
    """
    from recalib.fitting.auto import choose
    from recalib.fitting.fit import checked, configured
    from recalib.fitting.fit import fit as fit_calibrator
    from recalib.fitting.selection import Candidate
    from recalib.metrics.evaluate import evaluate as measure

    pairs = _pairs(maps, objectives)
    results = []
    with progress("compare", quiet=json_output) as at:
        fitting_rows, test_rows = _read_both(validation, test, input)
        for map_name, objective in pairs:
            at(f"{map_name} by {objective}")
            try:
                fitted = fit_calibrator(
                    fitting_rows.logits, fitting_rows.labels, map_name, objective, input=input
                )
            except InputError as error:  # a K x K matrix of very many classes
                warn(f"left out: {error}")
                continue
            probabilities = fitted.predict(test_rows.logits, input=input)
            estimates = measure(test_rows.labels, probabilities=probabilities)
            results.append((fitted.card, estimates))
        _, choice = choose(
            [Candidate(*configured(card.map, card.objective, {})) for card, _ in results],
            *checked(fitting_rows.logits, fitting_rows.labels, input),
            preserve_accuracy=preserve_accuracy,
            progress=lambda stage, i, value: at(f"{stage}, iteration {i}"),
        )
    held_out = {(one.map, one.objective): one for one in choice.candidates}
    if json_output:
        print_json(
            [
                {
                    "map": card.map,
                    "objective": card.objective,
                    "fit_seconds": card.fit.seconds,
                    "metrics": {name: one.value for name, one in estimates.items()},
                    **_held_out(held_out[card.map, card.objective]),
                }
                for card, estimates in results
            ]
        )
        return
    for card, _ in results:
        for text in (*card.fit.bounds_reached, *card.fit.warnings):
            warn(f"{card.map}: {text}")
    rows = [([card.map, card.objective], estimates) for card, estimates in results]
    title = f"fitted on {validation.name}, measured on {test.name}"
    say(comparison_table(("map", "objective"), rows, title))
    say(candidates_table(choice))
    say(f"recommended: {choice.reason}")


def _held_out(one: CandidateResult) -> dict[str, Any]:
    """Return what cross-validation said of a candidate, as JSON."""
    scores = {"nll": one.nll, "brier": one.brier, "nll_difference": one.nll_difference}
    return {
        "chosen": one.chosen,
        "verdict": one.verdict,
        "cross_validated": None if one.nll is None else msgspec.to_builtins(scores),
    }


def _check_target(field: str, path: Path, *sources: Path) -> None:
    """Raise `InputError` where no file can be: before the work, not after it."""
    accepted = "a file in a folder that exists"
    try:
        is_folder, exists = path.is_dir(), path.exists()
    except OSError as error:  # a name too long, a folder that may not be looked into
        found = f"{path} ({error.strerror})"
        raise InputError(field, found=found, accepted=accepted) from None
    if is_folder:
        raise InputError(field, found=f"{path} (a folder)", accepted=accepted)
    if not path.parent.is_dir():
        raise InputError(field, found=f"{path} (no folder {path.parent})", accepted=accepted)
    if exists and any(one.exists() and path.samefile(one) for one in sources):
        raise InputError(
            field, found=f"{path}, which is read", accepted="another file than those that are read"
        )


def _read_both(validation: Path, test: Path, input: Any) -> list[Any]:
    """Return the rows of both files; an error says in which of them it is."""
    from recalib import files

    both = []
    for name, path in (("validation", validation), ("test", test)):
        try:
            both.append(files.read(path, input=input))
        except InputError as error:
            field = f"{name}: {error.field}"
            raise type(error)(field, found=error.found, accepted=error.accepted) from error
    k, of_test = (rows.logits.shape[1] for rows in both)
    if of_test != k:
        raise InputError(
            "test: logits", found=f"{of_test} classes", accepted=f"{k}, as in {validation}"
        )
    return both


def _pairs(maps: str, objectives: str) -> list[tuple[str, str]]:
    """Return the pairs of map and objective that go together; say so if a wish is left out."""
    from recalib.fitting.fit import configured
    from recalib.maps import MAPS
    from recalib.objectives import OBJECTIVES

    wishes = [
        (map_name, objective)
        for map_name in _names("maps", maps, list(MAPS))
        for objective in _names(
            "objectives", "" if objectives == "all" else objectives, list(OBJECTIVES)
        )
    ]
    pairs, refused = [], []
    for map_name, objective in wishes:
        try:
            configured(map_name, objective, {})
            pairs.append((map_name, objective))
        except InputError as error:
            refused.append(error)
    if not pairs:
        raise refused[0]
    if maps and objectives:
        for refusal in refused:
            warn(f"left out: {refusal}")
    return pairs


def _names(field: str, text: str, known: list[str]) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()] or known
    for name in names:
        if name not in known:
            raise InputError(field, found=repr(name), accepted=", ".join(known))
    return names


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
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high}


def _short(value: Any) -> str:
    """Return a parameter on one line, long ones by their range."""
    flat = value.reshape(-1)
    if flat.size <= 12:
        return ", ".join(f"{one:#.5g}" for one in flat)
    return f"{flat.size} values from {flat.min():.5g} to {flat.max():.5g}"


def _draw(path: Path, values: dict[str, Any], labels: Any, bins: int) -> None:
    from recalib.metrics import Predictions
    from recalib.pictures import reliability_diagram, save

    ((kind, array),) = values.items()
    make = Predictions.from_logits if kind == "logits" else Predictions.from_probabilities
    save(reliability_diagram({path.stem: make(array, labels)}, bins=bins), path)
