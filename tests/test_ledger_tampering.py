"""Edits of the ledger's file: every one that changes what the ledger says is found, or the file is refused."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ledgers import bind, edit, new_ledger, rechained, resealed, reserve
from tutelage import GNMax, LabelingSession, Ledger, VoteHistogram
from tutelage.digests import canonical
from tutelage.exceptions import LedgerStorageError, LedgerTamperedError, TutelageError
from tutelage.ledger.answers import stored_answers
from tutelage.ledger.entries import FORMAT
from tutelage.privacy import ONE_TEACHER

_RANGE = 128  # bytes overwritten at a time


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A ledger with a binding, several batches, and one batch that never ended."""
    made = tmp_path_factory.mktemp("closed") / "a.ledger"
    votes = VoteHistogram(np.array([[200, 30, 20], [90, 80, 80]]), 250)
    ledger = new_ledger(made, 5.0)
    bind(ledger, b"some data")
    session = LabelingSession(votes, GNMax(sigma=40.0), ledger)
    for batch in range(4):
        session.ask(np.arange(4.0).reshape(2, 2) + 10 * batch)
    reserve(ledger, GNMax(sigma=40.0).event_of_one(3, ONE_TEACHER, simulated=False), 3)
    return made.read_bytes()


@pytest.fixture
def path(tmp_path: Path, closed: bytes) -> Path:
    copy = tmp_path / "a.ledger"
    copy.write_bytes(closed)
    copy.chmod(0o600)
    return copy


def says(path: Path) -> tuple[object, ...]:
    """Return everything that the ledger says, once it has verified itself."""
    ledger = Ledger.open(path)
    state, entries = ledger.verify(), ledger.export()
    with ledger._opened.store.transaction() as read:
        return state, entries, list(stored_answers(read))


def ranges(content: bytes) -> Iterator[tuple[int, int]]:
    """Yield the start and the size of ranges that together are the file; those without content are sixteen as large."""
    for block in range(0, len(content), 16 * _RANGE):
        step = _RANGE if any(content[block : block + 16 * _RANGE]) else 16 * _RANGE
        for start in range(block, min(block + 16 * _RANGE, len(content)), step):
            yield start, step


def test_overwriting_any_range_of_bytes_is_found_or_changes_nothing(path):
    content, before = path.read_bytes(), says(path)
    path_tampered = path.with_name("tampered.ledger")
    random, found, idle = np.random.default_rng(0), 0, []
    for start, size in ranges(content):
        path_tampered.write_bytes(content[:start] + random.bytes(size) + content[start + size :])
        Path(f"{path_tampered}-journal").unlink(missing_ok=True)
        try:
            assert says(path_tampered) == before, f"bytes from {start} changed the ledger unnoticed"
            idle.append((start, size))
        except TutelageError:
            found += 1
    # What is not found are bytes that SQLite does not use: rests of pages and reserved parts of its header.
    used = sum(any(content[start : start + _RANGE]) for start in range(0, len(content), _RANGE))
    assert found > 0.95 * used
    for start, size in idle:
        assert start < 100 or not any(content[start : start + size]), start


def test_cutting_the_file_off_anywhere_is_found(path):
    content, cut = path.read_bytes(), path.with_name("cut.ledger")
    for length in range(0, len(content), 2048):
        cut.write_bytes(content[:length])
        with pytest.raises(TutelageError):
            says(cut)


EDITS = {
    "an entry is deleted": ["DELETE FROM entries WHERE number = 3"],
    "the newest entries are deleted, answers stay": ["DELETE FROM entries WHERE number > 7"],
    "an entry is edited": [
        "UPDATE entries SET text = replace(text, 'cost\":', 'cost\":1') WHERE number = 2"
    ],
    "two entries change places": [
        "UPDATE entries SET number = -1 WHERE number = 2",
        "UPDATE entries SET number = 2 WHERE number = 4",
        "UPDATE entries SET number = 4 WHERE number = -1",
    ],
    "a hash is replaced": ["UPDATE entries SET hash = zeroblob(32) WHERE number = 10"],
    "a text becomes a blob": ["UPDATE entries SET text = CAST(text AS BLOB) WHERE number = 2"],
    "an entry is added": [
        "INSERT INTO entries SELECT 11, text, hash, NULL FROM entries WHERE number = 10"
    ],
    "an answer is changed": ["UPDATE answers SET labels = '[2]' WHERE reservation = 2"],
    "an answer is deleted": ["DELETE FROM answers WHERE query = (SELECT min(query) FROM answers)"],
    "an answer is added": ["INSERT INTO answers VALUES (zeroblob(32), '[1]', 2)"],
    "an answer is added to an unsettled batch": [
        "INSERT INTO answers VALUES (zeroblob(32), '[1]', 10)"
    ],
    "an answer changes batches": ["UPDATE answers SET reservation = 4 WHERE reservation = 2"],
    "an answer moves into its query": [
        "UPDATE answers SET query = query || CAST(labels AS BLOB), labels = ''"
    ],
    "a query is changed": [
        "UPDATE answers SET query = zeroblob(32) WHERE query = (SELECT min(query) FROM answers)"
    ],
    "the key is changed": ["UPDATE secret SET key = zeroblob(32)"],
    "the key is deleted": ["DELETE FROM secret"],
    "a second key is added": ["INSERT INTO secret VALUES (zeroblob(32))"],
    "a batch is marked as settled": ["UPDATE entries SET settles = 10 WHERE number = 9"],
    "a table is added": ["CREATE TABLE more (x)"],
    "a trigger is added": [
        "CREATE TRIGGER t AFTER INSERT ON entries BEGIN DELETE FROM entries WHERE number = new.number; END"
    ],
    "a table loses a constraint": [
        "ALTER TABLE answers RENAME TO old",
        "CREATE TABLE answers (query BLOB, labels TEXT NOT NULL, reservation INTEGER NOT NULL)",
        "INSERT INTO answers SELECT * FROM old",
        "DROP TABLE old",
    ],
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_through_sqlite_is_found(name, path):
    opened = Ledger.open(path)
    edit(path, *EDITS[name])
    for verify in (opened.verify, lambda: Ledger.open(path).verify()):
        with pytest.raises(LedgerTamperedError):
            verify()


def test_the_helper_of_the_next_test_rewrites_faithfully(path):
    head = says(path)[0].head  # pyright: ignore[reportAttributeAccessIssue]
    rechained(path, {})
    assert Ledger.open(path).verify(head).head == head


@pytest.mark.parametrize("change", [
    {0: {"capacity": 10**18}},
    {0: {"epsilon": "5"}},
    {2: {"cost": 1}},
    {2: {"event": {"event": "Exec"}}},
    {3: {"refund": 10**11}},
    {3: {"reservation": 10}},
    {3: {"digest": "00" * 32}},
    {3: {"answers": 0}},
    {5: {"reservation": 2}},
    {10: {"spent": 0}},
    {10: {"kind": "opened"}},
    {10: {"kind": "erased"}},
    {10: {"format": FORMAT + 1}},
    {10: {"queries": 1000}},
    {10: {"number": 9}},
    {0: {"unit": {"name": "patient", "neighboring": "ballot"}}},
    {0: {"unit": {"name": ONE_TEACHER.name, "neighboring": "row"}}},
    {0: {"epsilon": 10.0}},
    {3: {"happened": GNMax(sigma=400.0).event_of_one(3, ONE_TEACHER, simulated=False).as_dict()}},
], ids=canonical)  # fmt: skip
def test_a_rewritten_chain_is_found_where_it_does_not_add_up(change, path):
    rechained(path, change)
    with pytest.raises((LedgerTamperedError, LedgerStorageError)):
        Ledger.open(path).verify()


def test_a_refund_of_what_was_used_is_found_though_all_sums_add_up(path):
    entries = Ledger.open(path).export()
    refund = entries[2]["cost"] // 2
    change = {
        number: {"spent": entries[number]["spent"] - refund} for number in range(3, len(entries))
    }
    change[3]["refund"] = refund
    rechained(path, change)
    with pytest.raises(LedgerTamperedError):
        Ledger.open(path).verify()


def test_what_a_rewritten_chain_can_hide_the_kept_head_finds(path):
    head = Ledger.open(path).state().head
    rechained(path, {10: {"written": "2020-01-01T00:00:00+00:00"}})
    ledger = Ledger.open(path)
    ledger.verify()
    with pytest.raises(LedgerTamperedError, match="does not hold the entry with that hash"):
        ledger.verify(head)


def test_a_rollback_is_found_with_the_kept_head_only(path):
    older = path.with_name("older.ledger")
    shutil.copy(path, older)
    ledger = Ledger.open(path)
    kept = ledger.state().head
    reserve(ledger, GNMax(sigma=40.0).event_of_one(3, ONE_TEACHER, simulated=False), 1)
    newer = ledger.state().head
    ledger.verify(kept)  # growing is no rollback
    shutil.copy(older, path)
    ledger = Ledger.open(path)
    assert ledger.verify().head == kept
    with pytest.raises(LedgerTamperedError, match="replaced by an older copy"):
        ledger.verify(newer)


def test_the_tail_cut_off_is_found_and_with_a_forged_checkpoint_by_the_kept_head(path):
    ledger = Ledger.open(path)
    head, kept = ledger.state().head, path.with_name("forged.ledger")
    edit(path, "DELETE FROM entries WHERE number = 10")
    shutil.copy(path, kept)
    with pytest.raises(LedgerTamperedError, match="checkpoint is not that of its newest entry"):
        Ledger.open(path)
    resealed(kept, unsettled=0)
    forged = Ledger.open(kept)
    forged.verify()
    with pytest.raises(LedgerTamperedError, match="does not hold the entry with that hash"):
        forged.verify(head)


@pytest.mark.parametrize("change", [
    {"answers": 9}, {"unsettled": 0}, {"fingerprint": ""}, {"simulated": True}, {"accounts": {"": 0}},
])  # fmt: skip
def test_a_forged_checkpoint_is_found_where_it_does_not_add_up(change, path):
    resealed(path, **change)
    with pytest.raises(
        LedgerTamperedError, match=r"does not add up with its entries|fewer or more labels"
    ):
        Ledger.open(path).verify()


@pytest.mark.parametrize("statement", [
    "DELETE FROM checkpoint",
    "UPDATE checkpoint SET text = replace(text, '8', '9')",
    "INSERT INTO checkpoint VALUES ('', x'')",
])  # fmt: skip
def test_an_edited_checkpoint_opens_no_ledger(statement, path):
    edit(path, statement)
    with pytest.raises(LedgerTamperedError, match="checkpoint"):
        Ledger.open(path)


def test_an_edit_during_a_session_is_found_at_the_next_charge(path):
    event = GNMax(sigma=40.0).event_of_one(3, ONE_TEACHER, simulated=False)
    ledger = Ledger.open(path)
    edit(
        path,
        "UPDATE entries SET text = replace(text, '\"spent\":', '\"spent\": ') WHERE number = 10",
    )
    with pytest.raises(LedgerTamperedError, match="Entry 10 does not match its hash"):
        reserve(ledger, event, 1)


@pytest.mark.parametrize("labels", [
    "UPDATE answers SET labels = '[1'",
    "UPDATE answers SET labels = '{}'",
    "UPDATE answers SET labels = '[true]'",
])  # fmt: skip
def test_a_damaged_answer_is_refused_when_it_is_asked_for_again(labels, path):
    """Opening reads no answers, so each is checked where it is recalled."""
    edit(path, labels)
    ledger = Ledger.open(path)
    with ledger._opened.store.transaction() as read:
        queries = [query for _, query, _ in stored_answers(read)]
    with pytest.raises(LedgerTamperedError, match="not in the form"):
        ledger.account.recall(queries)
