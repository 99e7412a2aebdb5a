"""Commands on a validation and a test file: compare, report."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from recalib.card import CandidateResult
from recalib.cli.arguments import Data, Input, Json, Output, check_target
from recalib.errors import InputError
from recalib.terminal import (
    candidates_table,
    comparison_table,
    print_json,
    progress,
    say,
    warn,
)

if TYPE_CHECKING:
    from recalib.files import LabelledData

__all__ = ["compare", "report"]

#: Of the files that every report has.
_TAKEN = ("validation", "test")
#: Of which a picture can still be read.
_MOST_SHIFTED = 20
_Test = Annotated[Path, typer.Argument(help="Data that no fit sees.", show_default=False)]
_Maps = Annotated[str, typer.Option(help="Maps, comma-separated; all by default.")]
_Objectives = Annotated[
    str, typer.Option(help="Objectives, comma-separated; `all` of them takes minutes.")
]
_Preserve = Annotated[
    bool,
    typer.Option(
        "--preserve-accuracy/--any-accuracy",
        help="Recommend only maps that never change the predicted class.",
    ),
]


def compare(
    validation: Data,
    test: _Test,
    maps: _Maps = "",
    objectives: _Objectives = "nll",
    preserve_accuracy: _Preserve = True,
    input: Input = "logits",
    json_output: Json = False,
) -> None:
    """Fit several maps on one file and measure them on another.

    One of them is recommended: by cross-validation on the first file, as `fit --map auto` chooses,
    so that the second one has no part in it. Pairs that do not go together, and maps that the data
    is too large for, are left out.
    """
    from recalib.fitting.comparison import compare as compare_maps

    pairs = pairs_of(maps, objectives)
    with progress("compare", quiet=json_output) as at:
        comparison = compare_maps(
            *read_both(validation, test, input),
            pairs,
            input=input,
            preserve_accuracy=preserve_accuracy,
            progress=at,
        )
    for refusal in comparison.left_out:
        warn(f"left out: {refusal}")
    if json_output:
        print_json(
            [
                {
                    "map": one.calibrator.card.map,
                    "objective": one.calibrator.card.objective,
                    "fit_seconds": one.calibrator.card.fit.seconds,
                    "metrics": {name: found.value for name, found in one.metrics.items()},
                    **_held_out(one.held_out),
                }
                for one in comparison.entries
            ]
        )
        return
    rows = []
    for one in comparison.entries:
        card = one.calibrator.card
        for text in (*card.fit.bounds_reached, *card.fit.warnings):
            warn(f"{card.map}: {text}")
        rows.append(([card.map, card.objective], one.metrics))
    title = f"fitted on {validation.name}, measured on {test.name}"
    say(comparison_table(("map", "objective"), rows, title))
    say(candidates_table(comparison.choice))
    say(f"recommended: {comparison.choice.reason}")


def report(
    validation: Data,
    test: _Test,
    output: Output,
    maps: _Maps = "",
    objectives: _Objectives = "nll",
    preserve_accuracy: _Preserve = True,
    shift: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FILE",
            help="A shifted test set to show beside the test file; repeatable, in order.",
        ),
    ] = None,
    title: Annotated[str, typer.Option(help="What the page is called.")] = "Calibration report",
    input: Input = "logits",
    json_output: Json = False,
) -> None:
    """Write a page that says how good the probabilities are, and what to do about it.

    Maps are fitted to the first file and measured on the second, as by `compare`. The page has it
    all: numbers with intervals, pictures, a recommendation and warnings. It needs no network.
    """
    from recalib import files
    from recalib.reporting.html_report import Source, write_report

    if output.suffix != ".html":
        raise InputError("output", found=str(output), accepted="a name that ends in .html")
    shifted = shifted_sets(shift or [])
    check_target("output", output, validation, test, *shifted.values())
    pairs = pairs_of(maps, objectives)
    with progress("report", quiet=json_output) as at:
        at("reading")
        both = read_both(validation, test, input)
        others = {}
        for name, path in shifted.items():
            rows = _read(f"shift {name}", path, input, both[0])
            others[name] = Source(path.name, files.digest(path), rows)
        one, other = (
            Source(path.name, files.digest(path), rows)
            for path, rows in zip((validation, test), both, strict=True)
        )
        found = write_report(
            output,
            one,
            other,
            pairs,
            input=input,
            preserve_accuracy=preserve_accuracy,
            shifted=others,
            title=title,
            progress=at,
        )
    choice = found.comparison.choice
    if json_output:
        print_json(
            {
                "output": str(output),
                "recommended": {
                    "map": choice.map, "objective": choice.objective, "reason": choice.reason
                },
                "warnings": found.warnings,
                "metrics": {
                    when: {name: asdict(one) for name, one in metrics.items()}
                    for when, metrics in (("before", found.before), ("after", found.after))
                },
                "shift": [asdict(one) for one in found.shift],
            }
        )  # fmt: skip
        return
    for text in found.warnings:
        warn(text)
    say(f"recommended: {choice.reason}")
    say(f"saved {output}")


def _held_out(one: CandidateResult) -> dict[str, Any]:
    """Return what cross-validation said of a candidate, as JSON."""
    scores = {"nll": one.nll, "brier": one.brier, "nll_difference": one.nll_difference}
    return {
        "chosen": one.chosen,
        "verdict": one.verdict,
        "cross_validated": None if one.nll is None else msgspec.to_builtins(scores),
    }


def shifted_sets(texts: list[str]) -> dict[str, Path]:
    """Return the files of NAME=FILE options by their names, in order."""
    found: dict[str, Path] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        if not (name.strip() and equals and path):
            raise InputError("shift", found=repr(text), accepted="NAME=FILE")
        if name in found or name in _TAKEN:
            accepted = f"names that differ, and none of {', '.join(_TAKEN)}"
            raise InputError("shift", found=repr(name), accepted=accepted)
        found[name] = Path(path)
    if len(found) > _MOST_SHIFTED:
        raise InputError("shift", found=f"{len(found)} files", accepted=f"at most {_MOST_SHIFTED}")
    return found


def read_both(validation: Path, test: Path, input: Any) -> tuple[LabelledData, LabelledData]:
    """Return the rows of both files; an error says in which of them it is."""
    one = _read("validation", validation, input)
    return one, _read("test", test, input, one)


def _read(name: str, path: Path, input: Any, like: LabelledData | None = None) -> LabelledData:
    """Return the rows of a file, of as many classes as `like`; an error says in which it is."""
    from recalib import files

    try:
        rows = files.read(path, input=input)
    except InputError as error:
        field = f"{name}: {error.field}"
        raise type(error)(field, found=error.found, accepted=error.accepted) from error
    of_this = rows.logits.shape[1]
    if like is not None and of_this != like.logits.shape[1]:
        accepted = f"{like.logits.shape[1]}, as in the validation file"
        raise InputError(f"{name}: logits", found=f"{of_this} classes", accepted=accepted)
    return rows


def pairs_of(maps: str, objectives: str) -> list[tuple[str, str]]:
    """Return the pairs of map and objective that go together; say so if a wish is left out."""
    from recalib.fitting.fit import configure_pair
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
            configure_pair(map_name, objective, {})
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
