"""Find the arrays or columns of logits and labels by name: one rule for all formats.

- The numbers are called `logits` or `probabilities`, as the caller declared; never guessed.
- Otherwise, in a table, there is one column a class: the columns whose names are a common prefix
  and the integers 0 to K-1 (`logit_0`, `logit_1`, ...; `p0`, `p1`, ...; `0`, `1`, ...), ordered by
  the integer. If several prefixes qualify, the prefix that starts with the declared word is used
  (`logit...`, `prob...`).
- Otherwise, in a table, there is one column `logit` or `probability`: that of class 1 of 2.
- The caller may name the columns of a table instead, one a class, in the order of the classes, or
  that of class 1 of 2; or the names of the classes, which are the columns of a table that has all
  of them and no column called as declared.
- The labels are called `labels` or `label`.
- Everything else is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from recalib.errors import ColumnsError, InputError
from recalib.files.base import Input

_STEMS: dict[Input, str] = {"logits": "logit", "probabilities": "prob"}
_SINGULAR: dict[Input, str] = {"logits": "logit", "probabilities": "probability"}
_OPPOSITE: dict[Input, Input] = {"logits": "probabilities", "probabilities": "logits"}
#: Without leading zeros: `c01` is not a class number, and may occur beside `c1`.
_NUMBERED = re.compile(r"(.*?)(0|[1-9][0-9]{0,6})", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Names:
    """Names of the array `values`, or of `columns` of numbers; and of the `labels`."""

    values: str | None
    columns: tuple[str, ...]
    labels: str | None


def array_names(names: Sequence[str], declared: Input) -> Names:
    """Find the names among the arrays of a file (npz, safetensors).

    Raises
    ------
    InputError: the declared array is missing, or one of its names occurs twice.
    """
    _check_duplicates(names, {declared, "labels", "label"})
    if declared not in names:
        raise _missing(names, declared, f"an array {declared!r}", _OPPOSITE[declared] in names)
    return Names(declared, (), _labels(names))


def class_columns(
    names: Sequence[str],
    declared: Input,
    class_names: Sequence[str] | None,
    columns: Sequence[str] | None = None,
) -> Sequence[str] | None:
    """Return the columns that the caller names, else `class_names` if they are columns of scores.

    A table with the column `declared`, or without a column of a class, has other columns of scores:
    the result is None.
    """
    if columns is not None:
        return columns
    if not class_names or declared in names or not set(class_names) <= set(names):
        return None
    return class_names


def column_names(
    names: Sequence[str], declared: Input, class_columns: Sequence[str] | None = None
) -> Names:
    """Find the names among the columns of a table (Parquet, Arrow, CSV).

    Parameters
    ----------
    class_columns: names of one column a class, in the order of the classes, if they are known.

    Raises
    ------
    ColumnsError: no column or group of columns matches.
    InputError: several groups match, a column of `class_columns` is missing, or a name to read
        occurs twice.
    """
    single = _SINGULAR[declared]
    _check_duplicates(names, {declared, single, "labels", "label", *(class_columns or ())})
    if class_columns is not None:
        return _of_classes(names, class_columns)
    if declared in names:
        return Names(declared, (), _labels(names))
    accepted = f"a column {declared!r}, or one column a class ({_STEMS[declared]}_0, _1, ...)"
    if _OPPOSITE[declared] in names:
        raise _missing(names, declared, accepted, has_opposite=True)
    if single in names:
        return Names(None, (single,), _labels(names))
    runs = _numbered_columns(names)
    runs = {p: run for p, run in runs.items() if p.lower().startswith(_STEMS[declared])} or runs
    opposite_columns = [p for p in runs if p.lower().startswith(_STEMS[_OPPOSITE[declared]])]
    if not runs or opposite_columns:
        raise _missing(names, declared, accepted, has_opposite=bool(opposite_columns))
    if len(runs) > 1:
        listed = " and ".join(f"{prefix}0..{len(run) - 1}" for prefix, run in runs.items())
        raise InputError(declared, found=f"columns {listed[:200]}", accepted=accepted)
    (columns,) = runs.values()
    _check_duplicates(names, set(columns))
    return Names(None, columns, _labels(names))


def _of_classes(names: Sequence[str], class_columns: Sequence[str]) -> Names:
    labels = _labels(names)
    scores = set(names) - {labels}
    known: set[str] = set()
    for name in class_columns:
        if name not in scores:
            accepted = f"columns of scores: {_listed([n for n in names if n != labels])}"
            raise InputError("columns", found=repr(name), accepted=accepted)
        if name in known:
            raise InputError("columns", found=f"{name!r} twice", accepted="each name once")
        known.add(name)
    return Names(None, tuple(class_columns), labels)


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


def _labels(names: Sequence[str]) -> str | None:
    matches = [name for name in ("labels", "label") if name in names]
    if len(matches) > 1:
        raise InputError("labels", found="both 'labels' and 'label'", accepted="one of the two")
    return matches[0] if matches else None


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
