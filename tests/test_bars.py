"""Bars are one record, drawn as HTML and as text; names in them are text."""

import io
import re

import pytest
from rich.console import Console

from tutelage._internal.drawing import Bar, Bars
from tutelage.reporting.render import render

HOSTILE = "<b>a</b>[red]\u202e"
SPENT = Bars(
    "Spent", "People", "Share", [Bar("all", 0.5, "half"), Bar(HOSTILE, 2.0, "whole")], whole=2.0
)


def as_text(bars: Bars, encoding: str = "utf-8") -> str:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    Console(file=file, width=100, markup=False, emoji=False).print(bars)
    file.seek(0)
    return file.read()


def test_a_page_draws_each_bar_to_scale_and_reads_names_as_text():
    page, part = render("bars.jinja", "html", heading="A", drawn=SPENT), SPENT.__html__()
    for html in (page, part):
        assert re.findall(r"width:([\d.]+)%\"></i></i>", html) == ["25.00", "100.00"]
        assert "&lt;b&gt;a" in html
        assert "\u202e" not in html
    assert "Content-Security-Policy" in page
    assert "<html" not in part


@pytest.mark.parametrize(("encoding", "signs"), [("utf-8", "█░"), ("ascii", "#.")])
def test_a_terminal_shows_the_rest_of_the_scale(encoding, signs):
    bars = Bars(
        "Spent", "People", "Share", [Bar("all", 0.5, "half"), Bar("new", 0.0, "none")], whole=2.0
    )
    title, first, second = as_text(bars, encoding).splitlines()
    assert title == "Spent"
    assert [line.count(sign) for line in (first, second) for sign in signs] == [8, 22, 0, 30]
    assert first.endswith("half")


def test_names_neither_move_the_cursor_nor_begin_a_line():
    (title, row) = as_text(
        Bars("a\x1b[2J\nb", "", "", [Bar("age\x1b[8m\nx", 1.0, "1\x07")])
    ).splitlines()
    assert title == "a�[2J b"
    assert not {"\x1b", "\x07"} & set(title + row)
