"""`recalib report`: write an HTML report on calibration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recalib.cli import arguments, options
from recalib.cli.comparison import (
    compatible_pairs,
    local_paths,
    read_labelled,
    read_validation_and_test,
)
from recalib.errors import InputError
from recalib.reporting.terminal import progress, show

if TYPE_CHECKING:
    from recalib.core.card import AutoChoice
    from recalib.files import DataSelection, LabelledData
    from recalib.reporting.html_report import LabelReport, Report, Source
    from recalib.reporting.html_report.versions import MapChoice

#: Names of the files that every report has.
_RESERVED_NAMES = ("validation", "test")
#: A picture with more test sets is hard to read.
_MAX_SHIFTED_SETS = 20


def report(
    validation: options.ValidationData,
    test: options.TestData,
    output: options.OutputFile,
    maps: options.MapNames = "",
    objectives: options.ObjectiveNames = "nll",
    predictions: options.PredictionsPolicy = None,
    preserve_accuracy: options.PreserveAccuracy = None,
    shift: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FILE",
            help="A shifted test set to show next to the test file; repeatable, in order.",
        ),
    ] = None,
    segments: options.Segments = None,
    title: Annotated[str, typer.Option(help="The title of the page.")] = "Calibration report",
    task: options.Task = "multiclass",
    input: options.InputKind = "logits",
    add_validation: options.MoreValidationData = None,
    add_test: options.MoreTestData = None,
    scores: options.Scores = None,
    label: options.Label = None,
    separator: options.Separator = None,
    cluster: options.Cluster = None,
    json_output: options.JsonOutput = False,
) -> None:
    """Write an HTML report with a recommendation.

    Maps are fitted to the first file and measured on the second, as by `compare`. The page says
    whether calibration helps and by how much, with intervals, and shows pictures and warnings. It
    runs no code and loads nothing from the network. Folders, globs and URLs are read in bounded
    memory; pictures then show a sample of the test rows. Multilabel data are two files.
    `--segments` adds a table of the segments of the test file.
    """
    from recalib.api.comparison import check_label_options
    from recalib.fitting.auto import resolve_predictions
    from recalib.scale import report as report_on_files

    selection = arguments.selection_of(scores, label, separator=separator)
    shifted = _parse_shifted_sets(shift or [])
    validation_data, test_data = [validation, *(add_validation or [])], [test, *(add_test or [])]
    sources = [validation_data, test_data, *([source] for source in shifted.values())]
    inputs = (Path(item) for source in sources for item in source)
    arguments.check_output_path("output", output, *inputs, suffix=".html")
    paths, names = local_paths(sources, cluster), arguments.split_names(segments)
    is_multilabel = task == "multilabel"
    if names is not None and (is_multilabel or paths is None):
        accepted = "files in memory of one label for each row"
        raise InputError("segments", found=f"{segments}, with others", accepted=accepted)
    if is_multilabel:
        if preserve_accuracy is not None:
            option = "preserve-accuracy" if preserve_accuracy else "any-accuracy"
            accepted = "none for task multilabel: rows have no predicted class"
            raise InputError(option, found=f"--{option}", accepted=accepted)
        check_label_options(objectives, shifted, predictions, None)
        if paths is None:
            accepted = "multiclass for other sources than two files"
            raise InputError("task", found=task, accepted=accepted)
    policy = resolve_predictions(predictions, preserve_accuracy)
    pairs = [] if is_multilabel else compatible_pairs(maps, objectives)
    result: Any
    with progress("report", quiet=json_output) as update:
        update("reading")
        shared: dict[str, Any] = {"input": input, "title": title, "progress": update}
        if paths is None:
            result = report_on_files(
                arguments.select_in(validation_data, selection),
                arguments.select_in(test_data, selection),
                pairs,
                predictions=policy,
                shifted={
                    name: arguments.select_in([file], selection) for name, file in shifted.items()
                },
                cluster=arguments.cluster_name(cluster),
                **shared,
            )
        elif is_multilabel:
            result = _report_on_labels(paths, arguments.split_names(maps), selection, **shared)
        else:
            shared |= {"predictions": policy}
            result = _report_on_rows(paths, list(shifted), pairs, selection, names, **shared)
        result.save(output)
    choice, document = _label_results(result) if is_multilabel else _row_results(result)
    texts = f"recommended: {choice.reason}", result.verdict, f"saved {output}"
    document = {"output": str(output), "warnings": result.warnings, **document}
    show(document, *texts, warnings=result.warnings, json_output=json_output)


def _row_results(result: Report) -> tuple[AutoChoice, dict[str, Any]]:
    """Return the recommendation, and the results as JSON values."""
    choice = result.comparison.choice
    recommended = {"map": choice.map, "objective": choice.objective, "reason": choice.reason}
    return choice, {
        "recommended": recommended,
        "metrics": {"before": _to_json(result.before), "after": _to_json(result.after)},
        "changes": _to_json(result.changes),
        "shift": [asdict(shifted_set) for shifted_set in result.shift],
    }


def _label_results(result: LabelReport) -> tuple[MapChoice, dict[str, Any]]:
    """Return the recommendation, and the results as JSON values."""
    choice, before, after = result.choice, result.before, result.after
    return choice, {
        "recommended": {"map": choice.map, "reason": choice.reason},
        "maps": [asdict(score) for score in choice.scores],
        "metrics": {"before": _to_json(before.metrics), "after": _to_json(after.metrics)},
        "changes": _to_json(after.changes),
    }


def _to_json(items: Mapping[str, Any]) -> dict[str, Any]:
    return {name: asdict(item) for name, item in items.items()}


def _report_on_labels(
    paths: list[Path],
    maps: tuple[str, ...] | None,
    selection: DataSelection,
    **shared: Any,
) -> LabelReport:
    """Return the report on multilabel data in two files."""
    from recalib.reporting.html_report import create_label_report

    rows = read_validation_and_test(paths, shared["input"], selection, "multilabel")
    names = arguments.class_names_of(selection)
    validation, test = _sources(paths, rows)
    return create_label_report(validation, test, maps, class_labels=names, **shared)


def _report_on_rows(
    paths: list[Path],
    shifted: list[str],
    pairs: list[tuple[str, str]],
    selection: DataSelection,
    segments: tuple[str, ...] | None,
    **shared: Any,
) -> Report:
    """Return the report on rows in memory; the files of shifted test sets are the last ones."""
    from recalib.files.read_columns import read_columns
    from recalib.reporting.html_report import create_report

    input = shared["input"]
    rows = [*read_validation_and_test(paths, input, selection)]
    for name, path in zip(shifted, paths[2:], strict=True):
        rows.append(read_labelled(f"shift {name}", path, input, selection, rows[0]))
    validation, test, *others = _sources(paths, rows)
    return create_report(
        validation,
        test,
        pairs,
        class_names=arguments.class_names_of(selection),
        shifted=dict(zip(shifted, others, strict=True)),
        segments=segments and read_columns(paths[1], segments, selection.separator),
        **shared,
    )


def _sources(paths: Sequence[Path], rows: Sequence[LabelledData]) -> list[Source]:
    from recalib import files
    from recalib.reporting.html_report import Source

    return [
        Source(path.name, files.digest(path), data) for path, data in zip(paths, rows, strict=True)
    ]


def _parse_shifted_sets(pairs: list[str]) -> dict[str, str]:
    """Return the sources of NAME=FILE options by name, in order."""
    sources: dict[str, str] = {}
    for pair in pairs:
        name, equals, source = pair.partition("=")
        if not (name.strip() and equals and source):
            raise InputError("shift", found=repr(pair), accepted="NAME=FILE")
        if name in sources or name in _RESERVED_NAMES:
            accepted = f"names that differ, and none of {', '.join(_RESERVED_NAMES)}"
            raise InputError("shift", found=repr(name), accepted=accepted)
        sources[name] = source
    if len(sources) > _MAX_SHIFTED_SETS:
        accepted = f"at most {_MAX_SHIFTED_SETS}"
        raise InputError("shift", found=f"{len(sources)} files", accepted=accepted)
    return sources
