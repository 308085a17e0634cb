"""Progress is shown in terminals and notebooks as percentages; no count is shown, and no result."""

import builtins
import re
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tutelage import PATEClassifier
from tutelage._internal.progress import progress_bar


class ZMQInteractiveShell:
    """Named as the shell of a notebook is."""


@pytest.fixture
def notebook(monkeypatch) -> list[str]:
    """What a notebook would show, line by line; IPython is not needed for that."""
    shown: list[str] = []

    def display(content: dict[str, str], **_: bool) -> Any:
        shown.append(content["text/plain"])
        return SimpleNamespace(update=display)

    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    monkeypatch.setattr(builtins, "get_ipython", ZMQInteractiveShell, raising=False)
    return shown


def percentages(shown: list[str]) -> list[int]:
    """Return what a bar showed, which has no other number in it."""
    found = [re.findall(r"\d+", line) for line in shown]
    assert all(
        len(numbers) == 1 and line.endswith(" %")
        for numbers, line in zip(found, shown, strict=True)
    )
    return [int(number) for (number,) in found]


def test_a_notebook_shows_progress_in_one_line_of_text(notebook):
    assert list(progress_bar(range(4), "training", 4, shown=True)) == [0, 1, 2, 3]
    assert percentages(notebook) == [0, 25, 50, 75, 100]


def test_nothing_is_shown_where_nobody_asked_or_looks(notebook, capsys, monkeypatch):
    assert list(progress_bar("ab", "training", 2, shown=False)) == ["a", "b"]
    monkeypatch.delattr(builtins, "get_ipython")
    assert list(progress_bar("ab", "training", 2, shown=True)) == ["a", "b"]
    assert notebook == []
    assert capsys.readouterr() == ("", "")


@pytest.mark.filterwarnings("ignore::tutelage.exceptions.OneClassWarning")  # by chance
def test_ballots_of_people_show_how_far_each_round_is(notebook, monkeypatch):
    monkeypatch.setattr("tutelage.people.blocks._AT_ONCE", 40)
    X = np.random.default_rng(0).normal(size=(200, 3))
    y = np.where(X[:, 0] > 0, "yes", "no")
    PATEClassifier(progress=True).fit(X, y, X_public=X[:60] + 1, entity_ids=np.arange(200) // 4)
    for number in (1, 2, 3):  # the last one is the report
        shown = percentages(
            [line.partition(" of 3 ")[2] for line in notebook if f"round {number} of 3 " in line]
        )
        assert (shown[0], shown[-1]) == (0, 100)
        assert len(shown) > 4
