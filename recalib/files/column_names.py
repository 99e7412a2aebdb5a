"""Which array or column is which: one rule for all formats that name their arrays.

- The numbers are called `logits` or `probabilities`, as the caller declared; never guessed.
- Otherwise, in a table, they are one column a class: the columns whose names are one common
  prefix and the integers 0 to K-1 (`logit_0`, `logit_1`, ...; `p0`, `p1`, ...; `0`, `1`, ...),
  in the order of the integers, wherever they stand. Where several prefixes qualify, the one
  that begins with the declared word counts (`logit...`, `prob...`).
- The labels are called `labels` or `label`.
- Everything else is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from recalib.errors import InputError
from recalib.files.base import Input

__all__ = ["Names", "array_names", "column_names"]

_STEMS: dict[Input, str] = {"logits": "logit", "probabilities": "prob"}
_OTHER: dict[Input, Input] = {"logits": "probabilities", "probabilities": "logits"}
#: No leading zeros: `c01` is not how anybody counts classes, and `c1` may stand beside it.
_NUMBERED = re.compile(r"(.*?)(0|[1-9][0-9]{0,6})", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Names:
    """The array `values`, or one column a class in `columns`; `labels` where there are any."""

    values: str | None
    columns: tuple[str, ...]
    labels: str | None


def array_names(names: Sequence[str], declared: Input) -> Names:
    """Choose among the arrays of a file (npz, safetensors).

    Raises
    ------
    InputError: the declared array is missing, or a name that matters occurs twice.
    """
    _refuse_twice(names, {declared, "labels", "label"})
    if declared not in names:
        raise _missing(names, declared, f"an array {declared!r}", _OTHER[declared] in names)
    return Names(declared, (), _labels(names))


def column_names(names: Sequence[str], declared: Input) -> Names:
    """Choose among the columns of a table (Parquet, Arrow, CSV).

    Raises
    ------
    InputError: no column or no run of columns fits, more than one does, or a name that
        matters occurs twice.
    """
    _refuse_twice(names, {declared, "labels", "label"})
    if declared in names:
        return Names(declared, (), _labels(names))
    wanted = f"a column {declared!r}, or one column a class ({_STEMS[declared]}_0, _1, ...)"
    if _OTHER[declared] in names:
        raise _missing(names, declared, wanted, other=True)
    runs = _runs(names)
    runs = {p: run for p, run in runs.items() if p.lower().startswith(_STEMS[declared])} or runs
    others = [p for p in runs if p.lower().startswith(_STEMS[_OTHER[declared]])]
    if not runs or others:
        raise _missing(names, declared, wanted, other=bool(others))
    if len(runs) > 1:
        listed = " and ".join(f"{prefix}0..{len(run) - 1}" for prefix, run in runs.items())
        raise InputError(declared, found=f"columns {listed[:200]}", accepted=wanted)
    (columns,) = runs.values()
    _refuse_twice(names, set(columns))
    return Names(None, columns, _labels(names))


def _runs(names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    numbers: dict[str, set[int]] = {}
    for name in names:
        if (match := _NUMBERED.fullmatch(name)) is not None:
            numbers.setdefault(match[1], set()).add(int(match[2]))
    return {
        prefix: tuple(f"{prefix}{k}" for k in range(len(found)))
        for prefix, found in numbers.items()
        if len(found) >= 2 and max(found) == len(found) - 1
    }


def _labels(names: Sequence[str]) -> str | None:
    found = [name for name in ("labels", "label") if name in names]
    if len(found) > 1:
        raise InputError("labels", found="both 'labels' and 'label'", accepted="one of the two")
    return found[0] if found else None


def _refuse_twice(names: Sequence[str], matter: set[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen and name in matter:
            raise InputError(name, found="this name twice", accepted="each name once")
        seen.add(name)


def _missing(names: Sequence[str], declared: Input, wanted: str, other: bool) -> InputError:
    if other:
        found = f"no {declared}, but {_OTHER[declared]}"
        hint = f" (if {_OTHER[declared]} are meant, pass --input {_OTHER[declared]})"
        return InputError(declared, found=found, accepted=wanted + hint)
    listed = ", ".join(repr(name[:40]) for name in names[:8]) or "nothing"
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return InputError(declared, found=listed + more, accepted=wanted)
