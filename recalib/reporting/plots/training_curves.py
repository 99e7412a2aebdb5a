"""Training curves: scores, calibration and weights over the epochs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import altair as alt

from recalib.errors import InputError
from recalib.reporting.plots.style import apply_style, colours, inline, percent, title

_WIDTH, _HEIGHT = 300, 190
_SPLITS = ("train", "validation", "test")
_MOST_EPOCHS = 5000
#: Returns a line's value from a record, or None.
_Line = Callable[[Mapping[str, Any]], float | None]


def training_curves(
    records: Sequence[Mapping[str, Any]], name: str = "Training"
) -> alt.VConcatChart:
    """Return curves over the epochs of a run, as `metrics.jsonl` holds them.

    The curves of paper 004, figures 2 and 3, for a network that becomes miscalibrated: NLL of all,
    right and wrong rows, ECE, entropy and the norm of the weights. The x axis is the order of the
    records; the epochs of a restarted run follow on the right.

    Raises
    ------
    InputError: no records, or over 5,000.
    """
    if not 1 <= len(records) <= _MOST_EPOCHS:
        found = f"{len(records)} records"
        raise InputError("records", found=found, accepted=f"1 to {_MOST_EPOCHS}")
    panels = [
        _panel(records, "NLL", {split: _of(split, "nll") for split in _SPLITS}),
        _panel(records, "ECE", {split: _of(split, "ece") for split in _SPLITS}, share=True),
        _panel(
            records, "accuracy", {split: _of(split, "accuracy") for split in _SPLITS}, share=True
        ),
        _panel(records, "NLL of test rows", {
            "right": _of("test", "nll_right"), "wrong": _of("test", "nll_wrong"),
        }),
        _panel(records, "entropy, nats", {split: _of(split, "entropy") for split in _SPLITS}),
        _panel(records, "norm of weights", {
            "all": lambda record: record["weight_norm"],
            "last layer": lambda record: record["head_norm"],
        }),
    ]  # fmt: skip
    rows = [
        alt.hconcat(*panels[start : start + 3]).resolve_scale(
            color="independent", strokeDash="independent"
        )
        for start in (0, 3)
    ]
    # Each panel has its own legend, because the lines differ.
    figure: alt.VConcatChart = alt.vconcat(*rows).resolve_scale(
        color="independent", strokeDash="independent"
    )
    epochs = [f"{len(records)} epochs"]
    figure.title = title(name, epochs, 3 * _WIDTH)
    return apply_style(figure, legend_columns=3)


def _of(split: str, metric: str) -> _Line:
    return lambda record: record[split][metric]


def _panel(
    records: Sequence[Mapping[str, Any]],
    text: str,
    lines: Mapping[str, _Line],
    *,
    share: bool = False,
) -> alt.Chart:
    values = [
        {"epoch": place, "series": name, "value": value}
        for name, line in lines.items()
        for place, record in enumerate(records, 1)
        if (value := line(record)) is not None
    ]
    legend = alt.Legend(symbolType="stroke", symbolSize=400, symbolStrokeWidth=2, symbolOpacity=1)
    axis = percent(text) if share else alt.Axis(title=text, tickCount=5)
    # Vega halves the steps of few epochs, whatever their least step.
    ticks = list(range(1, len(records) + 1)) if len(records) < 10 else alt.Undefined
    mark = alt.MarkDef("line", strokeWidth=2, point=len(records) == 1)
    return alt.Chart(inline(values), mark=mark, width=_WIDTH, height=_HEIGHT).encode(
        x=alt.X("epoch:Q", axis=alt.Axis(title="epoch", format="d", values=ticks)),
        y=alt.Y("value:Q", axis=axis, scale=alt.Scale(zero=False)),
        color=colours(list(lines)).legend(legend),
        strokeDash=colours(list(lines), "strokeDash").legend(legend),
    )
