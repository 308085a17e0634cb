"""Progress is shown in terminals and notebooks as percentages; no count is shown, and no result."""

import builtins
import re
import sys
from types import ModuleType
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

    class Handle:
        def update(self, content: dict[str, str], *, raw: bool) -> None:
            assert raw
            shown.append(content["text/plain"])

    def display(content: dict[str, str], *, raw: bool, display_id: bool) -> Handle:
        assert display_id
        handle = Handle()
        handle.update(content, raw=raw)
        return handle

    module: Any = ModuleType("IPython.display")
    module.display = display
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    monkeypatch.setattr(builtins, "get_ipython", ZMQInteractiveShell, raising=False)
    return shown


def percentages(shown: list[str]) -> list[int]:
    """Return what a bar showed, which has no other number in it."""
    found = [re.findall(r"\d+", line) for line in shown]
    assert all(len(numbers) == 1 and line.endswith(" %") for numbers, line in zip(found, shown, strict=True))
    return [int(number) for (number,) in found]


def test_a_notebook_shows_progress_in_one_line_of_text(notebook, capsys):
    assert list(progress_bar(range(4), "training", 4, shown=True)) == [0, 1, 2, 3]
    assert percentages(notebook) == [0, 25, 50, 75, 100]
    assert all(line.startswith("training ") for line in notebook)
    assert capsys.readouterr() == ("", "")


def test_nothing_is_shown_where_nobody_asked_or_looks(notebook, capsys, monkeypatch):
    assert list(progress_bar("ab", "training", 2, shown=False)) == ["a", "b"]
    monkeypatch.delattr(builtins, "get_ipython")
    assert list(progress_bar("ab", "training", 2, shown=True)) == ["a", "b"]
    assert notebook == []
    assert capsys.readouterr() == ("", "")


@pytest.mark.filterwarnings("ignore::tutelage.exceptions.OneClassWarning")  # by chance
def test_ballots_of_people_show_how_far_each_round_is(notebook, monkeypatch):
    monkeypatch.setattr("tutelage.teachers.blocks._AT_ONCE", 40)
    X = np.random.default_rng(0).normal(size=(200, 3))
    y = np.where(X[:, 0] > 0, "yes", "no")
    PATEClassifier(progress=True).fit(X, y, X_public=X[:60] + 1, entity_ids=np.arange(200) // 4)
    rounds = [[line for line in notebook if f"round {number} of 2 " in line] for number in (1, 2)]
    assert sum(map(len, rounds)) == len(notebook)
    for lines in rounds:
        shown = percentages([line.partition(" of 2 ")[2] for line in lines])
        assert (shown[0], shown[-1]) == (0, 100)
        assert len(shown) > 4
