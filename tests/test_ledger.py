"""The ledger by itself: what it charges, refuses, remembers and says."""

import json
import os
import pickle
import resource
import shutil
import signal
import sqlite3
import tempfile
from collections import Counter
from contextlib import closing, contextmanager
from copy import deepcopy
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from ledgers import (
    bind,
    edit,
    fitting,
    new_ledger,
    reserve,
    reserve_new,
    reserve_votes,
    settle,
    write_binding,
)
from processes import ended, forked
from tutelage import Ledger, PATEClassifier
from tutelage.accounting import data_independent
from tutelage.accounting.filter import GRAIN, RenyiFilter
from tutelage.digests import data_digest, query_hashes, row_bytes
from tutelage.events import (
    CappedArgmaxGaussian,
    Composed,
    ConfidenceCheck,
    Event,
    NoisyArgmaxGaussian,
    PublicationTest,
    Repeated,
)
from tutelage.exceptions import (
    BudgetExceededError,
    InvalidDataError,
    InvalidParameterError,
    LateProposalError,
    LedgerError,
    LedgerLockedError,
    LedgerMismatchError,
    LedgerStorageError,
    LedgerTamperedError,
    PublicationsExhaustedError,
    UnsupportedEventError,
)
from tutelage.ledger.campaigns import Voters
from tutelage.ledger.entries import Entry, EntryKind
from tutelage.ledger.transaction import Transaction
from tutelage.ledger.turns import is_held
from tutelage.privacy import ONE_TEACHER, NeighboringRelation, PrivacyUnit

ANSWER = NoisyArgmaxGaussian(40.0, 10, ONE_TEACHER)
CHECK = ConfidenceCheck(200, 150.0, 10, ONE_TEACHER)
CHECKED = Composed((CHECK, ANSWER))
PATIENT = PrivacyUnit("patient", NeighboringRelation.ADD_REMOVE_OR_CHANGE_ONE_ENTITY)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return new_ledger(tmp_path / "a.ledger")


def answer(ledger: Ledger, queries: list[bytes], event: Event = ANSWER) -> None:
    settle(
        ledger,
        reserve(ledger, event, len(queries)),
        dict.fromkeys(queries, (1,)),
        Repeated(event, len(queries)),
    )


def test_it_is_one_file_and_its_journal_is_private_too(ledger):
    answer(ledger, [b"x" * 32])
    assert [path.name for path in ledger.path.parent.iterdir()] == ["a.ledger"]
    assert ledger.path.stat().st_mode & 0o777 == 0o600
    with ledger._opened.store.transaction(write=True) as write:
        write.append(Entry.after(write.last(), EntryKind.BOUND, 0, fingerprint="x"))
        assert Path(f"{ledger.path}-journal").stat().st_mode & 0o777 == 0o600


def test_a_batch_is_reserved_whole_or_not_at_all(ledger):
    room = fitting(ledger, ANSWER)
    with pytest.raises(BudgetExceededError) as refused:
        reserve(ledger, ANSWER, room + 1)
    assert (refused.value.requested, refused.value.fitting) == (room + 1, room)
    assert ledger.state().spent == 0
    reserve(ledger, ANSWER, room)
    assert fitting(ledger, ANSWER) == 0
    with pytest.raises(BudgetExceededError):
        reserve(ledger, ANSWER, 1)


def test_a_reservation_is_settled_once_and_in_its_own_ledger(ledger, tmp_path):
    reservation = reserve(ledger, ANSWER, 1)
    settle(ledger, reservation, {b"q" * 32: (3,)}, ANSWER)
    with pytest.raises(LedgerError):
        settle(ledger, reservation, {b"r" * 32: (3,)}, ANSWER)
    other = new_ledger(tmp_path / "b.ledger")
    with pytest.raises(LedgerError):
        settle(other, reserve(ledger, ANSWER, 1), {}, ANSWER)
    assert ledger.account.recall([b"r" * 32]) == {}
    true = reserve(ledger, ANSWER, 2)
    for forged in (replace(true, grains=10 * true.grains), replace(true, queries=9)):
        with pytest.raises(LedgerError):
            settle(ledger, forged, {}, Repeated(ANSWER, forged.queries))


def test_a_named_batch_is_paid_for_once_and_found_again(ledger):
    assert ledger.account.find("first") is None
    reservation = reserve(ledger, ANSWER, 3, batch="first")
    spent = ledger.state().spent
    assert reserve(ledger, ANSWER, 3, batch="first") == ledger.account.find("first") == reservation
    assert ledger.state().spent == spent
    assert not ledger.account.is_settled(reservation)
    settle(ledger, reservation, {}, Repeated(ANSWER, 3))
    assert ledger.account.is_settled(reservation)
    assert reserve(ledger, ANSWER, 3, batch="second") != reservation
    with pytest.raises(LedgerError):
        reserve(ledger, ANSWER, 4, batch="first")


def test_the_first_answer_to_a_query_is_the_one_that_stays(ledger):
    first, second = reserve(ledger, ANSWER, 1), reserve(ledger, ANSWER, 1)
    assert settle(ledger, first, {b"q" * 32: (3,)}, ANSWER) == {b"q" * 32: (3,)}
    assert settle(ledger, second, {b"q" * 32: (4,)}, ANSWER) == {b"q" * 32: (3,)}
    assert ledger.verify().answers == 1


def test_other_units_and_unbounded_events_are_refused_and_cost_nothing(ledger):
    class Mine(Event):
        pass

    would_not_come_back = NoisyArgmaxGaussian(40.0, 10, ONE_TEACHER, np.bool_(False))  # pyright: ignore[reportArgumentType]
    costs_too_much = NoisyArgmaxGaussian(1e-6, 10, ONE_TEACHER)
    with pytest.raises(LedgerMismatchError):
        reserve(ledger, NoisyArgmaxGaussian(40.0, 10, PATIENT), 1)
    for event in (Event(), Mine(), would_not_come_back, costs_too_much):
        with pytest.raises(UnsupportedEventError):
            reserve(ledger, event, 1)
    for queries in (0, -1, 1.5, True):
        with pytest.raises(InvalidParameterError, match="`queries` of Account"):
            reserve(ledger, ANSWER, queries)  # pyright: ignore[reportArgumentType]
    assert ledger.verify().entries == 1


@pytest.mark.parametrize(("event", "happened", "label", "message"), [
    (CHECKED, Composed((Repeated(CHECK, 3), Repeated(ANSWER, 5))), 0, "ran more"),
    (ANSWER, NoisyArgmaxGaussian(39.0, 10, ONE_TEACHER), 0, "ran more"),
    (ANSWER, Repeated(ANSWER, 0), 0, "fewer answers without a check"),
    (CHECKED, Composed((Repeated(CHECK, 3), Repeated(ANSWER, 2))), -1, "reports fewer checks"),
    (CHECKED, Composed((Repeated(CHECK, 4), Repeated(ANSWER, 3))), 0, "gives more labels than it reports answers"),
])  # fmt: skip
def test_no_more_may_happen_than_was_reserved_and_nothing_is_given_back_on_a_mechanisms_word(
    event, happened, label, message, ledger
):
    reservation = reserve(ledger, event, 4)
    before = ledger.state()
    with pytest.raises(LedgerError, match=message):
        settle(ledger, reservation, {bytes([place]) * 32: (label,) for place in range(4)}, happened)
    assert ledger.state() == before
    assert ledger.account.recall([bytes(32)]) == {}


def test_a_file_put_in_its_place_is_noticed(ledger, tmp_path):
    older = tmp_path / "older"
    shutil.copy(ledger.path, older)
    reserve(ledger, ANSWER, 1)
    older.replace(ledger.path)
    with pytest.raises(LedgerTamperedError):
        reserve(ledger, ANSWER, 1)
    new_ledger(tmp_path / "b.ledger")
    (tmp_path / "b.ledger").replace(ledger.path)
    with pytest.raises(LedgerTamperedError):
        ledger.state()


def test_a_file_replaced_during_a_transaction_takes_no_debit(ledger, tmp_path):
    shutil.copy(ledger.path, tmp_path / "older")

    def replaced_meanwhile() -> None:
        with ledger._opened.store.transaction(write=True) as write:
            write.append(Entry.after(write.last(), EntryKind.BOUND, 0, fingerprint="x"))
            (tmp_path / "older").replace(ledger.path)

    with pytest.raises(LedgerTamperedError):
        replaced_meanwhile()
    assert Ledger.open(ledger.path).state().entries == 1


def test_another_working_folder_is_not_another_ledger(ledger, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    relative = Ledger.open("a.ledger")
    (tmp_path / "elsewhere").mkdir()
    new_ledger(tmp_path / "elsewhere" / "a.ledger")
    monkeypatch.chdir(tmp_path / "elsewhere")
    reserve(relative, ANSWER, 5)
    assert ledger.state() == relative.state()
    assert Ledger.open("a.ledger").state().spent == 0


@pytest.mark.parametrize(("change", "parameter"), [
    ({"epsilon": float("nan")}, "epsilon"),
    ({"delta": 0}, "delta"),
    ({"order": 1.0}, "order"),
    ({"order": 9.0, "suited_to": ANSWER}, "order"),
])  # fmt: skip
def test_a_budget_out_of_range_is_refused_and_leaves_no_file(change, parameter, tmp_path):
    with pytest.raises(InvalidParameterError) as refused:
        Ledger.create(
            tmp_path / "a.ledger", **{"epsilon": 2.0, "delta": 1e-5, "unit": ONE_TEACHER, **change}
        )
    assert refused.value.parameter == parameter
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_there_is_never_made_or_written_over(ledger, tmp_path):
    other, foreign, linked = (tmp_path / name for name in ("other", "other.db", "link"))
    other.write_bytes(b"not a database at all" * 99)
    edit(foreign, "PRAGMA application_id = 7", "CREATE TABLE t (x)")
    make = partial(Ledger.create, epsilon=9.0, delta=1e-5, unit=ONE_TEACHER)
    for sentence, read in (
        ("exists already, with its own budget", lambda: make(ledger.path)),
        ("its folder does not exist", lambda: make(tmp_path / "no" / "a.ledger")),
        ("is read-only here", lambda: reserve(Ledger.open(ledger.path, read_only=True), ANSWER, 1)),
        ("is not a file", lambda: Ledger.open(tmp_path)),
        ("does not exist", lambda: Ledger.open(tmp_path / "nothing")),
        ("is no ledger", lambda: Ledger.open(other)),
        ("is a database, but no ledger of tutelage", lambda: Ledger.open(foreign)),
    ):
        with pytest.raises(LedgerStorageError, match=sentence):
            read()
    linked.symlink_to(ledger.path)
    reserve(Ledger.open(linked), ANSWER, 5)
    assert (ledger.limit.epsilon, ledger.state().entries) == (2.0, 2)
    os.link(ledger.path, tmp_path / "b.ledger")
    with pytest.raises(LedgerStorageError, match="has a second name"):
        Ledger.open(tmp_path / "b.ledger")


def test_it_knows_its_data_set(ledger):
    digest, other = b"digest of the data", b"of other data"
    bind(ledger, digest)
    assert ledger.state().entries == 1  # written with the first reservation
    answer(ledger, [b"q" * 32])
    with pytest.raises(LedgerMismatchError):
        bind(ledger, other)
    with pytest.raises(LedgerMismatchError):
        bind(Ledger.open(ledger.path), other)
    spent = ledger.state().spent
    bind(ledger, other, changed=True)
    for _ in range(2):
        write_binding(ledger)
    assert ledger.state().spent == spent
    with pytest.raises(LedgerMismatchError):
        bind(ledger, digest)
    assert [entry["kind"] for entry in ledger.export()] == [
        "opened",
        "bound",
        "reserved",
        "answered",
        "bound",
    ]
    assert digest not in ledger.path.read_bytes()
    assert digest.hex() not in json.dumps(ledger.export()) + repr(ledger)


def test_the_export_is_the_chain_without_the_key_or_the_queries(ledger):
    answer(ledger, [b"q" * 32])
    entries, head = ledger.export(), ledger.state().head
    assert entries[-1]["hash"] == head
    assert ledger.verify(head.upper()) == ledger.state()
    with pytest.raises(InvalidParameterError):
        ledger.verify(head[:16])
    with sqlite3.connect(ledger.path) as raw:
        (key,) = raw.execute("SELECT key FROM secret").fetchone()
    assert not any(secret.hex() in json.dumps(entries) for secret in (key, b"q" * 32))


def test_it_is_one_budget_however_it_is_passed_around(ledger):
    assert deepcopy(ledger) is ledger
    with pytest.raises(LedgerError):
        pickle.dumps(ledger)
    assert clone(PATEClassifier(ledger=ledger)).ledger is ledger  # pyright: ignore[reportAttributeAccessIssue]


def test_a_ledger_in_memory_is_of_this_process_only():
    memory = new_ledger(epsilon=1.0)
    reserve(memory, ANSWER, 1)

    def spend() -> None:
        with pytest.raises(LedgerError, match="second process"):
            reserve(memory, ANSWER, 1)

    assert ended(forked(spend)) == 0


def test_what_is_remembered_is_answered_while_another_writes(ledger):
    known, unknown = bytes(32), bytes([1] * 32)
    answer(ledger, [known], TEST)
    with sqlite3.connect(ledger.path, isolation_level=None) as holder:
        holder.execute("BEGIN IMMEDIATE")
        impatient = Ledger.open(ledger.path, timeout=0.1)
        assert reserve_new(impatient, TEST, [known]) == ({known: (1,)}, None)
        for ask in (
            lambda: reserve_new(impatient, TEST, [known, unknown]),
            lambda: reserve(impatient, ANSWER, 1),
        ):
            with pytest.raises(LedgerLockedError):
                ask()
        holder.execute("ROLLBACK")
    reserve(impatient, ANSWER, 1)


@pytest.mark.parametrize("read", [Ledger.history, Ledger.verify])
def test_what_another_thread_writes_after_a_copy_was_made_is_no_replacement(
    read, ledger, monkeypatch
):
    copied = ledger._opened.store.snapshot

    @contextmanager
    def copied_before_a_write():
        with copied() as copy:
            reserve(ledger, ANSWER, 1)
            yield copy

    with monkeypatch.context() as patch:
        patch.setattr(ledger._opened.store, "snapshot", copied_before_a_write)
        read(ledger)
    assert ledger.history().entries[-1].number == ledger.state().entries - 1
    assert ledger.verify().unsettled == 1


def test_a_full_disk_spends_nothing_and_breaks_nothing(ledger):
    states = []

    def reserve_for_ever() -> None:
        while True:
            states.append(ledger.state())
            reserve(ledger, ANSWER, 1)

    def fill() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
        with pytest.raises(LedgerStorageError, match=r"cannot be read or written|no room"):
            reserve_for_ever()
        assert ledger.state() == states[-1]

    assert ended(forked(fill)) == 0
    ledger.verify()
    reserve(ledger, ANSWER, 1)


def test_it_can_be_read_from_a_read_only_folder(ledger):
    answer(ledger, [b"q" * 32])
    state = ledger.state()

    def read() -> None:
        if os.getuid() == 0:
            os.setuid(65534)
        assert Ledger.open(copied, read_only=True).verify() == state

    with tempfile.TemporaryDirectory() as folder:
        copied = Path(shutil.copy(ledger.path, folder))
        copied.chmod(0o444)
        Path(folder).chmod(0o555)
        try:
            assert ended(forked(read)) == 0
        finally:
            Path(folder).chmod(0o755)


@pytest.mark.rest
@given(epsilon=st.floats(0.05, 50), log_delta=st.floats(-30, -2), sigma=st.floats(2, 300))
@settings(max_examples=20)
def test_a_full_budget_costs_no_more_than_its_epsilon(epsilon, log_delta, sigma):
    delta = float(np.exp(log_delta))
    limit = RenyiFilter.suited_to(epsilon, delta)
    event = NoisyArgmaxGaussian(sigma, 10, ONE_TEACHER)
    room = limit.fitting(event, 0)
    orders = np.array([limit.order])
    spent = data_independent.rdp_of_three_outcomes(Repeated(event, room), orders)
    assert spent.at(delta)[0] <= epsilon
    one_more = data_independent.rdp_of_three_outcomes(Repeated(event, room + 1), orders)
    assert one_more.at(delta)[0] > epsilon * (1 - 1e-9)


@pytest.mark.rest
def test_a_budget_can_be_made_to_measure():
    for event in (Repeated(ANSWER, 100), Repeated(CHECKED, 7)):
        limit = RenyiFilter.holding(event, 1e-5)
        assert 0 <= limit.capacity - limit.cost(event) < 1e-6 / GRAIN
        assert limit.epsilon <= data_independent.epsilon(event, 1e-5).epsilon * 1.05


CELLS = [
    0, -0.0, 1, 1.0, True, "1", b"1", None, "None", np.nan, -np.nan, "nan", np.inf, 2**53, 2**53 + 1, 2.0**53, 2**60,
    0.5, np.nextafter(0.5, 1), "12", "2", "", "e\u0301", "\u00e9",
]  # fmt: skip


def test_rows_are_the_same_query_where_their_cells_are_equal_and_only_there():
    def identity(cell: Any) -> object:
        return (
            "no number of its own"
            if cell != cell
            else normalize("NFC", cell)
            if isinstance(cell, str)
            else cell
        )

    rows = list(product(CELLS, CELLS))
    together = row_bytes(rows)
    assert together == [row_bytes([row])[0] for row in rows]  # whatever stands beside it
    by_cells = dict[object, set[bytes]]()
    for row, found in zip(rows, together, strict=True):
        by_cells.setdefault(tuple(map(identity, row)), set()).add(found)
    assert max(map(len, by_cells.values())) == 1
    assert len(set(together)) == len(by_cells)
    for kind in (np.int64, ">i2", bool):
        assert row_bytes(np.array([[1, 0]], dtype=kind)) == row_bytes([[1, 0]])
    assert row_bytes(np.array([[2**53 + 1, 2**53]])) == row_bytes([[2**53 + 1, 2**53]])


def test_rows_of_other_shapes_and_contexts_are_other_queries():
    shapes = [[[1.0, 2.0]], [[1.0, 2.0, 0.0]], np.array([[[1.0], [2.0]]])]
    assert len({row_bytes(row)[0] for row in shapes}) == len(shapes)
    images = np.empty((2, 1), dtype=object)
    images[:, 0] = [np.zeros((9, 9)), np.zeros((9, 9))]
    images[1, 0][4, 4] = 1e-12
    assert len(set(row_bytes(images))) == 2
    images[0, 0] = object()
    with pytest.raises(InvalidDataError):
        row_bytes(images)
    row, key = np.array([[1.0, 2.0]]), bytes(32)
    asked = [
        (key, 1, row),
        (key, 1, row, [[0.5, 0.5]]),
        (b"1" * 32, 1, row),
        (key, 2, row),
        (key, 1, row + 1),
    ]
    assert len(
        {query_hashes(key, {"sigma": sigma}, *given)[0] for key, sigma, *given in asked}
    ) == len(asked)


def test_the_file_knows_people_by_hashes_that_its_own_key_makes(tmp_path):
    known = []
    for name in ("a", "b"):
        made = new_ledger(tmp_path / name, unit=PATIENT)
        bind(made, b"data", people=["ada"])
        voters, event = Voters(["ada"], b""), CappedArgmaxGaussian(40.0, 5, 10, PATIENT)
        reserve_votes(made, event, "one", voters, np.array([1]), queries=1)
        with closing(sqlite3.connect(tmp_path / name)) as raw:
            known += raw.execute(
                "SELECT person FROM people UNION SELECT teacher FROM votes"
            ).fetchall()
    assert len(set(known)) == len(known) == 4  # whoever has no key can try no id


def test_the_child_of_a_fork_shares_no_turn_and_no_reservation_is_settled_twice(ledger):
    query = b"q" * 32
    with ledger.account.turn():
        mine: Any = reserve_new(ledger, ANSWER, [query])[1]

        def settle_first() -> None:
            assert not is_held(ledger.path)
            another: Any = reserve_new(ledger, ANSWER, [query])[1]
            # The step of a process that lives is not taken over.
            assert another.number != mine.number
            settle(ledger, mine, {query: (3,)}, ANSWER)

        assert ended(forked(settle_first)) == 0
        with pytest.raises(LedgerError, match="The reservation is not open"):
            settle(ledger, mine, {query: (4,)}, ANSWER)
    assert ledger.account.recall([query]) == {query: (3,)}
    ledger.verify()


def test_a_data_digest_ignores_the_order_of_rows_and_nothing_else():
    X, y = np.arange(12.0).reshape(6, 2), np.arange(6) % 2
    assert data_digest(X, y) == data_digest(X[::-1], y[::-1])
    others = [
        (X[::-1], y),
        (X[:5], y[:5]),
        (np.vstack([X, X[:1]]), np.append(y, 0)),
        (X, y, y),
        (X, y, None, y),
    ]
    assert len({data_digest(X, y), *(data_digest(*other) for other in others)}) == 6


def test_a_proposal_is_written_once_at_no_cost_and_refused_after_a_label(ledger):
    for _ in range(2):
        ledger.register.propose({"order": 8.5})
    assert (ledger.state().entries, ledger.verify().spent) == (2, 0.0)
    reserve(ledger, ANSWER, 1)  # interrupted, or not: its votes may have been seen
    ledger.register.propose({"order": 8.5})  # the same as before
    with pytest.raises(LateProposalError):
        ledger.register.propose({"order": 9.0})
    assert list(ledger.history().proposals) == [{"order": 8.5}]


def test_a_proposal_that_was_written_into_the_file_after_a_label_is_found(ledger):
    reserve(ledger, ANSWER, 1)
    with ledger._opened.store.transaction(write=True) as write:
        last = write.last()
        write.append(Entry.after(last, EntryKind.PROPOSED, last.spent, proposal={"order": 9.0}))
    assert ledger.history().proposals == ()
    with pytest.raises(LedgerTamperedError):
        ledger.verify()


def test_a_history_is_read_whole_once_and_then_only_what_is_new(ledger, monkeypatch):
    """Nor is anything read twice to verify it, so that a ledger of many entries takes time in proportion."""
    read, entries = [], Transaction.entries

    def counted(held, after=None):
        for found in entries(held, after):
            read.append(found[0].number)
            yield found

    answer(ledger, [bytes(32)])
    reserve(ledger, CHECKED, 4)
    monkeypatch.setattr(Transaction, "entries", counted)
    first = ledger.history()
    answer(ledger, [bytes([1] * 32)], CHECKED)
    second = ledger.history()
    assert read == [0, 1, 2, 3, 4, 5]
    read.clear()
    Ledger.open(ledger.path).verify()
    assert len(read) <= 12
    assert second.entries == Ledger.open(ledger.path).history().entries
    assert second.answer_counts == Counter({ANSWER: 2, CHECK: 1})
    assert second.until(3).answer_counts == first.answer_counts == Counter({ANSWER: 1})


TEST = PublicationTest((2**59, 2**58), 4e-6, ONE_TEACHER)


def test_a_publication_for_which_there_is_no_delta_is_not_charged(tmp_path):
    path = tmp_path / "a.ledger"
    ledger = new_ledger(path, 20.0)
    other = Ledger.open(path)
    other.history()
    answer(ledger, [bytes(32)], TEST)
    reserve(ledger, TEST, 1)  # interrupted
    before = ledger.state()
    with pytest.raises(PublicationsExhaustedError):
        reserve(other, TEST, 1)
    assert reserve_new(other, TEST, [bytes(32)]) == ({bytes(32): (1,)}, None)
    assert ledger.state() == before
    assert ledger.history().outcomes == {1: 1}
    assert [*ledger.history().publications.values()] == [TEST, TEST]


def test_what_a_publication_came_to_is_not_read_once_it_was_changed(ledger):
    answer(ledger, [bytes(32)], TEST)
    edit(ledger.path, "UPDATE answers SET labels = '[0]'")
    with pytest.raises(LedgerTamperedError):
        ledger.history()
