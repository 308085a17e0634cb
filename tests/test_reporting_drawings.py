"""The figures of a card: on the paper, true to the numbers, and readable in light and dark."""

import math
import re
from collections.abc import Iterator
from importlib.resources import files
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutelage.reporting import Batch
from tutelage.reporting.drawings import Drawing, costs_figure
from tutelage.reporting.evidence import Spending, merged

COSTS = st.floats(0, 10)
BATCHES = st.lists(
    st.builds(Batch, st.just("2026-01-01"), st.integers(0, 10**6), COSTS, COSTS), min_size=1, max_size=40
)


def marks(drawing: Drawing) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the marks of a drawing once all of them lie on its paper."""
    root = ET.fromstring(drawing.svg)  # noqa: S314  our own drawing
    width, height = (float(value) for value in root.attrib["viewBox"].split()[2:])
    for mark in root:
        at = mark.attrib
        xs = [float(at[name]) for name in ("x", "x1", "x2", "cx") if name in at]
        ys = [float(at[name]) for name in ("y", "y1", "y2", "cy") if name in at]
        for pair in at.get("points", "").split():
            for places, place in zip((xs, ys), pair.split(","), strict=True):
                places.append(float(place))
        if "width" in at:
            xs.append(float(at["x"]) + float(at["width"]))
            ys.append(float(at["y"]) + float(at["height"]))
        assert all(-0.2 <= x <= width + 0.2 for x in xs), at
        assert all(-0.2 <= y <= height + 0.2 for y in ys), at
        yield mark.tag, at


def widths(drawing: Drawing, kind: str) -> list[float]:
    return [float(at["width"]) for tag, at in marks(drawing) if tag == "rect" and at["class"] == kind]


@given(BATCHES, st.floats(0.1, 100))
def test_budgets_are_drawn_on_the_paper(batches, budget):
    spent = sum(batch.share for batch in batches)
    spending = Spending.of(budget + spent, spent)
    assert list(marks(costs_figure(batches, spending)))


BUDGET = Spending.of(1.8, 1.0)


def test_bars_are_as_long_as_what_they_stand_for():
    drawn = costs_figure([Batch("2026-01-01", 5, 0.1, 0.3), Batch("2026-01-02", 5, 0.0, 0.6)], BUDGET)
    _, first, second = widths(drawn, "fill-accent")  # the legend comes first
    _, checks, none = widths(drawn, "fill-second")
    assert second == pytest.approx(2 * first, abs=0.2)
    assert first == pytest.approx(3 * checks, abs=0.3)
    assert none == 0
    assert max(widths(drawn, "fill-rest")) == pytest.approx(0.8 / 0.6 * second, abs=0.2)


@given(BATCHES, st.integers(1, 50))
def test_merged_batches_have_the_same_sums(batches, most):
    fewer = merged(batches, most)
    assert len(fewer) == min(most, len(batches))
    assert sum(batch.queries for batch in fewer) == sum(batch.queries for batch in batches)
    assert math.fsum(b.checks for b in fewer) == pytest.approx(math.fsum(b.checks for b in batches))
    assert math.fsum(b.answers for b in fewer) == pytest.approx(math.fsum(b.answers for b in batches))


def palettes() -> list[dict[str, str]]:
    style = files("tutelage.reporting").joinpath("page.css").read_text(encoding="utf-8")
    found = [dict(re.findall(r"--([\w-]+): (#\w{6})", block)) for block in re.findall(r":root \{(.*?)\}", style, re.S)]
    assert len(found) == 3  # light, dark, paper
    return found


def luminance(color: str) -> float:
    parts = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


INKS = {  # on which papers each is read
    "ink": ("paper", "panel", "danger-soft", "warning-soft"), "soft": ("paper", "panel"), "accent": ("paper",),
    "paper": ("danger",), "on-accent": ("accent",), "on-rest": ("rest",), "danger": ("danger-soft", "paper"),
    "warning": ("warning-soft", "paper"), "second": ("paper",),
}  # fmt: skip


@pytest.mark.parametrize("palette", palettes())
@pytest.mark.parametrize(("ink", "paper"), [(ink, paper) for ink, papers in INKS.items() for paper in papers])
def test_words_stand_out_from_what_is_behind_them(palette, ink, paper):
    dark, light = sorted((luminance(palette[ink]), luminance(palette[paper])))
    needed = 4.0 if ink == "second" else 4.5  # its words are bold
    assert (light + 0.05) / (dark + 0.05) >= needed  # the contrast of WCAG 2.1
