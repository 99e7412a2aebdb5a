"""`recalib report`: write an HTML report on calibration."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from recalib.cli.arguments import (
    InputKind,
    JsonOutput,
    LabelledFile,
    MapNames,
    ObjectiveNames,
    OutputFile,
    PreserveAccuracy,
    TestFile,
    check_output_path,
)
from recalib.cli.comparison import compatible_pairs, read_labelled, read_validation_and_test
from recalib.errors import InputError
from recalib.terminal import print_json, progress, say, warn

__all__ = ["report"]

#: Names of the files that every report has.
_RESERVED_NAMES = ("validation", "test")
#: A picture with more test sets is hard to read.
_MAX_SHIFTED_SETS = 20


def report(
    validation: LabelledFile,
    test: TestFile,
    output: OutputFile,
    maps: MapNames = "",
    objectives: ObjectiveNames = "nll",
    preserve_accuracy: PreserveAccuracy = True,
    shift: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FILE",
            help="A shifted test set to show next to the test file; repeatable, in order.",
        ),
    ] = None,
    title: Annotated[str, typer.Option(help="The title of the page.")] = "Calibration report",
    input: InputKind = "logits",
    json_output: JsonOutput = False,
) -> None:
    """Write an HTML report with a recommendation.

    Maps are fitted to the first file and measured on the second, as by `compare`. The page says
    whether calibration helps and by how much, with intervals, and shows pictures and warnings. It
    runs no code and loads nothing from the network.
    """
    from recalib import files
    from recalib.reporting.html_report import Source, create_report

    if output.suffix != ".html":
        raise InputError("output", found=str(output), accepted="a name that ends in .html")
    shifted_paths = _parse_shifted_sets(shift or [])
    check_output_path("output", output, validation, test, *shifted_paths.values())
    pairs = compatible_pairs(maps, objectives)
    with progress("report", quiet=json_output) as update:
        update("reading")
        validation_rows, test_rows = read_validation_and_test(validation, test, input)
        shifted_sources = {}
        for name, path in shifted_paths.items():
            rows = read_labelled(f"shift {name}", path, input, validation_rows)
            shifted_sources[name] = Source(path.name, files.digest(path), rows)
        result = create_report(
            Source(validation.name, files.digest(validation), validation_rows),
            Source(test.name, files.digest(test), test_rows),
            pairs,
            input=input,
            preserve_accuracy=preserve_accuracy,
            shifted=shifted_sources,
            title=title,
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


def _parse_shifted_sets(options: list[str]) -> dict[str, Path]:
    """Return the files of NAME=FILE options by name, in order."""
    paths: dict[str, Path] = {}
    for option in options:
        name, equals, path = option.partition("=")
        if not (name.strip() and equals and path):
            raise InputError("shift", found=repr(option), accepted="NAME=FILE")
        if name in paths or name in _RESERVED_NAMES:
            accepted = f"names that differ, and none of {', '.join(_RESERVED_NAMES)}"
            raise InputError("shift", found=repr(name), accepted=accepted)
        paths[name] = Path(path)
    if len(paths) > _MAX_SHIFTED_SETS:
        accepted = f"at most {_MAX_SHIFTED_SETS}"
        raise InputError("shift", found=f"{len(paths)} files", accepted=accepted)
    return paths
