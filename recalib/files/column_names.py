"""Find the arrays or columns of scores, labels and weights by name: one rule for all formats.

- The scores are called `logits` or `probabilities`, as the caller declared; never guessed.
- Otherwise, in a table, there is one column a class: the columns whose names are a common prefix
  and the integers 0 to K-1 (`logit_0`, `logit_1`, ...; `p0`, `p1`, ...; `0`, `1`, ...), ordered by
  the integer. If several prefixes qualify, the prefix that starts with the declared word is used
  (`logit...`, `prob...`).
- Otherwise, in a table, there is one column `logit` or `probability`: that of class 1 of 2.
- The labels are called `labels` or `label`, else `y_true` or `ground_truth`; weights have no name.
- A `DataSelection` of the caller comes first. Everything else is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from recalib.errors import ColumnsError, InputError
from recalib.files.base import NO_SELECTION, DataSelection, Input

_STEMS: dict[Input, str] = {"logits": "logit", "probabilities": "prob"}
_SINGULAR: dict[Input, str] = {"logits": "logit", "probabilities": "probability"}
_OPPOSITE: dict[Input, Input] = {"logits": "probabilities", "probabilities": "logits"}
#: The first names that a file has.
_LABELS = (("labels", "label"), ("y_true", "ground_truth"))
#: Without leading zeros: `c01` is not a class number, and may occur beside `c1`.
_NUMBERED = re.compile(r"(.*?)(0|[1-9][0-9]{0,6})", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Names:
    """Names of the array `values`, or of `columns` of numbers; of the `labels` and `weights`.

    `class_names` are names that labels may have, those of the columns or of the caller.
    """

    values: str | None
    columns: tuple[str, ...]
    labels: str | None
    weights: str | None = None
    class_names: tuple[str, ...] | None = None


def array_names(
    names: Sequence[str], declared: Input, selection: DataSelection = NO_SELECTION
) -> Names:
    """Find the names among the arrays of a file (npz, safetensors, json).

    Raises
    ------
    ColumnsError: the declared array is missing.
    InputError: an array of the selection is missing, or one of the names occurs twice.
    """
    (values, *more) = selection.scores or (declared,)
    if more:
        found = ", ".join(selection.scores or ())[:60]
        raise InputError("scores", found=found, accepted="the name of one array (N, K)")
    labels, weights = _others(names, selection)
    _check_duplicates(names, {values, "labels", "label", *filter(None, (labels, weights))})
    if values in names:
        return Names(values, (), labels, weights)
    if selection.scores:
        raise InputError("scores", found=repr(values), accepted=f"one of {_listed(names)}")
    raise _missing(names, declared, f"an array {declared!r}", _OPPOSITE[declared] in names)


def class_columns(
    names: Sequence[str], declared: Input, class_names: Sequence[str] | None
) -> Sequence[str] | None:
    """Return `class_names` if they are columns of scores.

    A table with the column `declared`, or without a column of a class, has other columns of scores:
    the result is None.
    """
    if not class_names or declared in names or not set(class_names) <= set(names):
        return None
    return class_names


def column_names(
    names: Sequence[str], declared: Input, selection: DataSelection = NO_SELECTION
) -> Names:
    """Find the names among the columns of a table (Parquet, Arrow, CSV).

    Raises
    ------
    ColumnsError: no column or group of columns matches.
    InputError: several groups match, a column of the selection is missing, or a name to read occurs
        twice.
    """
    labels, weights = _others(names, selection)
    known = {declared, _SINGULAR[declared], "labels", "label", *filter(None, (labels, weights))}
    known_names = selection.class_names
    columns = selection.scores or class_columns(names, declared, known_names)
    _check_duplicates(names, {*known, *(columns or ())})
    others = [name for name in names if name not in (labels, weights)]
    if columns is not None:
        _check_columns(others, columns)
        if len(columns) == 1:
            return Names(columns[0], (), labels, weights, known_names)
        return Names(None, tuple(columns), labels, weights, known_names or tuple(columns))
    if declared in names:
        return Names(declared, (), labels, weights, known_names)
    columns = _columns_by_number(names, others, declared)
    _check_duplicates(names, set(columns))
    return Names(None, columns, labels, weights, known_names)


def _columns_by_number(
    names: Sequence[str], others: Sequence[str], declared: Input
) -> tuple[str, ...]:
    """Return the numbered columns among `others`, or the one column of class 1 of 2."""
    accepted = f"a column {declared!r}, or one column a class ({_STEMS[declared]}_0, _1, ...)"
    if _OPPOSITE[declared] in names:
        raise _missing(names, declared, accepted, has_opposite=True)
    if _SINGULAR[declared] in others:
        return (_SINGULAR[declared],)
    runs = _numbered_columns(others)
    runs = {p: run for p, run in runs.items() if p.lower().startswith(_STEMS[declared])} or runs
    opposite_columns = [p for p in runs if p.lower().startswith(_STEMS[_OPPOSITE[declared]])]
    if not runs or opposite_columns:
        raise _missing(names, declared, accepted, has_opposite=bool(opposite_columns))
    if len(runs) > 1:
        listed = " and ".join(f"{prefix}0..{len(run) - 1}" for prefix, run in runs.items())
        raise InputError(declared, found=f"columns {listed[:200]}", accepted=accepted)
    (columns,) = runs.values()
    return columns


def _check_columns(scores: Sequence[str], columns: Sequence[str]) -> None:
    """Raise `InputError` for columns that are not scores, or that occur twice."""
    for position, name in enumerate(columns):
        if name not in scores:
            accepted = f"columns of scores: {_listed(scores)}"
            raise InputError("scores", found=repr(name), accepted=accepted)
        if name in columns[:position]:
            raise InputError("scores", found=f"{name!r} twice", accepted="each name once")


def _others(names: Sequence[str], selection: DataSelection) -> tuple[str | None, str | None]:
    """Return the names of the labels and of the weights."""
    for field, name in (("label", selection.label), ("weights", selection.weights)):
        if name is not None and name not in names:
            raise InputError(field, found=repr(name), accepted=f"one of {_listed(names)}")
    return selection.label or label_name(names), selection.weights


def _numbered_columns(names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    numbers: dict[str, set[int]] = {}
    for name in names:
        if (match := _NUMBERED.fullmatch(name)) is not None:
            numbers.setdefault(match[1], set()).add(int(match[2]))
    return {
        prefix: tuple(f"{prefix}{k}" for k in range(len(indices)))
        for prefix, indices in numbers.items()
        if len(indices) >= 2 and max(indices) == len(indices) - 1
    }


def label_name(names: Sequence[str]) -> str | None:
    """Return the name of the labels, None without any.

    Raises
    ------
    InputError: two names are possible.
    """
    for possible in _LABELS:
        matches = [name for name in possible if name in names]
        if len(matches) > 1:
            found = f"both {matches[0]!r} and {matches[1]!r}"
            raise InputError("labels", found=found, accepted="one of the two")
        if matches:
            return matches[0]
    return None


def _check_duplicates(names: Sequence[str], relevant: set[str]) -> None:
    known_columns: set[str] = set()
    for name in names:
        if name in known_columns and name in relevant:
            raise InputError(name, found="this name twice", accepted="each name once")
        known_columns.add(name)


def _missing(
    names: Sequence[str], declared: Input, accepted: str, has_opposite: bool
) -> InputError:
    if has_opposite:
        found = f"no {declared}, but {_OPPOSITE[declared]}"
        hint = f' (if {_OPPOSITE[declared]} are meant, write input="{_OPPOSITE[declared]}")'
        return InputError(declared, found=found, accepted=accepted + hint)
    return ColumnsError(declared, found=_listed(names), accepted=accepted)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return (", ".join(repr(name[:40]) for name in names[:8]) or "nothing") + more
