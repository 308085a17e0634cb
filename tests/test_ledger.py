"""The ledger by itself: what it charges, refuses, remembers and says."""

import json
import os
import pickle
import resource
import shutil
import signal
import sqlite3
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import closing, contextmanager
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from processes import forked
from tutelage import Ledger, PATEClassifier
from tutelage.accounting import data_independent
from tutelage.accounting.filter import GRAIN, RenyiFilter
from tutelage.digests import data_digest, query_hashes, row_bytes
from tutelage.events import (
    Composed,
    ConfidenceCheck,
    Event,
    NoisyArgmaxGaussian,
    NoisyArgmaxLaplace,
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
from tutelage.ledger.entries import Entry, Kind
from tutelage.ledger.store import Transaction
from tutelage.privacy import ONE_TEACHER, NeighboringRelation, PrivacyUnit

ANSWER = NoisyArgmaxGaussian(40.0, 10, ONE_TEACHER)
CHECK = ConfidenceCheck(200, 150.0, 10, ONE_TEACHER)
CHECKED = Composed((CHECK, ANSWER))
PATIENT = PrivacyUnit("patient", NeighboringRelation.ADD_REMOVE_OR_CHANGE_ONE_ENTITY)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "a.ledger", epsilon=2.0, delta=1e-5, unit=ONE_TEACHER)


def answer(ledger: Ledger, queries: list[bytes], event: Event = ANSWER) -> None:
    ledger.settle(ledger.reserve(event, len(queries)), dict.fromkeys(queries, (1,)), Repeated(event, len(queries)))


def test_it_is_one_file_and_its_journal_is_private_too(ledger):
    answer(ledger, [b"x" * 32])
    assert [path.name for path in ledger.path.parent.iterdir()] == ["a.ledger"]
    assert ledger.path.stat().st_mode & 0o777 == 0o600
    with ledger._store.transaction(write=True) as write:
        write.append(Entry.after(write.last(), Kind.BOUND, 0, fingerprint="x"))
        assert Path(f"{ledger.path}-journal").stat().st_mode & 0o777 == 0o600


def test_a_batch_is_reserved_whole_or_not_at_all(ledger):
    room = ledger.fitting(ANSWER)
    with pytest.raises(BudgetExceededError) as refused:
        ledger.reserve(ANSWER, room + 1)
    assert (refused.value.requested, refused.value.fitting) == (room + 1, room)
    assert ledger.state().spent == 0
    ledger.reserve(ANSWER, room)
    assert ledger.fitting(ANSWER) == 0
    with pytest.raises(BudgetExceededError):
        ledger.reserve(ANSWER, 1)


def test_no_more_may_happen_than_was_reserved(ledger):
    for event, happened in (
        (ANSWER, Repeated(ANSWER, 6)),
        (CHECKED, Composed((Repeated(CHECK, 4), Repeated(ANSWER, 6)))),
        (ANSWER, NoisyArgmaxGaussian(39.0, 10, ONE_TEACHER)),
    ):
        reservation = ledger.reserve(event, 5)
        before = ledger.state()
        with pytest.raises(LedgerError):
            ledger.settle(reservation, {b"q" * 32: (0,)}, happened)
        assert ledger.state() == before
        assert ledger.recall([b"q" * 32]) == {}


def test_a_reservation_is_settled_once_and_in_its_own_ledger(ledger, tmp_path):
    reservation = ledger.reserve(ANSWER, 1)
    ledger.settle(reservation, {b"q" * 32: (3,)}, ANSWER)
    with pytest.raises(LedgerError):
        ledger.settle(reservation, {b"r" * 32: (3,)}, ANSWER)
    other = Ledger.create(tmp_path / "b.ledger", epsilon=2.0, delta=1e-5, unit=ONE_TEACHER)
    with pytest.raises(LedgerError):
        other.settle(ledger.reserve(ANSWER, 1), {}, ANSWER)
    assert ledger.recall([b"r" * 32]) == {}
    true = ledger.reserve(ANSWER, 2)
    for forged in (replace(true, grains=10 * true.grains), replace(true, event=CHECK), replace(true, queries=9)):
        happened = Repeated(forged.event, forged.queries)
        with pytest.raises(LedgerError):
            ledger.settle(forged, {}, happened)
    ledger.settle(true, {}, Repeated(ANSWER, 2))
    ledger.verify()


def test_a_named_batch_is_paid_for_once_and_found_again(ledger):
    assert ledger.reserved_for("first") is None
    reservation = ledger.reserve(ANSWER, 3, batch="first")
    spent = ledger.state().spent
    assert ledger.reserve(ANSWER, 3, batch="first") == ledger.reserved_for("first") == reservation
    assert ledger.state().spent == spent
    assert not ledger.is_settled(reservation)
    ledger.settle(reservation, {}, Repeated(ANSWER, 3))
    assert ledger.is_settled(reservation)
    assert ledger.reserve(ANSWER, 3, batch="first") == reservation
    assert ledger.reserve(ANSWER, 3, batch="second") != reservation
    with pytest.raises(LedgerError):
        ledger.reserve(ANSWER, 4, batch="first")


def test_the_first_answer_to_a_query_is_the_one_that_stays(ledger):
    first, second = ledger.reserve(ANSWER, 1), ledger.reserve(ANSWER, 1)
    assert ledger.settle(first, {b"q" * 32: (3,)}, ANSWER).labels == {b"q" * 32: (3,)}
    assert ledger.settle(second, {b"q" * 32: (4,)}, ANSWER).labels == {b"q" * 32: (3,)}
    assert ledger.state().answers == 1
    ledger.verify()


def test_other_units_and_unbounded_events_are_refused_and_cost_nothing(ledger):
    class Mine(Event):
        pass

    would_not_come_back = NoisyArgmaxGaussian(40.0, 10, ONE_TEACHER, np.bool_(False))  # pyright: ignore[reportArgumentType]
    costs_too_much = NoisyArgmaxGaussian(1e-6, 10, ONE_TEACHER)
    with pytest.raises(LedgerMismatchError):
        ledger.reserve(NoisyArgmaxGaussian(40.0, 10, PATIENT), 1)
    for event in (Event(), Mine(), would_not_come_back, costs_too_much):
        with pytest.raises(UnsupportedEventError):
            ledger.reserve(event, 1)
    for queries in (0, -1, 1.5, True):
        with pytest.raises(InvalidParameterError, match="`queries` of Ledger"):
            ledger.reserve(ANSWER, queries)  # pyright: ignore[reportArgumentType]
    assert ledger.verify().entries == 1


@pytest.mark.parametrize(("happened", "labels", "message"), [
    (Repeated(ANSWER, 0), 0, "fewer answers without a check"),
    (Composed((Repeated(CHECK, 3), Repeated(ANSWER, 2))), -1, "reports fewer checks"),
    (Composed((Repeated(CHECK, 4), Repeated(ANSWER, 3))), 0, "gives more labels than it reports answers"),
])  # fmt: skip
def test_nothing_is_given_back_on_a_mechanisms_word_alone(happened, labels, message, ledger):
    reservation = ledger.reserve(CHECKED if isinstance(happened, Composed) else ANSWER, 4)
    before = ledger.state()
    with pytest.raises(LedgerError, match=message):
        ledger.settle(reservation, {bytes([place]) * 32: (labels,) for place in range(4)}, happened)
    assert ledger.state() == before


def test_a_file_put_in_its_place_is_noticed(ledger, tmp_path):
    older = tmp_path / "older"
    shutil.copy(ledger.path, older)
    ledger.reserve(ANSWER, 1)
    older.replace(ledger.path)
    with pytest.raises(LedgerTamperedError):
        ledger.reserve(ANSWER, 1)
    Ledger.create(tmp_path / "b.ledger", epsilon=2.0, delta=1e-5, unit=ONE_TEACHER)
    (tmp_path / "b.ledger").replace(ledger.path)
    with pytest.raises(LedgerTamperedError):
        ledger.state()


def test_a_file_replaced_during_a_transaction_takes_no_debit(ledger, tmp_path):
    shutil.copy(ledger.path, tmp_path / "older")

    def replaced_meanwhile() -> None:
        with ledger._store.transaction(write=True) as write:
            write.append(Entry.after(write.last(), Kind.BOUND, 0, fingerprint="x"))
            (tmp_path / "older").replace(ledger.path)

    with pytest.raises(LedgerTamperedError):
        replaced_meanwhile()
    assert Ledger.open(ledger.path).state().entries == 1


def test_another_working_folder_is_not_another_ledger(ledger, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    relative = Ledger.open("a.ledger")
    (tmp_path / "elsewhere").mkdir()
    Ledger.create(tmp_path / "elsewhere" / "a.ledger", epsilon=2.0, delta=1e-5, unit=ONE_TEACHER)
    monkeypatch.chdir(tmp_path / "elsewhere")
    relative.reserve(ANSWER, 5)
    assert ledger.state() == relative.state()
    assert Ledger.open("a.ledger").state().spent == 0


@pytest.mark.parametrize(("change", "parameter"), [
    *(({"epsilon": epsilon}, "epsilon") for epsilon in (0, float("nan"), float("inf"), "3")),
    ({"delta": 0}, "delta"),
    ({"order": 1.0}, "order"),
    ({"order": 1.5}, "order"),
    ({"order": 9.0, "suited_to": ANSWER}, "order"),
])  # fmt: skip
def test_a_budget_out_of_range_is_refused_and_leaves_no_file(change, parameter, tmp_path):
    with pytest.raises(InvalidParameterError) as refused:
        Ledger.create(tmp_path / "a.ledger", **{"epsilon": 2.0, "delta": 1e-5, "unit": ONE_TEACHER, **change})
    assert refused.value.parameter == parameter
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_there_is_never_made_or_written_over(ledger, tmp_path):
    def refused(sentence: str, read: Callable[[], object], code: str = "ledger-storage") -> None:
        with pytest.raises(LedgerStorageError, match=sentence) as error:
            read()
        assert error.value.code == code

    again = partial(Ledger.create, ledger.path, epsilon=9.0, delta=1e-5, unit=ONE_TEACHER)
    refused("exists already, with its own budget", again, "ledger-overtaken")
    assert Ledger.open(ledger.path).epsilon == 2.0
    nowhere = partial(Ledger.create, tmp_path / "no" / "a.ledger", epsilon=1, delta=1e-5, unit=ONE_TEACHER)
    refused("cannot be made: its folder does not exist", nowhere)
    refused("is read-only here", lambda: Ledger.open(ledger.path, read_only=True).reserve(ANSWER, 1))
    refused("is not a file", lambda: Ledger.open(tmp_path))
    refused("does not exist", lambda: Ledger.open(tmp_path / "nothing"), "ledger-missing")
    for content in (b"", b"not a database at all" * 99, b"SQLite format 3\0" + bytes(4096)):
        (tmp_path / "other").write_bytes(content)
        refused("is no ledger|is empty, so it is not a ledger", lambda: Ledger.open(tmp_path / "other"))
        assert (tmp_path / "other").read_bytes() == content
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("PRAGMA application_id = 7")
        other.execute("CREATE TABLE t (x)")
    refused("is a database, but no ledger of tutelage", lambda: Ledger.open(tmp_path / "other.db"))
    (tmp_path / "link").symlink_to(ledger.path)
    Ledger.open(tmp_path / "link").reserve(ANSWER, 5)
    assert ledger.state().entries == 2
    os.link(ledger.path, tmp_path / "b.ledger")
    refused("has a second name", lambda: Ledger.open(tmp_path / "b.ledger"))


def test_a_head_must_be_whole_and_may_be_in_capitals(ledger):
    answer(ledger, [b"q" * 32])
    head = ledger.state().head
    assert Ledger.open(ledger.path).verify(head.upper()) == ledger.state()
    for wrong in (head[:16], head + "0", "nonsense"):
        with pytest.raises(InvalidParameterError):
            ledger.verify(wrong)


def test_it_knows_its_data_set(ledger):
    digest = data_digest(np.eye(3), np.arange(3))
    ledger.bind(digest)
    ledger.bind(digest)
    assert ledger.state().entries == 1  # written with the first reservation
    assert not any(shown in repr(ledger) for shown in (str(digest), digest.hex()))
    other = data_digest(np.eye(3), np.arange(1, 4))
    with pytest.raises(LedgerMismatchError):
        ledger.bind(other)
    answer(ledger, [b"q" * 32])
    with pytest.raises(LedgerMismatchError):
        Ledger.open(ledger.path).bind(other)
    spent = ledger.state().spent
    ledger.bind(other, changed=True)
    ledger.bind(other)
    ledger.write_binding()
    ledger.write_binding()
    ledger.bind(other)
    assert ledger.state().spent == spent
    with pytest.raises(LedgerMismatchError):
        ledger.bind(digest)
    assert [entry["kind"] for entry in ledger.export()] == ["opened", "bound", "reserved", "answered", "bound"]
    assert digest not in ledger.path.read_bytes()
    assert digest.hex() not in json.dumps(ledger.export())


def test_the_export_is_the_chain_without_the_key_or_the_queries(ledger):
    answer(ledger, [b"q" * 32])
    entries = ledger.export()
    assert [entry["kind"] for entry in entries] == ["opened", "reserved", "answered"]
    assert entries[-1]["hash"] == ledger.state().head
    with sqlite3.connect(ledger.path) as raw:
        (key,) = raw.execute("SELECT key FROM secret").fetchone()
    text = json.dumps(entries)
    assert key.hex() not in text
    assert (b"q" * 32).hex() not in text


def test_it_is_one_budget_however_it_is_passed_around(ledger):
    assert deepcopy(ledger) is ledger
    with pytest.raises(LedgerError):
        pickle.dumps(ledger)
    assert clone(PATEClassifier(ledger=ledger)).ledger is ledger  # pyright: ignore[reportAttributeAccessIssue]


def test_a_ledger_in_memory_is_of_this_process_only():
    memory = Ledger.in_memory(epsilon=1.0, delta=1e-5, unit=ONE_TEACHER)
    memory.reserve(ANSWER, 1)

    def spend() -> None:
        with pytest.raises(LedgerError, match="second process"):
            memory.reserve(ANSWER, 1)

    assert os.waitstatus_to_exitcode(os.waitpid(forked(spend), 0)[1]) == 0


def test_what_is_remembered_is_answered_while_another_writes(ledger):
    known, unknown = bytes(32), bytes([1] * 32)
    answer(ledger, [known], TEST)
    with sqlite3.connect(ledger.path, isolation_level=None) as holder:
        holder.execute("BEGIN IMMEDIATE")
        impatient = Ledger.open(ledger.path, timeout=0.1)
        assert impatient.reserve_new(TEST, [known]) == ({known: (1,)}, None)
        for reserve in (lambda: impatient.reserve_new(TEST, [known, unknown]), lambda: impatient.reserve(ANSWER, 1)):
            with pytest.raises(LedgerLockedError):
                reserve()
        holder.execute("ROLLBACK")
    impatient.reserve(ANSWER, 1)


@pytest.mark.parametrize("read", [Ledger.history, Ledger.verify, Ledger.export])
def test_what_another_thread_writes_after_a_copy_was_made_is_no_replacement(read, ledger, monkeypatch):
    copied = ledger._store.snapshot

    @contextmanager
    def copied_before_a_write():
        with copied() as copy:
            ledger.reserve(ANSWER, 1)
            yield copy

    with monkeypatch.context() as patch:
        patch.setattr(ledger._store, "snapshot", copied_before_a_write)
        read(ledger)
    assert ledger.history().entries[-1].number == ledger.state().entries - 1
    assert ledger.verify().unsettled == 1


def test_a_full_disk_spends_nothing_and_breaks_nothing(ledger):
    states = []

    def reserve_for_ever() -> None:
        while True:
            states.append(ledger.state())
            ledger.reserve(ANSWER, 1)

    def fill() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
        with pytest.raises(LedgerStorageError, match=r"cannot be read or written|no room"):
            reserve_for_ever()
        assert ledger.state() == states[-1]

    assert os.waitstatus_to_exitcode(os.waitpid(forked(fill), 0)[1]) == 0
    ledger.verify()
    ledger.reserve(ANSWER, 1)


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
            assert os.waitpid(forked(read), 0)[1] == 0
        finally:
            Path(folder).chmod(0o755)


@pytest.mark.rest
@given(epsilon=st.floats(0.05, 50), log_delta=st.floats(-30, -2), sigma=st.floats(2, 300))
@settings(max_examples=40)
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
def test_the_best_order_beats_its_neighbors_and_loses_little_to_hindsight():
    for epsilon, delta in ((0.5, 1e-6), (2.0, 1e-5), (8.0, 1e-5)):
        limit = RenyiFilter.suited_to(epsilon, delta)
        room = limit.fitting(ANSWER, 0)
        assert room >= max(RenyiFilter(epsilon, delta, limit.order * way).fitting(ANSWER, 0) for way in (0.8, 1.25))
        assert data_independent.epsilon(Repeated(ANSWER, room + max(2, room // 100)), delta).epsilon > epsilon


@pytest.mark.rest
def test_a_budget_can_be_made_to_measure():
    for event in (Repeated(ANSWER, 100), Repeated(CHECKED, 7), NoisyArgmaxLaplace(20.0, 3, PATIENT)):
        limit = RenyiFilter.holding(event, 1e-5)
        assert 0 <= limit.capacity - limit.cost(event) < 1e-6 / GRAIN
        assert limit.epsilon <= data_independent.epsilon(event, 1e-5).epsilon * 1.05


def test_rows_are_the_same_query_whatever_their_type():
    ways = [
        np.array([[1, 0, 3]]), np.array([[1.0, -0.0, 3.0]]), np.array([[1, 0, 3]], dtype=np.float32),
        np.array([[True, False, 3]], dtype=object), [[1, 0, 3]], np.array([[1, 0, 3]], dtype=">i2"),
        np.asfortranarray(np.array([[1.0, 0.0, 3.0]])),
    ]  # fmt: skip
    assert len({row_bytes(way)[0] for way in ways}) == 1
    nans = np.array([[np.nan], [-np.nan], [np.float64(np.frombuffer(b"\1\0\0\0\0\0\xf8\x7f", "<f8")[0])]])
    assert len(set(row_bytes(nans))) == 1
    texts = [np.array([["e\u0301", "1"]]), np.array([["\u00e9", "1"]], dtype=object)]
    assert len({row_bytes(text)[0] for text in texts}) == 1

    batches = [
        [[1, 2]], [[1, 2], [2**60, 3]], [[1, 2], [None, 0]], [[1, 2], ["x", 0]], [[1.0, 2]], [[1, 2], [0.5, 0.25]],
        [[True, 2]],
    ]  # fmt: skip
    arrays = [np.array(batch, dtype=object) for batch in batches] + [np.array([[1, 2], [3, 4]]), np.array([[1.0, 2.0]])]
    assert len({row_bytes(batch)[0] for batch in [*batches, *arrays]}) == 1  # whatever stands beside it
    assert row_bytes(np.array([[2**60]]))[0] == row_bytes(np.array([[2.0**60]]))[0] == row_bytes([[2**60]])[0]


def test_other_rows_are_other_queries():
    rows = [
        np.array([[1.0, 2.0]]), np.array([[2.0, 1.0]]), np.array([[1.0, 2.0, 0.0]]), np.array([[[1.0], [2.0]]]),
        np.array([["1", "2"]]), np.array([["1", 2]], dtype=object), np.array([["12", ""]]), np.array([["", "12"]]),
        np.array([[1.0, np.nextafter(2.0, 3)]]), np.array([[1.0, np.nan]]), np.array([[1.0, np.inf]]),
        np.array([[2**53, 2**53 + 1]]), np.array([[2**53 + 1, 2**53]]), np.array([[None, 1]], dtype=object),
        np.array([["None", 1]], dtype=object), np.array([[b"None", 1]], dtype=object),
        np.array([[2**60, 1.5]], dtype=object), np.array([[2**60 + 1, 1.5]], dtype=object),
        np.array([["nan", 1]], dtype=object),
    ]  # fmt: skip
    assert len({row_bytes(row)[0] for row in rows}) == len(rows)
    images = np.empty((3, 1), dtype=object)
    images[:, 0] = [np.zeros((50, 50)), np.zeros((50, 50)), np.zeros((50, 50))]
    images[1, 0][25, 25] = 1e-12
    assert len(set(row_bytes(images))) == len({data_digest(images), data_digest(images[[0, 0, 2]])}) == 2
    for cell in (1j, np.datetime64("2020-01-01"), np.longdouble(1), (1, 2), object(), {1}):
        images[0, 0] = cell
        with pytest.raises(InvalidDataError):
            row_bytes(images)
    row, key = np.array([[1.0, 2.0]]), bytes(32)
    beside = [[], [[[0.5, 0.5]]], [[[0.4, 0.6]]]]
    asked = [(key, 1, row, *more) for more in beside] + [(b"1" * 32, 1, row), (key, 2, row), (key, 1, row + 1)]
    assert len({query_hashes(key, {"sigma": sigma}, *given)[0] for key, sigma, *given in asked}) == len(asked)
    with pytest.raises(ValueError, match="zip"):
        query_hashes(key, {}, row, [[0.5, 0.5], [0.5, 0.5]])


def test_a_data_digest_ignores_the_order_of_rows_and_nothing_else():
    X, y = np.arange(12.0).reshape(6, 2), np.arange(6) % 2
    order = np.array([3, 1, 0, 5, 4, 2])
    assert data_digest(X, y) == data_digest(X[order], y[order])
    others = [(X[order], y), (X[:5], y[:5]), (np.vstack([X, X[:1]]), np.append(y, 0)), (X, y, y), (X, y, None, y)]
    assert len({data_digest(X, y), *(data_digest(*other) for other in others)}) == 6


def test_a_proposal_is_written_once_at_no_cost_and_refused_after_a_label(ledger):
    for _ in range(2):
        ledger.record_proposal({"order": 8.5})
    assert (ledger.state().entries, ledger.verify().spent) == (2, 0.0)
    ledger.reserve(ANSWER, 1)  # interrupted, or not: its votes may have been seen
    ledger.record_proposal({"order": 8.5})  # the same as before
    with pytest.raises(LateProposalError):
        ledger.record_proposal({"order": 9.0})
    assert list(ledger.history().proposals) == [{"order": 8.5}]


def test_a_proposal_that_was_written_into_the_file_after_a_label_is_found(ledger):
    ledger.reserve(ANSWER, 1)
    with ledger._store.transaction(write=True) as write:
        last = write.last()
        write.append(Entry.after(last, Kind.PROPOSED, last.spent, proposal={"order": 9.0}))
    assert ledger.history().proposals == ()
    with pytest.raises(LedgerTamperedError):
        ledger.verify()


def test_a_history_is_read_whole_once_and_then_only_what_is_new(ledger, monkeypatch):
    read, entries = [], Transaction.entries

    def counted(held, after=None):
        for found in entries(held, after):
            read.append(found[0].number)
            yield found

    answer(ledger, [bytes(32)])
    ledger.reserve(CHECKED, 4)
    monkeypatch.setattr(Transaction, "entries", counted)
    first = ledger.history()
    assert ledger.history() is first
    answer(ledger, [bytes([1] * 32)], CHECKED)
    second = ledger.history()
    assert read == [0, 1, 2, 3, 4, 5]
    assert second.entries == Ledger.open(ledger.path).history().entries
    assert second.state == ledger.verify() == ledger.state()
    charges = [(charge.queries, charge.settled is None) for charge in second.charges]
    assert charges == [(1, False), (4, True), (1, False)]
    assert second.given == Counter({ANSWER: 2, CHECK: 1})
    assert second.until(3).given == first.given == Counter({ANSWER: 1})


TEST = PublicationTest((2**59, 2**58), 4e-6, ONE_TEACHER)


def test_a_publication_for_which_there_is_no_delta_is_not_charged(tmp_path):
    path = tmp_path / "a.ledger"
    ledger = Ledger.create(path, epsilon=20.0, delta=1e-5, unit=ONE_TEACHER)
    other = Ledger.open(path)
    other.history()
    answer(ledger, [bytes(32)], TEST)
    ledger.reserve(TEST, 1)  # interrupted
    before = ledger.state()
    with pytest.raises(PublicationsExhaustedError):
        other.reserve(TEST, 1)
    with pytest.raises(PublicationsExhaustedError):
        other.reserve_new(TEST, [bytes([1] * 32)])
    assert other.reserve_new(TEST, [bytes(32)]) == ({bytes(32): (1,)}, None)
    assert ledger.state() == before
    assert ledger.history().outcomes == {1: 1}
    assert ledger.history().publications == (TEST, TEST)


def test_what_a_publication_came_to_is_not_read_once_it_was_changed(ledger):
    answer(ledger, [bytes(32)], TEST)
    with closing(sqlite3.connect(ledger.path)) as raw, raw:
        raw.execute("UPDATE answers SET labels = '[0]'")
    with pytest.raises(LedgerTamperedError):
        ledger.history()


@pytest.mark.parametrize("verb", ["show", "verify", "card"])
def test_what_reads_a_whole_ledger_takes_work_in_proportion_to_its_entries(verb, tmp_path, called):
    calls = list[int]()
    for batches in (30, 60, 120):
        path = tmp_path / str(batches) / "a.ledger"
        path.parent.mkdir()
        ledger = Ledger.create(path, epsilon=50.0, delta=1e-5, unit=ONE_TEACHER)
        for number in range(batches):
            ledger.settle(ledger.reserve(ANSWER, 1), {number.to_bytes(32, "big"): (1,)}, ANSWER)
        by_card = ("card", "--ledger", path, "--output", path.parent / "card")
        arguments = by_card if verb == "card" else ("ledger", verb, path)
        count = 0

        def counted(frame: Any, event: str, _: object) -> None:
            nonlocal count
            count += event == "call" and "tutelage/ledger" in frame.f_code.co_filename

        sys.setprofile(counted)
        try:
            assert called(*arguments).returncode == 0
        finally:
            sys.setprofile(None)
        calls.append(count)
    assert 0 < calls[2] - calls[1] <= 2.05 * (calls[1] - calls[0])
