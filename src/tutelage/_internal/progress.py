"""One progress bar for long work; it shows how much is done and never what came out."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")
_WIDTH = 40


def progress_bar(items: Iterable[Item], title: str, total: int, done: int = 0, *, shown: bool) -> Iterator[Item]:
    """Yield `items` while a bar on standard error, or below a cell of a notebook, goes from `done` to `total`."""
    if not shown:
        yield from items
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if console.is_jupyter:
        yield from _in_a_notebook(items, title, total, done)
        return
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(title, total=total, completed=done)
        for item in items:
            bar.advance(task)
            yield item


def _in_a_notebook(items: Iterable[Item], title: str, total: int, done: int) -> Iterator[Item]:
    """Yield `items` under one line of text that is replaced: rich's own bar there needs ipywidgets."""
    from IPython.display import display  # pyright: ignore[reportMissingImports]

    def line() -> dict[str, str]:
        filled = _WIDTH * done // max(total, 1)
        return {"text/plain": f"{title} {'█' * filled}{'░' * (_WIDTH - filled)} {done:,}/{total:,}"}

    bar = display(line(), raw=True, display_id=True)
    for item in items:
        before, done = 100 * done // max(total, 1), done + 1
        if 100 * done // max(total, 1) > before or done == total:  # a hundred messages to the browser at most
            bar.update(line(), raw=True)
        yield item
