"""`recalib report`: write an HTML report on calibration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from recalib.cli import arguments, options
from recalib.cli.comparison import (
    compatible_pairs,
    local_paths,
    read_labelled,
    read_validation_and_test,
)
from recalib.errors import InputError
from recalib.reporting.terminal import print_json, progress, say, warn

if TYPE_CHECKING:
    from recalib.core.card import PredictionPolicy
    from recalib.files import DataSelection
    from recalib.reporting.html_report import Report

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
    from recalib.fitting.auto import resolve_predictions
    from recalib.scale import report as report_on_files

    if output.suffix != ".html":
        raise InputError("output", found=str(output), accepted="a name that ends in .html")
    selection = arguments.selection_of(scores, label, separator=separator)
    shifted = _parse_shifted_sets(shift or [])
    validation_data, test_data = [validation, *(add_validation or [])], [test, *(add_test or [])]
    sources = [validation_data, test_data, *([source] for source in shifted.values())]
    arguments.check_output_path(
        "output", output, *(Path(item) for source in sources for item in source)
    )
    names = arguments.split_names(segments)
    if names is not None and (task == "multilabel" or local_paths(sources, cluster) is None):
        accepted = "files in memory of one label for each row"
        raise InputError("segments", found=f"{segments}, with others", accepted=accepted)
    if task == "multilabel":
        _check_label_options(shifted, objectives, predictions, preserve_accuracy)
        paths = local_paths(sources, cluster)
        if paths is None:
            accepted = "multiclass for other sources than two files"
            raise InputError("task", found=task, accepted=accepted)
        _report_on_labels(
            paths, arguments.split_names(maps), input, selection, title, output, json_output
        )
        return
    policy = resolve_predictions(predictions, preserve_accuracy)
    pairs = compatible_pairs(maps, objectives)
    with progress("report", quiet=json_output) as update:
        update("reading")
        paths = local_paths(sources, cluster)
        if paths is not None:
            result = _report_on_rows(
                paths, list(shifted), pairs, input, selection, policy, title, names, update
            )
        else:
            result = report_on_files(
                arguments.select_in(validation_data, selection),
                arguments.select_in(test_data, selection),
                pairs,
                input=input,
                predictions=policy,
                shifted={
                    name: arguments.select_in([file], selection) for name, file in shifted.items()
                },
                title=title,
                cluster=arguments.cluster_name(cluster),
                progress=update,
            )
        result.save(output)
    choice = result.comparison.choice
    if json_output:
        print_json(
            {
                "output": str(output),
                "recommended": {
                    "map": choice.map, "objective": choice.objective, "reason": choice.reason
                },
                "warnings": result.warnings,
                "metrics": {
                    stage: {name: asdict(estimate) for name, estimate in metrics.items()}
                    for stage, metrics in (("before", result.before), ("after", result.after))
                },
                "changes": {name: asdict(change) for name, change in result.changes.items()},
                "shift": [asdict(shifted_set) for shifted_set in result.shift],
            }
        )  # fmt: skip
        return
    for message in result.warnings:
        warn(message)
    say(f"recommended: {choice.reason}")
    if result.verdict:
        say(result.verdict)
    say(f"saved {output}")


def _check_label_options(
    shifted: dict[str, str],
    objectives: str,
    predictions: PredictionPolicy | None,
    preserve_accuracy: bool | None,
) -> None:
    """Raise `InputError` for an option that multilabel data do not have."""
    if shifted:
        raise InputError("shift", found=", ".join(shifted), accepted="none for task multilabel")
    if objectives != "nll":
        raise InputError("objectives", found=objectives, accepted="nll for task multilabel")
    accepted = "none for task multilabel: rows have no predicted class"
    if preserve_accuracy is not None:
        option = "preserve-accuracy" if preserve_accuracy else "any-accuracy"
        raise InputError(option, found=f"--{option}", accepted=accepted)
    if predictions is not None:
        raise InputError("predictions", found=predictions, accepted=accepted)


def _report_on_labels(
    paths: list[Path],
    maps: tuple[str, ...] | None,
    input: Literal["logits", "probabilities"],
    selection: DataSelection,
    title: str,
    output: Path,
    json_output: bool,
) -> None:
    """Write the report on multilabel data in two files, and print the recommendation."""
    from recalib import files
    from recalib.reporting.html_report import Source, create_label_report

    with progress("report", quiet=json_output) as update:
        update("reading")
        rows = read_validation_and_test(paths, input, selection, "multilabel")
        validation, test = (
            Source(path.name, files.digest(path), data)
            for path, data in zip(paths, rows, strict=True)
        )
        result = create_label_report(
            validation,
            test,
            maps,
            input=input,
            class_labels=arguments.class_names_of(selection),
            title=title,
            progress=update,
        )
        result.save(output)
    if json_output:
        stages = {"before": result.before, "after": result.after}
        print_json(
            {
                "output": str(output),
                "recommended": {"map": result.choice.map, "reason": result.choice.reason},
                "maps": [asdict(score) for score in result.choice.scores],
                "warnings": result.warnings,
                "metrics": {
                    stage: {name: asdict(estimate) for name, estimate in version.metrics.items()}
                    for stage, version in stages.items()
                },
                "changes": {name: asdict(change) for name, change in result.after.changes.items()},
            }
        )
        return
    for message in result.warnings:
        warn(message)
    say(f"recommended: {result.choice.reason}")
    if result.verdict:
        say(result.verdict)
    say(f"saved {output}")


def _report_on_rows(
    paths: list[Path],
    shifted: list[str],
    pairs: list[tuple[str, str]],
    input: Literal["logits", "probabilities"],
    selection: DataSelection,
    policy: PredictionPolicy,
    title: str,
    segments: tuple[str, ...] | None,
    update: Callable[[str], None],
) -> Report:
    """Return the report on rows in memory; the files of shifted test sets are the last ones."""
    from recalib import files
    from recalib.files.read_columns import read_columns
    from recalib.reporting.html_report import Source, create_report

    rows = [*read_validation_and_test(paths, input, selection)]
    for name, path in zip(shifted, paths[2:], strict=True):
        rows.append(read_labelled(f"shift {name}", path, input, selection, rows[0]))
    sources = [
        Source(path.name, files.digest(path), data) for path, data in zip(paths, rows, strict=True)
    ]
    return create_report(
        sources[0],
        sources[1],
        pairs,
        input=input,
        predictions=policy,
        class_names=arguments.class_names_of(selection),
        shifted=dict(zip(shifted, sources[2:], strict=True)),
        segments=segments and read_columns(paths[1], segments, selection.separator),
        title=title,
        progress=update,
    )


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
