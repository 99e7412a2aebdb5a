"""How far something long is: a bar on a terminal, or whatever the caller wants to be told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

__all__ = ["Progress", "Report", "reporting"]

#: Hears the fraction that is done, from 0 to 1, and what is being done.
Report: TypeAlias = Callable[[float, str], None]
#: A bar on standard error where that is a terminal; nothing; or who is to be told instead.
Progress: TypeAlias = bool | Report


@contextmanager
def reporting(what: str, progress: Progress) -> Iterator[Report]:
    """Yield whom to tell how far `what` is."""
    if callable(progress):
        yield progress
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    # Names mean themselves: a model may be called :smile:.
    console = Console(stderr=True, markup=False, emoji=False, highlight=False)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    shown = progress and console.is_terminal
    with Bars(*columns, console=console, transient=True, disable=not shown) as bars:
        task = bars.add_task(what, total=1.0)
        yield lambda done, text: bars.update(task, completed=done, description=f"{what}: {text}")
