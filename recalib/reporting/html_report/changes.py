"""Text about changes of metrics: in tables and in sentences."""

from __future__ import annotations

from collections.abc import Mapping

from recalib.metrics.headline import headline_error
from recalib.metrics.paired import Change
from recalib.reporting.terminal import is_percentage

_NAMES = {
    "accuracy": "accuracy",
    "binary_ece": "the ECE of P(y = 1)",
    "brier": "the Brier score",
    "ece": "ECE",
    "nll": "NLL",
}
#: A verdict in a table; nothing for a metric that is good neither high nor low.
VERDICT_WORDS = {
    "better": "better",
    "worse": "worse",
    "unclear": "no clear change",
    "equal": "no change",
    "none": "",
}
_CALIBRATION_HEADS = {
    "better": "Calibration helps",
    "worse": "Calibration does harm",
    "unclear": "These rows do not show whether calibration helps",
    "equal": "Calibration changes no probability",
}


def verdict_sentence(changes: Mapping[str, Change]) -> str:
    """Return whether calibration helps, by NLL, and the changes of NLL, ECE and accuracy.

    The ECE of two classes is that of P(y = 1).

    NLL decides because it is a proper score: calibration errors alone can fall while predictions
    become less informative.
    """
    return _verdict(_CALIBRATION_HEADS, changes)


def version_sentence(reference: str, version: str, changes: Mapping[str, Change]) -> str:
    """Return which of two versions is better, by NLL, and the changes as `verdict_sentence`."""
    heads = {
        "better": f"{version} is better than {reference}",
        "worse": f"{version} is worse than {reference}",
        "unclear": f"These rows do not show which of {reference} and {version} is better",
        "equal": f"{version} and {reference} give the same probabilities",
    }
    return _verdict(heads, changes)


def _verdict(heads: Mapping[str, str], changes: Mapping[str, Change]) -> str:
    names = ("nll", headline_error(changes), "accuracy")
    parts = (sentence(name, changes[name]) for name in names)
    head = heads[changes["nll"].verdict]
    return f"{head[0].upper()}{head[1:]}: {'; '.join(parts)}."


def sentence(name: str, change: Change) -> str:
    """Return a change in words, without a full stop."""
    metric = _NAMES[name]
    if change.verdict == "equal":
        return f"{metric} does not change"
    interval = f"95% interval {interval_text(name, change)}"
    if change.verdict == "unclear":
        return f"{metric} does not change clearly ({change_text(name, change)}, {interval})"
    verb = "falls" if change.value < 0 else "rises"
    low, high = sorted((abs(change.low), abs(change.high)))
    unit = " percentage points" if is_percentage(name) else ""
    return (
        f"{metric} {verb} by {_size(name, abs(change.value))}{unit} "
        f"(95% interval {_size(name, low)} to {_size(name, high)})"
    )


def change_text(name: str, change: Change) -> str:
    """Return the change with its sign, of a fraction in percentage points (pp)."""
    return _format_signed(name, change.value) + (" pp" if is_percentage(name) else "")


def interval_text(name: str, change: Change) -> str:
    """Return the interval of a change, with signs."""
    return f"{_format_signed(name, change.low)} to {_format_signed(name, change.high)}"


def _format_signed(name: str, value: float) -> str:
    text = _size(name, abs(value))
    if not float(text):
        return text
    return ("−" if value < 0 else "+") + text


def _size(name: str, value: float) -> str:
    return f"{100 * value:.2f}" if is_percentage(name) else f"{value:.4f}"
