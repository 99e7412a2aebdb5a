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
    title: Annotated[str, typer.Option(help="What the page is called.")] = "Calibration report",
    input: Input = "logits",
    json_output: Json = False,
) -> None:
    """Write a page that says how good the probabilities are, and what to do about it.

    Maps are fitted to the first file and measured on the second, as by `compare`. The page has it
    all: numbers with intervals, pictures, a recommendation and warnings. It needs no network.
    """
    from recalib import files
    from recalib.report import Source, write_report

    if output.suffix != ".html":
        raise InputError("output", found=str(output), accepted="a name that ends in .html")
    check_target("output", output, validation, test)
    pairs = pairs_of(maps, objectives)
    with progress("report", quiet=json_output) as at:
        at("reading")
        both = read_both(validation, test, input)
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


def read_both(validation: Path, test: Path, input: Any) -> tuple[LabelledData, LabelledData]:
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
    return both[0], both[1]


def pairs_of(maps: str, objectives: str) -> list[tuple[str, str]]:
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
