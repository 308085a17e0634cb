"""Drawings of ε, a ledger, a plan and curves: as HTML for pages and notebooks, and as text for a terminal.

Names are text in it, whatever they hold, and printed bounds are rounded upward.
"""

import html
import math
import re
from typing import TYPE_CHECKING, NamedTuple, final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, ConsoleOptions, RenderableType

_WIDTH = 30  # characters of the longest bar
_DIGITS = re.compile(r"(\.\d+)?[,_]?([eEfFgG%]?)$")  # precision and type, in a format of floats
# Characters that turn the direction of what follows, so that a name could be read as another one.
_DIRECTIONS = dict.fromkeys(
    [*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C]
)
_CONTROLS = {code: "�" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}


def straight(text: str) -> str:
    """Return text that neither turns the line around nor holds control characters."""
    return text.translate(_DIRECTIONS | _CONTROLS)


def escape(text: str) -> str:
    """Return text as it may stand in a page or drawing: it can neither open a tag nor turn the line around."""
    return html.escape(straight(text), quote=True)


def round_up(value: float, digits: int = 4) -> float:
    """Return `value` rounded upward to `digits` decimals, so that a printed epsilon never understates."""
    if not math.isfinite(value):
        return value
    scaled = math.ceil(value * 10**digits) / 10**digits
    if scaled < value:
        return math.nextafter(scaled, math.inf)
    return scaled


def with_sign(number: float) -> str:
    """Return a number with its sign."""
    if not number:
        return "0"
    return f"{number:+.2g}".replace("-", "−")


def printed_up(value: float, spec: str = "g") -> str:
    """Return `value` in a format of floats, so that what is printed is no less."""
    if not math.isfinite(100 * value):  # which percent would print
        return format(math.inf, spec)
    digits = "".join(_DIGITS.findall(spec.replace("n", "g"))[0])  # n is g as a language writes it
    above = value
    step = math.ulp(value)
    while float(format(above, digits).replace("%", "e-2")) < value:
        above = value + step
        step *= 2
    return format(above, spec)


class Bar(NamedTuple):
    """One bar."""

    name: str
    value: float
    text: str  # the value in words
    noise: float = 0.0  # half-width of its band, which a terminal shows


@final
class Bars(NamedTuple):
    """Bars with one scale. Bars in HTML are not negative; without bars, nothing is drawn.

    Parameters
    ----------
    title, name_heading, value_heading : str
        Title, and headings of the two columns.
    bars : list of Bar
        The bars, from top to bottom.
    whole : float
        End of the track behind each bar, such as the budget; 0 draws no track.
    """

    title: str
    name_heading: str
    value_heading: str
    bars: list[Bar]
    whole: float = 0.0

    @property
    def scale(self) -> tuple[float, float]:
        """The ends of the scale, which include 0 and all bands."""
        low = min(one.value - one.noise for one in self.bars)
        high = max(one.value + one.noise for one in self.bars)
        return min(0.0, low), max(self.whole, high) or 1.0

    def __html__(self) -> str:
        """Return the bars as a table with colors of its own."""
        if not self.bars:
            return ""
        left = 'style="text-align:left"'
        track = ";background:var(--rest,#cfd7de)" if self.whole else ""
        _, high = self.scale
        rows = "".join(
            f'<tr><th scope="row" {left}>{escape(bar.name)}</th><td style="width:50%;vertical-align:middle">'
            f'<i style="display:block{track}"><i style="display:block;height:.85rem;background:var(--accent,#2a86a3);'
            f'width:{100 * bar.value / high:.2f}%"></i></i></td><td {left}>{escape(bar.text)}</td></tr>'
            for bar in self.bars
        )
        heads = f'<th scope="col" {left}>{escape(self.name_heading)}</th>'
        heads += f'<th scope="col" colspan="2" {left}>{escape(self.value_heading)}</th>'
        caption = f"<caption {left}>{escape(self.title)}</caption>"
        return f'<table style="width:100%">{caption}<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>'

    def __rich_console__(
        self, console: "Console", options: "ConsoleOptions"
    ) -> "Iterator[RenderableType]":
        """Draw the bars as text; what the band of a bar covers is lighter."""
        from rich.table import Table
        from rich.text import Text

        if not self.bars:
            return
        signs = "█▒░" if console.encoding.startswith("utf") else "#=."
        low, high = self.scale
        step = (high - low) / _WIDTH
        places = [low + step * place for place in range(_WIDTH)]
        grid = Table.grid(padding=(0, 1), pad_edge=False)
        for bar in self.bars:
            drawn = "".join(self._sign(bar, at, at + step, signs) for at in places)
            grid.add_row(
                Text(_line(bar.name)),
                Text(drawn, style="cyan"),
                Text(_line(bar.text)),
            )
        yield Text(_line(self.title))
        yield grid

    def _sign(self, bar: Bar, start: float, end: float, signs: str) -> str:
        """Return the sign from `start` to `end`; a part that is touched is filled, so that no bar looks too short."""
        solid, light, track = signs
        if abs((start + end) / 2 - bar.value) < bar.noise:
            return light
        if start < max(0.0, bar.value) and end > min(0.0, bar.value):
            return solid
        return track if self.whole else " "


def _line(text: str) -> str:
    """Return text in one line, without what a terminal obeys."""
    return " ".join(straight(text).split())


def summary(title: str, claim: str, rows: dict[str, str], drawn: str = "") -> str:
    """Return a labeled section with names and values, and what is drawn below them."""
    cells = (
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(value)}</td></tr>'
        for name, value in rows.items()
    )
    head = f"<p><strong>{escape(title)}</strong> {escape(claim)}</p>"
    facts = f"<table class=facts><tbody>{''.join(cells)}</tbody></table>"
    return f'<section aria-label="{escape(title)}">{head}{facts}{drawn}</section>'
