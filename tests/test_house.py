"""tools/house.py counts a small package as its docstring says."""

import runpy
from pathlib import Path
from typing import Any

import pytest

from conftest import REPOSITORY

TOOL: Any = runpy.run_path(str(REPOSITORY / "tools" / "house.py"))

FILES = {
    "src/shed/__init__.py": '"""A shed."""\n\nfrom shed.door import Door\n\n__all__ = ["Door"]\n',
    "src/shed/door.py": '''"""Doors.

They open.
"""

from shed import hinge  # a comment behind code


class Door:
    """A door."""

    @property
    def width(self):
        """In metres."""
        # a comment
        text = """not
        a docstring"""
        return text

    @width.setter
    def width(self, value):
        self._width = value

    def open(self): return hinge.turn(lambda: 1)
''',
    "src/shed/hinge.py": '''from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shed.door import Door


def turn(door: "Door"):
    """Turn."""

    def half(x):
        return x

    from .inner import deep

    return half(deep.deepest)


def _oil():
    pass
''',
    "src/shed/inner/__init__.py": "",
    "src/shed/inner/deep.py": '"""Deep."""\nfrom .. import inner\nfrom . import deeper\ndeepest = deeper.X, inner\n',
    "src/shed/inner/deeper.py": '"""Deeper."""\ntry:\n    import shed.inner.deep\nfinally:\n    X = 1\n',
    "src/other/__init__.py": "a = 1\n",
    "tests/test_shed.py": "assert True\n",
}


@pytest.fixture
def shed(tmp_path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "pyproject.toml").write_text('[tool.hatch.build.targets.wheel]\npackages = ["src/shed"]\n')
    return tmp_path


def test_lines_are_code_docstrings_or_neither(shed):
    house = TOOL["measure"](shed)
    assert house.modules == 6
    assert house.installed_lines == sum(text.count("\n") for name, text in FILES.items() if "/shed/" in name)
    assert house.code_lines == 2 + 11 + 10 + 0 + 3 + 4
    assert house.docstring_lines == 1 + 6 + 1 + 0 + 1 + 1
    assert house.blank_and_comment_lines == house.installed_lines - house.code_lines - house.docstring_lines
    assert house.longest_modules == {
        "shed.door": 11, "shed.hinge": 10, "shed.inner.deeper": 4, "shed.inner.deep": 3, "shed": 2, "shed.inner": 0,
    }  # fmt: skip
    assert house.median_module == 3.5


def test_functions_are_as_long_as_their_code(shed):
    house = TOOL["measure"](shed)
    # width 4, its setter 2, open 1, turn 5, half 2, _oil 2
    assert (house.functions, house.median_function, house.p95_function, house.longest_function) == (6, 2, 5, 5)
    assert house.functions_of_at_most_three_lines == 4


def test_importers_and_cycles_are_found(shed):
    house = TOOL["measure"](shed)
    assert house.modules_with_one_importer == ["shed.hinge", "shed.inner.deeper"]
    assert house.import_cycles == [["shed.inner.deep", "shed.inner.deeper"]]
    assert house.import_cycles_with_deferred_imports == [
        ["shed.door", "shed.hinge"], ["shed.inner.deep", "shed.inner.deeper"],
    ]  # fmt: skip


def test_public_names_need_a_docstring_and_others_do_not(shed):
    assert TOOL["measure"](shed).public_names_without_docstring == ["shed.door.Door.open", "shed.hinge", "shed.inner"]


def test_no_module_of_this_repository_imports_itself_by_way_of_others():
    house = TOOL["measure"](REPOSITORY)
    assert house.import_cycles == []
    assert house.public_names_without_docstring == []
