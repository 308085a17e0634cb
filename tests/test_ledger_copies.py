"""Copies of a ledger: a backup is no second budget, and cannot be used as one beside the original."""

import json
import os
import shutil
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from ledgers import new_ledger, require_room, reserve, reserve_new, settle
from processes import at_once
from test_cli import refusal, succeeded
from test_cohorts import EVENTS, UNIT
from tutelage import GNMax, LabelingSession, Ledger, VoteHistogram
from tutelage.exceptions import LedgerLockedError, LedgerMismatchError, LedgerStorageError
from tutelage.ledger import search, store
from tutelage.ledger.search import ledgers_in
from tutelage.privacy import round_up

EVENT = EVENTS[0]
VOTES = VoteHistogram(np.array([[200, 30, 20], [90, 80, 80]]), 250)
ROWS = np.arange(4.0).reshape(2, 2)


def spend(ledger: Ledger) -> None:
    settle(ledger, reserve(ledger, EVENT, 1), {os.urandom(32): (7,)}, EVENT)


@pytest.fixture
def original(tmp_path: Path) -> Ledger:
    ledger = new_ledger(tmp_path / "a.ledger", 3.0, unit=UNIT)
    spend(ledger)
    return ledger


def test_the_original_goes_on_beside_a_backup_and_the_backup_waits_until_it_is_alone(
    original, tmp_path, called
):
    original.backup(tmp_path / "kept")
    copy = Ledger.open(tmp_path / "kept")
    spend(original)
    for draw, one in (
        (reserve, copy),
        (require_room, copy),
        (reserve, Ledger.open(tmp_path / "kept")),
    ):
        with pytest.raises(
            LedgerMismatchError,
            match=r"a\.ledger is a copy of this ledger that was used without it",
        ):
            draw(one, EVENT, 1)
    spent = copy.state().spent
    assert spent == original.state().spent / 2
    found = json.loads(succeeded(called("ledger", "list", tmp_path, "--json")).stdout)
    assert (found["copies"], found["used_apart"]) == ({"kept": "a.ledger"}, [])
    (tmp_path / "a.ledger").unlink()
    spend(copy)
    assert copy.verify().spent == 2 * spent


def test_copies_that_were_used_apart_are_refused_and_their_sum_is_told(original, tmp_path, called):
    (tmp_path / "elsewhere").mkdir()
    shutil.copy(tmp_path / "a.ledger", tmp_path / "elsewhere")
    other = Ledger.open(tmp_path / "elsewhere" / "a.ledger")
    for one in (other, other, original):
        spend(one)
    shutil.move(tmp_path / "elsewhere" / "a.ledger", tmp_path / "b.ledger")
    for one in (original, Ledger.open(tmp_path / "b.ledger")):
        with pytest.raises(
            LedgerMismatchError, match="copy of this ledger that was used without it"
        ):
            reserve(one, EVENT, 1)
    each = original.state().spent / 2
    said = succeeded(called("ledger", "list", tmp_path)).stdout
    assert (
        f"spent at most {round_up(5 * each):.4f}, and guarantee at most ε = 6 at δ = 2e-05" in said
    )
    assert json.loads(called("ledger", "list", tmp_path, "--json").stdout)["used_apart"] == [
        ["b.ledger", "a.ledger"]
    ]


def test_a_session_asks_no_new_query_of_a_copy_and_repeats_old_ones(tmp_path):
    original = new_ledger(tmp_path / "a.ledger", 3.0)
    first = LabelingSession(VOTES, GNMax(40.0), original, X_voted=ROWS).ask(ROWS[:1])
    shutil.copy(tmp_path / "a.ledger", tmp_path / "b.ledger")
    asking = LabelingSession(VOTES, GNMax(40.0), original, X_voted=ROWS)
    asking.ask(ROWS)
    beside = LabelingSession(VOTES, GNMax(40.0), Ledger.open(tmp_path / "b.ledger"), X_voted=ROWS)
    with pytest.raises(LedgerMismatchError, match="copy of this ledger"):
        beside.ask(ROWS)
    assert beside.ask(ROWS[:1]).labels.tolist() == first.labels.tolist()


@pytest.mark.parametrize("_attempt", range(4))
def test_of_two_that_draw_through_equal_copies_at_once_one_at_most_does(
    original, tmp_path, _attempt
):
    other = Ledger.open(shutil.copy(tmp_path / "a.ledger", tmp_path / "b.ledger"))
    assert 1 in at_once(partial(spend, original), partial(spend, other))


def test_a_step_that_is_open_in_two_copies_is_not_taken_over_through_both(original, tmp_path):
    reserve_new(original, EVENT, [b"q" * 32])
    copy = Ledger.open(shutil.copy(tmp_path / "a.ledger", tmp_path / "b.ledger"))
    again, before = Ledger.open(tmp_path / "a.ledger"), original.state().spent
    with again.account.turn(), copy.account.turn():
        reserve_new(again, EVENT, [b"q" * 32])  # paid anew: the copy might take over the other one
        assert again.state().spent > before
        with pytest.raises(LedgerMismatchError):
            reserve_new(copy, EVENT, [b"q" * 32])


def test_ledgers_are_found_by_what_is_in_them_and_in_the_homes_of_hospitals(
    original, tmp_path, called
):
    for name in ("hospital-1", "other"):
        (tmp_path / name).mkdir()
    home = new_ledger(tmp_path / "hospital-1" / "ledger", 3.0, unit=UNIT)
    new_ledger(tmp_path / "other" / "deeper.ledger", 1.0, unit=UNIT)
    original.backup(tmp_path / "monday")
    for link, target in (("link", "a.ledger"), ("round", "round.ledger"), ("nowhere", "nothing")):
        (tmp_path / f"{link}.ledger").symlink_to(target)
    assert "leads in a circle" in refusal(called("ledger", "show", "round.ledger", cwd=tmp_path), 1)
    for name in ("table.csv", "a.ledger-journal"):
        (tmp_path / name).write_bytes(bytes(8192))
    found = [str(path.relative_to(tmp_path)) for path in ledgers_in(tmp_path)]
    assert found == ["a.ledger", "hospital-1/ledger", "monday"]
    shutil.copytree(tmp_path / "hospital-1", tmp_path / "hospital-2")
    spend(home)
    with pytest.raises(LedgerMismatchError, match="hospital-1/ledger is a copy of this ledger"):
        spend(Ledger.open(tmp_path / "hospital-2" / "ledger"))


@pytest.mark.parametrize("end", ["-journal", ".turn", ".making-1"])
def test_no_ledger_gets_the_name_of_a_file_that_goes_with_another(end, original, tmp_path, called):
    name = f"a.ledger{end}"
    for arguments in (
        ("backup", "a.ledger", name),
        ("init", name, "--epsilon", 1, "--delta", 1e-5, "--neighbors", "row"),
    ):
        assert "belong to other ledgers" in refusal(called("ledger", *arguments, cwd=tmp_path), 1)
    spend(original)
    assert not (tmp_path / name).exists()
    shutil.copy(tmp_path / "a.ledger", tmp_path / f"b{end}")
    (tmp_path / "b.ledger").symlink_to(f"b{end}")
    with pytest.raises(LedgerStorageError, match="Rename the file"):
        Ledger.open(tmp_path / "b.ledger")


@pytest.mark.parametrize("replace", [os.replace, shutil.copy])
def test_a_copy_that_takes_the_place_of_another_ledger_is_found(replace, original, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    new_ledger(tmp_path / "b.ledger", 3.0, unit=UNIT)
    spend(original)
    replace(shutil.copy(tmp_path / "a.ledger", tmp_path / "elsewhere"), tmp_path / "b.ledger")
    spend(Ledger.open(tmp_path / "b.ledger"))
    with pytest.raises(LedgerMismatchError, match=r"b\.ledger is a copy of this ledger"):
        spend(original)


def test_no_ledger_is_made_beside_the_journal_of_an_earlier_one(tmp_path):
    (tmp_path / "a.ledger-journal").write_bytes(b"of an earlier ledger")
    with pytest.raises(LedgerStorageError, match=r"a\.ledger-journal is left of an earlier ledger"):
        new_ledger(tmp_path / "a.ledger", 1.0, unit=UNIT)
    assert (tmp_path / "a.ledger-journal").exists()


def test_a_draw_looks_only_at_files_that_are_new_in_a_folder_of_many(
    original, tmp_path, monkeypatch
):
    for number in range(9):
        (tmp_path / f"{number}.csv").write_text("x")
    looked, of_ledgers = list[str](), search._ledgers_of
    monkeypatch.setattr(
        search, "_ledgers_of", lambda paths: looked.extend(paths) or of_ledgers(paths)
    )
    spend(original)
    assert len(looked) >= 9
    looked.clear()
    (tmp_path / "another.csv").write_text("x")
    spend(original)
    spend(original)
    assert [path for path in looked if path.endswith(".csv")] == [f"{tmp_path}/another.csv"]
    shutil.copy(tmp_path / "a.ledger", tmp_path / "7.ledger")
    spend(Ledger.open(tmp_path / "7.ledger"))
    with pytest.raises(LedgerMismatchError, match=r"7\.ledger is a copy of this ledger"):
        spend(original)


def test_a_ledger_in_a_folder_that_cannot_be_listed_is_used(original, tmp_path, monkeypatch):
    def refuse(folder: object) -> None:
        raise PermissionError(folder)

    monkeypatch.setattr(search.os, "scandir", refuse)
    before = original.state().spent
    spend(original)
    assert original.state().spent > before


def test_a_copy_that_another_process_holds_is_not_passed_over(original, tmp_path, monkeypatch):
    monkeypatch.setattr(search, "_TIMEOUT", 0.0)
    spend(Ledger.open(shutil.copy(tmp_path / "a.ledger", tmp_path / "b.ledger")))
    with closing(sqlite3.connect(tmp_path / "b.ledger", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        again = Ledger.open(tmp_path / "a.ledger")
        with pytest.raises(LedgerLockedError):
            reserve(again, EVENT, 1)
    with pytest.raises(LedgerMismatchError, match="copy of this ledger"):
        reserve(again, EVENT, 1)


def test_a_copy_in_a_folder_that_cannot_be_written_to_is_found(tmp_path, monkeypatch):
    for home in ("hospital-1", "hospital-2"):
        (tmp_path / home).mkdir()
    own = new_ledger(tmp_path / "hospital-1" / "ledger", 3.0, unit=UNIT)
    shutil.copy(tmp_path / "hospital-1" / "ledger", tmp_path / "hospital-2")
    spend(Ledger.open(tmp_path / "hospital-2" / "ledger"))
    accessible, locks = os.access, store.check_locks

    def check_locks(folder: Path) -> None:
        if folder.name == "hospital-2":
            raise LedgerStorageError("No file can be made here.")
        locks(folder)

    monkeypatch.setattr(store, "check_locks", check_locks)
    monkeypatch.setattr(
        os, "access", lambda path, mode: Path(path).name != "hospital-2" and accessible(path, mode)
    )
    with pytest.raises(LedgerMismatchError, match="hospital-2/ledger is a copy of this ledger"):
        spend(own)
