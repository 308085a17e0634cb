"""The figure of a card, as SVG: where the budget went."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tutelage._internal.html import escape
from tutelage.privacy import round_up
from tutelage.reporting.evidence import Batch, Spending, merged

_WIDTH, _TOP = 680, 34
_RIGHT = _WIDTH - 20
_LETTER = 6.4  # width of a letter, nearly
_MOST_BARS = 12
_BAR = 18
_SHARE = "share of the budget's ε, at worst-case costs"


class Drawing(NamedTuple):
    """A figure of a page."""

    title: str
    caption: str
    svg: str


def _write(x: float, y: float, words: str, kind: str = "axis", anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _box(x: float, y: float, width: float, height: float, kind: str) -> str:
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{max(0.0, width):.1f}" height="{height:.1f}"/>'


def costs_figure(batches: Sequence[Batch], spending: Spending) -> Drawing:
    """Return which batches took how much of the budget, for checks and for answers; printed numbers add up."""
    shown, rest = merged(batches, _MOST_BARS), spending.left
    checks = min(spending.spent, round_up(sum(batch.checks for batch in batches)))
    names = [f"{batch.written[:10]} · {_asked(batch)}" for batch in shown]
    left = 20 + _LETTER * max(len(name) for name in [*names, "not spent"])
    most = max(rest, *(batch.share for batch in shown))

    def x(value: float) -> float:
        return left + (value / most * (_RIGHT - 50 - left) if most > 0 else 0)

    bottom = _TOP + (len(shown) + bool(rest)) * (_BAR + 8)
    beside = [("fill-second", "checks and publishing")] if checks > 0 else []
    unspent = [("fill-rest", "not spent")] if rest else []
    marks, total, told = list[str](), 0.0, 0.0
    place = left
    for kind, words in [("fill-accent", "releases"), *beside, *unspent]:
        marks += [_box(place, 5, 12, 10, kind), _write(place + 18, 14, words)]
        place += 42 + _LETTER * len(words)
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
        f'<line class="rule" x1="{left:.1f}" y1="{_TOP - 4}" x2="{left:.1f}" y2="{bottom:.1f}"/>',
        _write((left + _RIGHT) / 2, bottom + 20, _SHARE, "name", "middle"),
    ]
    caption = f"Releases spent {round(spending.spent - checks, 9)} of ε = {spending.budget}"
    caption += f", checks and publishing {checks}." if beside else "."
    if len(shown) < len(batches):
        caption += f" {len(batches):,} batches, neighbors in time are merged."
    title = "Where the budget went"
    head = f'<svg viewBox="0 0 {_WIDTH} {bottom + 30}" role="img" aria-label="{escape(f"{title}. {caption}")}">'
    return Drawing(title, caption, f"{head}{''.join(marks)}</svg>")


def _asked(batch: Batch) -> str:
    asked = counted(batch.queries, "query", "queries") if batch.queries else ""
    summed = counted(batch.sums, "noisy sum", "noisy sums") if batch.sums else ""
    return ", ".join(filter(None, (asked, summed))) or "publishing ε"


def counted(number: int, one: str, more: str) -> str:
    """Return a number of things."""
    return f"{number:,} {one if number == 1 else more}"


def _bar(
    x: Callable[[float], float], top: float, name: str, parts: Sequence[tuple[str, float]], total: float
) -> list[str]:
    """Return a bar of colored parts, with its name before it and their sum behind it."""
    marks, begun = [_write(x(0) - 10, top + 13, name, anchor="end")], 0.0
    for kind, length in parts:
        marks.append(_box(x(begun), top, x(begun + length) - x(begun), _BAR, kind))
        begun += length
    return [*marks, _write(x(begun) + 6, top + 13, f"{total:.10g}")]
