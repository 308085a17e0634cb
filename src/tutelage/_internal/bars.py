"""Bars from one record: drawn as HTML and in notebooks, and as text in a terminal."""

from typing import TYPE_CHECKING, NamedTuple, final

from tutelage._internal.html import escape

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, ConsoleOptions, RenderableType

_WIDTH = 30  # characters of the longest bar


class Bar(NamedTuple):
    """One bar."""

    name: str
    value: float
    says: str  # the value in words
    noise: float = 0.0  # half-width of its band


@final
class Bars(NamedTuple):
    """Bars with one scale.

    Parameters
    ----------
    title, names, values : str
        What is drawn, what the bars are called, and what their values are.
    bars : list of Bar
        The bars, from top to bottom.
    full : float
        A value that the scale holds at least, such as the whole budget.
    """

    title: str
    names: str
    values: str
    bars: list[Bar]
    full: float = 0.0

    @property
    def scale(self) -> tuple[float, float]:
        """The ends of the scale, which holds 0 and all bands."""
        low, high = (min(one.value - one.noise for one in self.bars), max(one.value + one.noise for one in self.bars))
        return min(0.0, low), max(self.full, high) or 1.0

    def __html__(self) -> str:
        """Return the bars as a table, which brings its colors along."""
        left, track = 'style="text-align:left"', ";background:var(--rest,#cfd7de)" if self.full else ""
        rows = "".join(
            f'<tr><th scope="row" {left}>{escape(bar.name)}</th><td style="width:50%;vertical-align:middle">'
            f'<i style="display:block{track}"><i style="display:block;height:.85rem;background:var(--accent,#2a86a3);'
            f'width:{100 * bar.value / self.scale[1]:.2f}%"></i></i></td><td {left}>{escape(bar.says)}</td></tr>'
            for bar in self.bars
        )
        heads = (
            f'<th scope="col" {left}>{escape(self.names)}</th><th scope="col" colspan="2" {left}>{escape(self.values)}'
        )
        caption = f"<caption {left}>{escape(self.title)}</caption>"
        return f'<table style="width:100%">{caption}<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>'

    _repr_html_ = __html__

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "Iterator[RenderableType]":
        """Draw the bars as text: what the band of a bar covers is lighter than the rest."""
        from rich.table import Table
        from rich.text import Text

        solid, light, blank = "█▒░" if console.encoding.startswith("utf") else "#=."
        blank = blank if self.full else " "
        low, high = self.scale
        middles = [low + (high - low) * (place + 0.5) / _WIDTH for place in range(_WIDTH)]
        grid = Table.grid(padding=(0, 1), pad_edge=False)
        for bar in self.bars:
            ends, unsure = sorted((0.0, bar.value)), [abs(at - bar.value) < bar.noise for at in middles]
            filled = [solid if ends[0] <= at <= ends[1] else blank for at in middles]
            drawn = "".join(light if doubt else sign for doubt, sign in zip(unsure, filled, strict=True))
            grid.add_row(Text(bar.name), Text(drawn, style="cyan"), Text(bar.says))
        yield Text(self.title)
        yield grid
