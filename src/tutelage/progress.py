"""One progress bar for long work; it shows how much is done and never what came out."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def progress_bar(items: Iterable[Item], title: str, total: int, done: int = 0, *, shown: bool) -> Iterator[Item]:
    """Yield `items` while a bar on standard error goes from `done` to `total`.

    Parameters
    ----------
    items : iterable
        The work, one item per step.
    title : str
        What is being done.
    total : int
        Number of steps in all.
    done : int
        Steps done before.
    shown : bool
        Whether to show the bar; it stays away from output that is not a terminal in any case.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not (shown and console.is_terminal)) as bar:
        task = bar.add_task(title, total=total, completed=done)
        for item in items:
            bar.advance(task)
            yield item
