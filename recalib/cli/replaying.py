"""The command on a log of predictions: replay."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recalib.cli.arguments import Json, check_target
from recalib.terminal import narrow_table, print_json, progress, say, warn

if TYPE_CHECKING:
    from rich.table import Table

    from recalib.replay import ClassShares, Replay

__all__ = ["replay"]

#: Times from here on are taken for seconds since 1970: 2001. Earlier ones are shown as numbers.
_EPOCH = 1e9


def replay(
    log: Annotated[
        Path,
        typer.Argument(
            help="Predictions, .parquet: time, confidence or probabilities, correct; label_time,"
            " segment if known.",
            show_default=False,
        ),
    ],
    alpha: Annotated[
        float, typer.Option(help="How often a calibrator may be called stale for nothing.")
    ] = 0.05,
    tolerance: Annotated[
        float, typer.Option(help="How far accuracy may be from confidence for the test.")
    ] = 0.02,
    maturity: Annotated[
        float | None,
        typer.Option(
            help="Seconds to wait for labels; by default those in which 99% of them came.",
            show_default=False,
        ),
    ] = None,
    objective: Annotated[float, typer.Option(help="The ECE that is still good.")] = 0.05,
    window: Annotated[int, typer.Option(help="Labels of a window.")] = 4_000,
    cohort: Annotated[
        float | None,
        typer.Option(help="Seconds of a cohort; by default up to 300 cohorts.", show_default=False),
    ] = None,
    calibrator: Annotated[
        Path | None,
        typer.Option(
            help="Its parameter file: confidences are compared with those of its calibration set,"
            " not with the log's first ones.",
            show_default=False,
        ),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(help="Draw the timeline too: .png, .svg, .html, .json.")
    ] = None,
    json_output: Json = False,
) -> None:
    """Say when a calibrator would have been fresh, suspect or stale, from a log of predictions.

    Predictions are read in cohorts by prediction time, each after it has matured; labels that
    came later are counted and not used. Times are those of predictions.
    """
    from recalib.replay import ReplayOptions
    from recalib.replay import replay as run

    options = ReplayOptions(
        alpha=alpha,
        tolerance=tolerance,
        objective=objective,
        maturity=maturity,
        window_labels=window,
        least_labels=min(300, window),
        cohort=cohort,
    )
    if picture is not None:
        from recalib.reporting.plots import check_suffix

        check_suffix(picture, "picture")
        check_target("picture", picture, log, *([] if calibrator is None else [calibrator]))
    card = None
    if calibrator is not None:
        from recalib.calibrator import Calibrator

        card = Calibrator.load(calibrator).card
    with progress("replay", quiet=json_output) as at:
        found = run(log, options, at, card)
        if picture is not None:
            _draw(picture, found, options.objective, log.name)
    if json_output:
        print_json(found.to_dict())
        return
    for text in _warnings(found):
        warn(text)
    say(_timeline(found, f"{log.name}: {found.rows:,} predictions, {found.labelled:,} labels"))
    say(_maturity(found))
    if found.class_shares is not None:
        say(_class_shares(found.class_shares, None if card is None else card.labels))
    say(f"now {found.state}")
    if picture is not None:
        say(f"saved {picture}")


def _draw(path: Path, found: Replay, objective: float, name: str) -> None:
    from recalib.reporting import plots

    plots.save(plots.timeline(found.windows, objective=objective, heading=name), path)


def _warnings(found: Replay) -> list[str]:
    texts = []
    if not found.events:
        texts.append("nothing has matured: the log is no longer than the time that labels take")
    last = found.windows[-1] if found.windows else {}
    if last.get("selective"):
        texts.append(
            "labels come more often for some confidences than for others; if that is because"
            " errors are labelled more often, the test and the windows are bent by it"
        )
    return texts


def _timeline(found: Replay, heading: str) -> Table:
    table = narrow_table(heading, "prediction time", "state", "why")
    for event in found.events:
        table.add_row(_when(event.time), event.status.state, event.status.reason)
    return table


def _maturity(found: Replay) -> str:
    chosen = "99% of labels came by then" if found.maturity_from == "delays" else "as given"
    first = "the first" if found.reference_from == "log" else "the calibration set's"
    return (
        f"read {_seconds(found.maturity)} after prediction ({chosen}): {found.late:,} labels came"
        f" too late and {found.immature:,} predictions are too young, and are not used; compared"
        f" with {first} {found.reference:,} predictions"
    )


def _class_shares(found: ClassShares, names: tuple[str, ...] | None) -> str:
    """Return how classes would have shifted, and what labels say of that."""
    pairs = list(zip(found.before, found.now, strict=True))
    most = sorted(range(len(pairs)), key=lambda k: -abs(pairs[k][1] - pairs[k][0]))[:3]
    told = ", ".join(
        f"{k if names is None else names[k]} {pairs[k][0]:.1%} to {pairs[k][1]:.1%}" for k in most
    )
    text = (
        f"were it the shares of classes alone that have changed: {told}; {found.moved:.1%} in all,"
        f" where chance makes {found.moved_by_chance:.1%}"
    )
    if found.brier is None or found.brier_rescaled is None:
        return f"{text}; no labels say whether it is"
    return (
        f"{text}; rescaled to them, the squared error of confidences on {found.labels:,} labels"
        f" is {found.brier_rescaled:.4f} instead of {found.brier:.4f}"
    )


def _when(time: float) -> str:
    if time < _EPOCH:
        return f"{time:,.0f}"
    try:
        return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):  # beyond the year 9999
        return f"{time:,.0f}"


def _seconds(seconds: float) -> str:
    for size, unit in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.3g} seconds"
