"""`recalib apply`: calibrate files of logits."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recalib.cli import arguments, options
from recalib.errors import InputError
from recalib.reporting.terminal import progress, show

if TYPE_CHECKING:
    from recalib.calibrator import Calibrator


def apply(
    calibrator: options.CalibratorFile,
    data: options.LogitsData,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            help="The .npz, .csv or .parquet file; of several files of data a folder or its URL.",
        ),
    ],
    input: options.CalibratorInput = None,
    scores: options.Scores = None,
    separator: options.Separator = None,
    common: Annotated[
        bool,
        typer.Option(
            "--common", help="Of a calibrator with segments: its common map, for all rows."
        ),
    ] = False,
    cluster: options.Cluster = None,
    json_output: options.JsonOutput = False,
) -> None:
    """Turn logits into calibrated probabilities.

    One file of data gives one with `probabilities`, with `sets` if the calibrator has thresholds
    of prediction sets, with `accepted` if it has one of rejection, and with `intervals` of the map
    venn_abers. A calibrator with segments reads their columns in the file, and gives probabilities
    alone. A .csv or .parquet file also has the other columns of a table, such as ids. Several files
    give a folder of Parquet files with `probabilities`, `sets`, `accepted` and `labels`; the same
    command resumes a run that was stopped.
    """
    from recalib.api import load
    from recalib.files.answers import check_answer_path, other_columns, write_answers
    from recalib.files.read_columns import read_columns
    from recalib.scale import apply as apply_to_files

    selection = arguments.selection_of(scores, separator=separator)
    path = arguments.only_file(data, cluster)
    fitted = load(calibrator)
    fitted = fitted.common if common else fitted
    if path is None:
        if fitted.card.segments is not None:
            found = "several files or a cluster, for a calibrator with segments"
            raise InputError("data", found=found, accepted="one file, or --common")
        with progress("apply", quiet=json_output) as update:
            result = apply_to_files(
                fitted,
                arguments.select_in(data, selection),
                output,
                input=input,
                cluster=arguments.cluster_name(cluster),
                progress=lambda done, total: update(f"{done} of {total} parts"),
            )
        resumed = f", {result.resumed} of an earlier run" if result.resumed else ""
        rules = {"sets": fitted.card.sets, "accepted": fitted.card.rejection}
        parts = ["probabilities", *(name for name, rule in rules.items() if rule is not None)]
        size = f"{result.rows} rows of {result.classes} {' and '.join(parts)}"
        text = f"saved {size} to {output} ({result.parts} parts{resumed})"
        show(asdict(result), text, json_output=json_output)
        return
    target = Path(output)
    check_answer_path(target)
    arguments.check_output_path("output", target, calibrator, path)
    with progress("apply", quiet=json_output):
        kind = input or fitted.card.input
        rows = arguments.read_file(
            path,
            selection,
            fitted.card.labels,
            input=kind,
            task=fitted.card.task,
            labels="optional",
        )
        summary, columns = fitted.card.segments, None
        if summary is not None:
            columns = read_columns(path, summary.columns, selection.separator)
        arrays = _answers(fitted, rows.logits, columns, input)
        names, is_table = fitted.card.labels, target.suffix != ".npz"
        others = other_columns(path, kind, selection, names) if is_table else None
        write_answers(target, names, others, **arrays)
    n, k = arrays["probabilities"].shape
    text = f"saved {n} rows of {k} {' and '.join(arrays)} to {target}"
    show({"output": output, "rows": n, "classes": k}, text, json_output=json_output)


def _answers(
    fitted: Calibrator, values: Any, segments: dict[str, Any] | None, input: options.CalibratorInput
) -> dict[str, Any]:
    """Return what a calibrator answers to rows, by the names in a file."""
    from recalib.maps.venn_abers import VennAbers

    arrays = {"probabilities": fitted.predict(values, segments, input=input)}
    if fitted.card.sets is not None:
        arrays["sets"] = fitted.predict_set(values, input=input)
    if fitted.card.map == VennAbers.name and segments is None:
        arrays["intervals"] = fitted.predict_interval(values, input=input)
    if fitted.card.rejection is not None:
        arrays["accepted"] = fitted.is_accepted(values, input=input)
    return arrays
