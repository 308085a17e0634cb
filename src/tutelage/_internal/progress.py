"""One progress bar for long work. It shows percentages alone: a count may be one of people, rows or votes."""

from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import Any, TypeVar

Item = TypeVar("Item")
_WIDTH = 40


def progress_bar(
    items: Iterable[Item],
    title: str,
    total: int,
    *,
    shown: bool,
    size: Callable[[Item], int] = lambda _: 1,
) -> Iterator[Item]:
    """Yield `items`, each of its `size`, while a bar on standard error or in a notebook goes to `total`."""
    if not shown:
        yield from items
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    if console.is_jupyter:
        # Rich's own bar there needs ipywidgets.
        yield from _in_a_notebook(items, title, total, size)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(title, total=total)
        for item in items:
            bar.advance(task, size(item))
            yield item


def _in_a_notebook(
    items: Iterable[Item], title: str, total: int, size: Callable[[Item], int]
) -> Iterator[Item]:
    display: Any = import_module("IPython.display").display  # which has no types

    def line(percent: int) -> dict[str, str]:
        filled = _WIDTH * percent // 100
        return {"text/plain": f"{title} {'█' * filled}{'░' * (_WIDTH - filled)} {percent} %"}

    done = 0
    percent = 0
    bar: Any = display(line(percent), raw=True, display_id=True)
    for item in items:
        done += size(item)
        now = 100 * done // max(total, 1)
        if now > percent:  # a hundred messages to the browser at most
            percent = now
            bar.update(line(percent), raw=True)
        yield item
