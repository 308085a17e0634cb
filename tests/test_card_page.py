"""The page of a card: its bars are true to the numbers, and its words are readable in light, in dark and on paper."""

import math
import re
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test_card import BUDGET, card
from tutelage.reporting import Batch
from tutelage.reporting.record import merged

COSTS = st.floats(0, 10)
BATCHES = st.lists(
    st.builds(Batch, st.just("2026-01-01"), st.integers(0, 10**6), COSTS, COSTS), min_size=1, max_size=40
)


def widths(page: str, kind: int) -> list[float]:
    return [float(width) for width in re.findall(rf'<i class="bar-{kind}" style="width:([\d.]+)%">', page)]


def numbers(page: str) -> list[float]:
    return [float(number) for number in re.findall(r"<b>([\d.e-]+)</b>", page)]


@given(BATCHES, st.floats(0.1, 100))
def test_bars_fit_into_their_cells_and_their_numbers_add_up(batches, left):
    spent = sum(batch.share for batch in batches)
    page = card(budget={**BUDGET, "budget": spent + left, "spent": spent}, batches=tuple(batches)).as_html()
    answers, checks, rest = (widths(page, kind) for kind in (1, 2, 3))
    assert all(first + second <= 100.02 for first, second in zip(answers, checks, strict=True))
    assert max([*rest, *(first + second for first, second in zip(answers, checks, strict=True))]) >= 99.98
    assert sum(numbers(page)) == pytest.approx(spent + left, abs=1e-3)


def test_bars_are_as_long_as_what_they_stand_for():
    batches = (Batch("2026-01-01", 5, 0.1, 0.3), Batch("2026-01-02", 5, 0.0, 0.6))
    page = card(budget={**BUDGET, "budget": 1.8, "spent": 1.0}, batches=batches).as_html()
    first, second, none = widths(page, 1)
    checks, *others = widths(page, 2)
    assert (second, first) == (pytest.approx(2 * first, abs=0.02), pytest.approx(3 * checks, abs=0.03))
    assert (none, others) == (0, [0, 0])
    assert widths(page, 3) == [pytest.approx(0.8 / 0.6 * second, abs=0.02)]
    assert numbers(page) == [0.4, 0.6, 0.8]


@given(BATCHES, st.integers(1, 50))
def test_merged_batches_have_the_same_sums(batches, most):
    fewer = merged(batches, most)
    assert len(fewer) == min(most, len(batches))
    assert sum(batch.queries for batch in fewer) == sum(batch.queries for batch in batches)
    assert math.fsum(b.checks for b in fewer) == pytest.approx(math.fsum(b.checks for b in batches))
    assert math.fsum(b.answers for b in fewer) == pytest.approx(math.fsum(b.answers for b in batches))


def palettes() -> list[dict[str, str]]:
    style = files("tutelage.reporting").joinpath("templates/page.css").read_text(encoding="utf-8")
    found = [dict(re.findall(r"--([\w-]+): (#\w{6})", block)) for block in re.findall(r":root \{(.*?)\}", style, re.S)]
    assert len(found) == 3  # light, dark, paper
    return found


def luminance(color: str) -> float:
    parts = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


INKS = {  # on which papers each is read
    "ink": ("paper", "panel", "danger-soft", "warning-soft"), "soft": ("paper", "panel"), "accent": ("paper",),
    "paper": ("danger",), "danger": ("danger-soft",), "warning": ("warning-soft",), "second": ("paper",),
}  # fmt: skip


@pytest.mark.parametrize("palette", palettes())
@pytest.mark.parametrize(("ink", "paper"), [(ink, paper) for ink, papers in INKS.items() for paper in papers])
def test_words_stand_out_from_what_is_behind_them(palette, ink, paper):
    dark, light = sorted((luminance(palette[ink]), luminance(palette[paper])))
    needed = 3 if ink == "second" else 4.5  # it colors bars only
    assert (light + 0.05) / (dark + 0.05) >= needed  # the contrast of WCAG 2.1
