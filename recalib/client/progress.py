"""Progress of long operations: a bar on a terminal, or a callback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

#: A callback: the completed fraction, from 0 to 1, and the current activity.
Report: TypeAlias = Callable[[float, str], None]
#: True: a bar on standard error if it is a terminal; False: nothing; or a callback.
Progress: TypeAlias = bool | Report


@contextmanager
def progress_reporter(title: str, progress: Progress) -> Iterator[Report]:
    """Yield the callback that reports the progress of the operation `title`."""
    if callable(progress):
        yield progress
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    # Without markup and emoji: a model may be called :smile:.
    console = Console(stderr=True, markup=False, emoji=False, highlight=False)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    is_shown = progress and console.is_terminal
    with Bars(*columns, console=console, transient=True, disable=not is_shown) as bars:
        task = bars.add_task(title, total=1.0)
        yield lambda fraction, text: bars.update(
            task, completed=fraction, description=f"{title}: {text}"
        )
