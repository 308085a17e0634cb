"""The rooms of an opened ledger see what others did to its file in between, whatever they keep of it."""

import shutil
from pathlib import Path

import pytest

from ledgers import NOTHING, fitting, new_ledger, reserve
from tutelage import Ledger
from tutelage.exceptions import LedgerTamperedError
from tutelage.ledger.beginning import Intent, Whom


def test_a_budget_that_is_restored_and_raised_otherwise_is_the_present_one(tmp_path: Path):
    path, before = tmp_path / "a.ledger", tmp_path / "before"
    new_ledger(path, 2.0)
    shutil.copyfile(path, before)
    opened = Ledger.open(path)
    Ledger.open(path).raise_budget(50.0, by="the board", why="more labels")
    assert fitting(opened, NOTHING) == opened.limit.fitting(NOTHING, 0)
    assert opened.limit.epsilon == 50.0
    before.replace(path)
    other = Ledger.open(path)
    other.raise_budget(3.0, by="the board", why="fewer labels")
    assert fitting(opened, NOTHING) == fitting(other, NOTHING)
    assert opened.limit.epsilon == 3.0


def test_a_copy_that_is_written_over_the_file_is_seen_whatever_it_counts(tmp_path: Path):
    path, before = tmp_path / "a.ledger", tmp_path / "before"
    new_ledger(path)
    opened = Ledger.open(path)
    shutil.copyfile(path, before)
    reserve(opened, NOTHING, 1)
    counted = path.read_bytes()[24:40]  # by which SQLite knows what it read of the file
    shutil.copyfile(before, path)
    other = Ledger.open(path)
    reserve(other, NOTHING, 5)
    assert path.read_bytes()[24:40] == counted
    with pytest.raises(LedgerTamperedError, match="replaced"):
        reserve(opened, NOTHING, 1)
    assert [entry["queries"] for entry in Ledger.open(path).export()[1:]] == [5]


@pytest.mark.parametrize("reopened", [False, True])
def test_an_entry_names_cohorts_in_one_order_whatever_was_read_before(reopened, tmp_path: Path):
    ledger = new_ledger(tmp_path / "a.ledger")
    for release in ("z", "a", "m"):
        used = Ledger.open(tmp_path / "a.ledger") if reopened else ledger
        whom = Whom(b"data", [release], changed=True)
        with used.begin(Intent(release, "", NOTHING, None, release), whom) as scope:
            scope.account.reserve(NOTHING, 1)
    begun = [entry["cohorts"] for entry in ledger.export() if "cohorts" in entry]
    assert begun == [["z"], ["z", "a"], ["a", "z", "m"]]
