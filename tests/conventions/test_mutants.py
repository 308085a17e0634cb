"""The faults of `make mutants`: each can be planted in the source as it is."""

import runpy

import pytest

from conftest import REPOSITORY

FAULTS = runpy.run_path(str(REPOSITORY / "tools" / "mutants.py"))["faults"]([])


@pytest.mark.parametrize("fault", FAULTS, ids=[one.name for one in FAULTS])
def test_a_fault_can_be_planted(fault):
    planted = fault.planted()
    assert planted != (REPOSITORY / fault.file).read_text()
    assert compile(planted, fault.file, "exec")
