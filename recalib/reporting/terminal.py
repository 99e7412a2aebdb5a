"""Terminal output of commands: text, tables, JSON and progress."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from recalib.core.sanitize import sanitize_text

if TYPE_CHECKING:  # the card imports NumPy, which `--help` does not need
    from recalib.core.card import AutoChoice, CandidateResult, MetricValue
    from recalib.metrics.evaluation import Evaluation


#: An argument of a function, such as task="multilabel".
_ARGUMENT = re.compile(r'\b([a-z_]+)="([a-z_]+)"')


class _Console(Console):
    """A console that escapes control characters in text and table cells."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(sanitize_text(text), **options)


# Without markup and emoji: names of files and classes may contain [red] or :smile:.
_out = _Console(highlight=False, markup=False, emoji=False)
_err = _Console(stderr=True, highlight=False, markup=False, emoji=False)


def is_percentage(metric: str) -> bool:
    """Return whether tables show a metric as a percentage; JSON always carries fractions."""
    # Imported here because most commands show no metrics.
    from recalib.metrics import METRICS

    return metric in METRICS and METRICS[metric].unit == "fraction"


def print_json(value: Any) -> None:
    """Print one JSON document; NaN is an error, since JSON cannot represent it."""
    print(json.dumps(value, indent=2, allow_nan=False))  # noqa: T201


def say(*texts: Any) -> None:
    """Print texts and tables to standard output, each on lines of its own."""
    for text in texts:
        _out.print(text, soft_wrap=True)


def show(
    document: Any, *texts: Any, warnings: Iterable[str] = (), json_output: bool = False
) -> None:
    """Print the result of a command: warnings, then texts and tables that are not empty.

    With `json_output` it is the document instead.
    """
    if json_output:
        print_json(document)
        return
    warn(*warnings)
    say(*filter(None, texts))


def name_options(text: str) -> str:
    """Return a message of the library with options of the command line in place of arguments.

    >>> name_options('if these are probabilities, write input="probabilities"')
    'if these are probabilities, write --input probabilities'
    """
    return _ARGUMENT.sub(lambda match: f"--{match[1].replace('_', '-')} {match[2]}", text)


def warn(*texts: str) -> None:
    """Print warnings to standard error."""
    for text in texts:
        _err.print(f"warning: {name_options(text)}", style="yellow", soft_wrap=True)


def narrow_table(title: str, *columns: str) -> Table:
    """Return an empty table; only the column "why" wraps lines."""
    # Times and intervals are wide, and a terminal may be narrow.
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    for name in columns:
        table.add_column(name, no_wrap=name != "why")
    return table


def metrics_table(columns: Mapping[str, Mapping[str, Any]], title: str | None = None) -> Table:
    """Return a table with a row for each metric, and a column for each of `columns`.

    A cell is a value with `low` and `high`, None without an interval; it is empty where the column
    has no such metric. A single column with noise floors gets a second column for them: the values
    of a perfectly calibrated classifier.
    """
    table = Table(title=title, title_justify="left")
    table.add_column("metric")
    for name in columns:
        table.add_column(name, justify="right")
    first = next(iter(columns.values()))
    names = dict.fromkeys(chain(*columns.values()))
    floors = {name: getattr(first.get(name), "floor", None) for name in names}
    show_floors = len(columns) == 1 and any(floor is not None for floor in floors.values())
    if show_floors:
        table.add_column("noise floor", justify="right")
    for name, floor in floors.items():
        cells = [_cell(name, column[name]) if name in column else "" for column in columns.values()]
        table.add_row(name, *cells, *([_with_unit(name, floor)] if show_floors else []))
    return table


def segments_table(segments: Mapping[str, Evaluation[Any]]) -> Table:
    """Return a table of the calibration error, or else the first metric, of each segment.

    Intervals hold together: they have the level 1 − 0.05 / the number of segments.
    """
    from recalib.metrics.headline import headline_error

    first = next(iter(segments.values()))
    name = error if (error := headline_error(first)) in first else next(iter(first))
    title = f"{name} by segment; all {len(segments)} intervals hold together with 95%"
    table = narrow_table(title, "segment", "rows", name, "noise floor")
    for segment, part in sorted(segments.items(), key=lambda item: -(item[1][name].low or 0.0)):
        floor = _with_unit(name, part[name].floor)
        table.add_row(segment, str(part.rows), _cell(name, part[name]), floor)
    return table


#: Characters of a number.
_WIDTH = 6


def comparison_table(
    keys: Sequence[str],
    rows: Sequence[tuple[Sequence[str], Mapping[str, Any]]],
    title: str | None = None,
    metrics: Sequence[str] = (),
) -> Table:
    """Return a table with a line for each of `rows`, and a column for each of `metrics`.

    By default these are the headline metrics, which fit into the width of a terminal. A metric that
    a row does not have is left out. The noise floor of the headline error is beside it.
    """
    # Imported here because most commands show no metrics.
    from recalib.metrics.headline import headline_error, headline_metrics

    common = set.intersection(*(set(of_row) for _, of_row in rows))
    names = [name for name in metrics if name in common] or headline_metrics(common)
    table = Table(
        title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0)
    )
    for key in keys:
        table.add_column(key, no_wrap=True)
    error = headline_error(common)
    has_floor = error in names and all(of_row[error].floor is not None for _, of_row in rows)
    columns = [(name, name.replace("_", " "), "value") for name in names]
    if has_floor:
        columns.insert(names.index(error) + 1, (error, "its floor", "floor"))
    for name, head, _ in columns:
        # A minimum width prevents truncated numbers and names.
        width = max(_WIDTH, *map(len, head.split()))
        unit = "\n%" if is_percentage(name) else ""
        table.add_column(head.replace(" ", "\n") + unit, justify="right", min_width=width)
    for values, of_row in rows:
        cells = (_number(name, getattr(of_row[name], kind)) for name, _, kind in columns)
        table.add_row(*values, *cells)
    return table


def candidates_table(choice: AutoChoice) -> Table:
    """Return a table of the candidates that have predicted all folds, and why others have not."""
    rows = f"{choice.rows} rows in {choice.folds} folds"
    table = Table(
        title=f"cross-validated on {rows}; NLL and what it is over temperature's, 95% intervals",
        title_justify="left",
        caption=_verdicts(c for c in choice.candidates if c.nll is None),
        caption_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    table.add_column("")
    for name in ("map", "objective"):
        table.add_column(name, no_wrap=True)
    for name in ("nll", "over temperature"):
        table.add_column(name, justify="right", no_wrap=True)
    for candidate in choice.candidates:
        if candidate.nll is not None:
            change = _format_change(candidate.nll_difference)
            names = "*" if candidate.chosen else "", candidate.map, candidate.objective
            table.add_row(*names, f"{candidate.nll.value:.4f}", change)
    return table


def _verdicts(candidates: Iterable[CandidateResult]) -> str:
    """Return a line for each verdict, with the maps that have it."""
    names: dict[str, list[str]] = {}
    for candidate in candidates:
        names.setdefault(candidate.verdict, []).append(candidate.map)
    return "\n".join(f"{verdict}: {', '.join(maps)}" for verdict, maps in names.items())


def _format_change(metric: MetricValue | None) -> str:
    if metric is None or metric.low is None or metric.high is None:
        return ""
    return f"{metric.value:+.4f} [{metric.low:+.4f}, {metric.high:+.4f}]"


def _cell(name: str, metric: Any) -> str:
    text = _number(name, metric.value)
    if metric.low is not None:
        text += f" [{_number(name, metric.low)}, {_number(name, metric.high)}]"
    return text + _unit(name)


def _with_unit(name: str, value: float | None) -> str:
    return "" if value is None else _number(name, value) + _unit(name)


def _unit(name: str) -> str:
    return " %" if is_percentage(name) else ""


def _number(name: str, value: float) -> str:
    return f"{value * 100:.2f}" if is_percentage(name) else f"{value:.4f}"


@contextlib.contextmanager
def progress(stage: str, *, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Show a progress bar on a terminal; yield a function that sets the current activity."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(
        *columns, console=_err, transient=True, disable=quiet or not _err.is_terminal
    ) as bar:
        task = bar.add_task(stage, total=None)
        yield lambda text: bar.update(task, description=f"{stage}: {text}")
