"""tools/house.py finds import cycles and undocumented names, and this repository has none."""

import runpy
from typing import Any

import pytest

from conftest import REPOSITORY

FILES = {
    "src/shed/__init__.py": '"""A shed."""\n\nfrom shed.door import Door\n\n__all__ = ["Door"]\n',
    "src/shed/door.py": '"""Door."""\nfrom shed import hinge\n\nclass Door:\n    """It."""\n    def open(self): 1\n',
    "src/shed/hinge.py": "def turn():\n    from .inner import deep\n    from .door import Door\n",
    "src/shed/inner/__init__.py": "",
    "src/shed/inner/deep.py": '"""Deep."""\nfrom .. import inner\nfrom . import deeper\n',
    "src/shed/inner/deeper.py": '"""Deeper."""\ntry:\n    import shed.inner.deep\nfinally:\n    X = 1\n',
    "pyproject.toml": '[tool.hatch.build.targets.wheel]\npackages = ["src/shed"]\n',
}
TOOL: Any = runpy.run_path(str(REPOSITORY / "tools" / "house.py"))


def test_cycles_and_names_without_a_docstring_are_found(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    house = TOOL["measure"](tmp_path)
    assert (house.modules, house.functions) == (6, 2)
    assert house.import_cycles == [["shed.inner.deep", "shed.inner.deeper"]]
    assert ["shed.door", "shed.hinge"] in house.import_cycles_with_deferred_imports
    undocumented = ["shed.door.Door.open", "shed.hinge", "shed.hinge.turn", "shed.inner"]
    assert house.public_names_without_docstring == undocumented


@pytest.mark.rest
@pytest.mark.parametrize("folder", [REPOSITORY, REPOSITORY / "consortium"])
def test_no_module_of_this_repository_imports_itself_by_way_of_others(folder):
    house = TOOL["measure"](folder)
    assert house.import_cycles == []
    assert house.public_names_without_docstring == []
