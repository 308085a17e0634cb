"""The figures of a card, and drawings as SVG: odds, budget over time, where it went, accuracy by class."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import final

from tutelage._internal.html import escape
from tutelage.privacy import PublicEpsilon, round_up
from tutelage.reporting.evidence import Batch, ClassAccuracy, FrontierPoint, Spending, merged
from tutelage.reporting.meaning import odds, percent, right_guesses

WIDTH = 680
LETTER = 6.4  # width of a letter of an axis, nearly
_NOTHING = 1e-300


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
    """Return colors and what they mean, side by side: pairs of kind and words."""
    marks = []
    for kind, words in entries:
        marks += [box(x, y - 9, 12, 10, kind), write(x + 18, y, words)]
        x += 18 + LETTER * len(words) + 24
    return marks


_LEFT, _RIGHT, _TOP = 60, WIDTH - 20, 34
_BOTTOM = 250
_HEIGHT = _BOTTOM + 52
_MOST_BARS = 12
_MOST_CLASSES = 24
_LONGEST_NAME = 26
_BAR = 18
_Z = 1.96
_SHARE = "share of the budget's ε, at worst-case costs"


def odds_figure(epsilon: PublicEpsilon) -> Drawing:
    """Return how far a guess between two neighboring data sets can move from 50:50."""
    right = 1.0 if epsilon.simulated else right_guesses(epsilon.epsilon, epsilon.delta)
    x = Scale(0, 1, 80, WIDTH - 2)
    marks = []
    for top, name, share in ((6, "before", 0.5), (56, "after", right)):
        shown = f"{100 * share:.0f}" if share == 0.5 else f"at most {percent(share)}"
        marks += [
            write(0, top + 25, name, "name"),
            box(x(0), top, x(share) - x(0), 38, "fill-accent"),
            box(x(share), top, x(1) - x(share), 38, "fill-rest"),
            write(x(0) + 14, top + 25, f"{shown} right", "on-accent"),
        ]
        if share < 0.8:
            marks.append(write(x(1) - 14, top + 25, f"{odds(share).partition(':')[2]} wrong", "on-rest", "end"))
    marks.append(segment(x(0.5), 0, x(0.5), 100, "dashes"))
    caption = f"Right guesses in 100: 50 before the release, at most {percent(right)} after it."
    return drawing("Which of two neighboring data sets was it?", caption, 102, marks)


def costs_figure(batches: Sequence[Batch], spending: Spending) -> Drawing:
    """Return which batches took how much of the budget, for checks and for answers; printed numbers add up."""
    shown, rest = merged(batches, _MOST_BARS), spending.left
    checks = min(spending.spent, round_up(sum(batch.checks for batch in batches)))
    names = [f"{_day(batch)} · {_asked(batch)}" for batch in shown]
    left = 20 + LETTER * max(len(name) for name in [*names, "not spent"])
    x = Scale(0, max(rest, *(batch.share for batch in shown)), left, _RIGHT - 50)
    bottom = _TOP + (len(shown) + bool(rest)) * (_BAR + 8)
    beside = [("fill-second", "checks and publishing")] if checks > 0 else []
    unspent = [("fill-rest", "not spent")] if rest else []
    marks, total, told = legend([("fill-accent", "releases"), *beside, *unspent], left, 14), 0.0, 0.0
    for number, (name, batch) in enumerate(zip(names, shown, strict=True)):
        top = _TOP + number * (_BAR + 8)
        total += batch.share
        until = spending.spent if batch is shown[-1] else min(spending.spent, round_up(total))
        parts = [("fill-accent", batch.answers), ("fill-second", batch.checks)]
        marks += _bar(x, top, name, parts, round(until - told, 9))
        told = until
    if rest:
        marks += _bar(x, bottom - _BAR - 8, "not spent", [("fill-rest", rest)], rest)
    marks += [
        segment(left, _TOP - 4, left, bottom, "rule"),
        write((left + _RIGHT) / 2, bottom + 20, _SHARE, "name", "middle"),
    ]
    caption = f"Releases spent {round(spending.spent - checks, 9)} of ε = {spending.budget}"
    caption += f", checks and publishing {checks}." if beside else "."
    if len(shown) < len(batches):
        caption += f" {len(batches):,} batches, neighbors in time are merged."
    return drawing("Where the budget went", caption, bottom + 30, marks)


def _asked(batch: Batch) -> str:
    asked = counted(batch.queries, "query", "queries") if batch.queries else ""
    summed = counted(batch.sums, "noisy sum", "noisy sums") if batch.sums else ""
    return ", ".join(filter(None, (asked, summed))) or "publishing ε"


def counted(number: int, one: str, more: str) -> str:
    """Return a number of things."""
    return f"{number:,} {one if number == 1 else more}"


def frontier_figure(points: Sequence[FrontierPoint], asked: int) -> Drawing:
    """Return what other numbers of queries would cost."""
    most = max(point.epsilon.epsilon for point in points)
    x = Scale(0, max(point.queries for point in points), _LEFT, _RIGHT)
    y = Scale(0, most * 1.1, _BOTTOM, _TOP)
    places = [(x(point.queries), y(point.epsilon.epsilon)) for point in points]
    marks = [
        *axes(x, y, "queries, all labeled", f"ε at δ = {points[0].epsilon.delta:.10g}", whole=True),
        path(places, "curve-accent"),
        *(dot(*place, "dot-accent") for place in places),
    ]
    here = [point for point in points if point.queries == asked]
    for point in here:
        value = round_up(point.epsilon.epsilon)
        place, words = (x(point.queries), y(point.epsilon.epsilon)), f"asked: {asked:,} queries, ε = {value}"
        marks += [dot(*place, "dot-second", 6), write(place[0] + 10, place[1] + 20, words, "label-second")]
    last = points[-1]
    caption = f"{last.queries:,} queries would cost ε = {round_up(last.epsilon.epsilon)}"
    caption += "".join(
        f"; the {asked:,} of this release cost {round_up(point.epsilon.epsilon)} by themselves" for point in here
    )
    return drawing("Cost of other numbers of queries", caption + ".", _HEIGHT, marks)


def accuracy_figure(classes: Sequence[ClassAccuracy]) -> Drawing:
    """Return the student's accuracy by class, with 95 % intervals; of very many classes the worst."""
    counted = [entry for entry in classes if entry.rows > 0]
    worst = sorted(counted, key=lambda entry: entry.right / entry.rows)
    shown = counted if len(counted) <= _MOST_CLASSES else worst[:_MOST_CLASSES]
    names = [it.name if len(it.name) <= _LONGEST_NAME else it.name[: _LONGEST_NAME - 1] + "…" for it in shown]
    left = 24 + LETTER * max(len(name) for name in names)
    x, bottom = Scale(0, 1, left, _RIGHT - 130), 8 + len(shown) * (_BAR + 8)
    marks = [segment(x(tick / 4), 2, x(tick / 4), bottom, "grid") for tick in range(5)]
    for number, (name, entry) in enumerate(zip(names, shown, strict=True)):
        top, share = 6 + number * (_BAR + 8), entry.right / entry.rows
        low, high = _wilson(entry)
        marks += [
            write(left - 10, top + 13, name, anchor="end"),
            box(left, top, x(share) - left, _BAR, "fill-accent"),
            segment(x(low), top + _BAR / 2, x(high), top + _BAR / 2, "whisker"),
            write(_RIGHT, top + 13, f"{share:.1%} of {entry.rows:,}", anchor="end"),
        ]
    marks += [write(x(tick / 4), bottom + 16, f"{tick / 4:.0%}", anchor="middle") for tick in range(5)]
    marks.append(
        write((left + x(1)) / 2, bottom + 36, "right on public rows of the class; 95 % interval", "name", "middle")
    )
    best = worst[-1]
    caption = (
        f"From {worst[0].right / worst[0].rows:.1%} ({worst[0].name}) to {best.right / best.rows:.1%} ({best.name})."
    )
    if len(shown) < len(classes):
        caption += f" {len(shown)} of {len(classes):,} classes are drawn: the worst of those with rows."
    return drawing("Accuracy by class, on public rows", caption, bottom + 44, marks)


def _bar(x: Scale, top: float, name: str, parts: Sequence[tuple[str, float]], total: float) -> list[str]:
    """Return a bar of colored parts, with its name before it and their sum behind it."""
    marks, begun = [write(x.start - 10, top + 13, name, anchor="end")], 0.0
    for kind, length in parts:
        marks.append(box(x(begun), top, x(begun + length) - x(begun), _BAR, kind))
        begun += length
    return [*marks, write(x(begun) + 6, top + 13, f"{total:.10g}")]


def _wilson(entry: ClassAccuracy) -> tuple[float, float]:
    """Return the ends of Wilson's score interval."""
    n, share = entry.rows, entry.right / entry.rows
    middle = (share + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    half = _Z * math.sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2)) / (1 + _Z**2 / n)
    return max(0.0, middle - half), min(1.0, middle + half)


def _day(batch: Batch) -> str:
    return batch.written[:10]
