"""Scalable drawings as text: scales, axes and marks, coloured by the page that they stand on."""

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import final

WIDTH = 680
LETTER = 6.4  # width of a letter of an axis, nearly
_NOTHING = 1e-300
# Characters that turn the direction of what follows, so that a name could be read as another one.
_DIRECTIONS = dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C])
_CONTROLS = {code: "�" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}


def straight(text: str) -> str:
    """Return text that neither turns the line around nor holds control characters."""
    return text.translate(_DIRECTIONS | _CONTROLS)


def escape(text: str) -> str:
    """Return text as it may stand in a page or drawing: it can neither open a tag nor turn the line around."""
    return html.escape(straight(text), quote=True)


def shortened(text: str, most: int) -> str:
    """Return text of at most `most` characters, cut with an ellipsis."""
    return text if len(text) <= most else text[: most - 1] + "…"


@final
@dataclass(frozen=True, slots=True)
class Scale:
    """From values to places on the paper."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        """Return the place of a value."""
        low, high = (math.log(self.low), math.log(self.high)) if self.logarithmic else (self.low, self.high)
        if high - low < _NOTHING:
            return self.start
        share = ((math.log(value) if self.logarithmic else value) - low) / (high - low)
        return self.start + share * (self.end - self.start)

    def ticks(self, about: int = 5) -> list[float]:
        """Return round values to write along it: some `about`, or the powers of ten where it is logarithmic."""
        if self.logarithmic:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            return [10.0**power for power in range(first, last + 1)]
        if self.high - self.low < _NOTHING:
            return [self.low]
        rough = (self.high - self.low) / about
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.9)
        first = math.ceil(self.low / step - 1e-9)
        return [step * number for number in range(first, math.floor(self.high / step + 1e-9) + 1)]


@final
@dataclass(frozen=True, slots=True)
class Drawing:
    """A figure of a page."""

    title: str
    caption: str
    svg: str


def drawing(title: str, caption: str, height: float, marks: Iterable[str], width: float = WIDTH) -> Drawing:
    """Return the figure made of these marks, which screen readers call by its title and caption."""
    label = escape(f"{title}. {caption}")
    head = f'<svg viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{label}">'
    return Drawing(title, caption, f"{head}{''.join(marks)}</svg>")


def write(x: float, y: float, words: str, kind: str = "axis", anchor: str = "start") -> str:
    """Return words at a place; `anchor` is start, middle or end."""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def segment(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    """Return a straight line."""
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def path(points: Sequence[tuple[float, float]], kind: str) -> str:
    """Return a line through points."""
    return f'<polyline class="{kind}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>'


def area(points: Sequence[tuple[float, float]], kind: str) -> str:
    """Return the inside of a line through points."""
    return f'<polygon class="{kind}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>'


def box(x: float, y: float, width: float, height: float, kind: str) -> str:
    """Return a rectangle, of no less than no width."""
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{max(0.0, width):.1f}" height="{height:.1f}"/>'


def dot(x: float, y: float, kind: str, radius: float = 3.5) -> str:
    """Return a point."""
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}"/>'


def axes(x: Scale, y: Scale, x_label: str, y_label: str, *, whole: bool = False, shares: bool = False) -> list[str]:
    """Return a grid with values along both axes."""
    marks = []
    for value in y.ticks():
        marks.append(segment(x.start, y(value), x.end, y(value), "grid"))
        marks.append(write(x.start - 8, y(value) + 4, f"{value:.0%}" if shares else f"{value:,g}", anchor="end"))
    for value in x.ticks(6):
        if not whole or abs(value - round(value)) < 1e-9:
            marks.append(segment(x(value), y.start, x(value), y.start + 5, "rule"))
            marks.append(write(x(value), y.start + 19, f"{value:,.0f}" if whole else f"{value:g}", anchor="middle"))
    marks.append(segment(x.start, y.start, x.end, y.start, "rule"))
    marks.append(write((x.start + x.end) / 2, y.start + 40, x_label, "name", "middle"))
    marks.append(write(x.start - 40, y.end - 14, y_label, "name"))
    return marks


def stamp(words: str, height: float) -> str:
    """Return words across the whole drawing, from the lower left to the upper right."""
    x, y = WIDTH / 2, height / 2
    turn = -math.degrees(math.atan2(height, WIDTH)) / 2
    return (
        f'<text class="stamp-text" x="{x:.1f}" y="{y:.1f}" text-anchor="middle" '
        f'transform="rotate({turn:.1f} {x:.1f} {y:.1f})">{escape(words)}</text>'
    )


def legend(entries: Sequence[tuple[str, str]], x: float, y: float) -> list[str]:
    """Return colours and what they mean, side by side: pairs of kind and words."""
    marks = []
    for kind, words in entries:
        marks += [box(x, y - 9, 12, 10, kind), write(x + 18, y, words)]
        x += 18 + LETTER * len(words) + 24
    return marks
