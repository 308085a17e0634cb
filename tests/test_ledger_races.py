"""Many real processes and threads on one budget: it is used up to its last query and never passed."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ledgers import fitting, new_ledger, reserve, settle
from processes import at_once, ended, forked
from tutelage import GNMax, LabelingSession, Ledger, PATEClassifier, SystemNoise, VoteHistogram
from tutelage.accounting.filter import RenyiFilter
from tutelage.events import NoisyArgmaxGaussian, Repeated
from tutelage.exceptions import BudgetExceededError, LedgerOvertakenError, LedgerStorageError
from tutelage.ledger.ledger import open_ledger
from tutelage.ledger.turns import turn
from tutelage.methods import NoisyMoments
from tutelage.privacy import ONE_TEACHER, NeighboringRelation, PrivacyUnit

EVENT = NoisyArgmaxGaussian(40.0, 10, ONE_TEACHER)


def spend(path: Path, times: int) -> int:
    """Reserve and settle one query after the other, and return how many were granted."""
    ledger, granted = Ledger.open(path), 0
    for _ in range(times):
        with suppress(BudgetExceededError):
            settle(ledger, reserve(ledger, EVENT, 1), {os.urandom(32): (granted % 10,)}, EVENT)
            granted += 1
    return granted


def race(path: Path, room: int, processes: int, debits: int) -> None:
    """Race for a budget with room for so many queries, and account for every grain of it."""
    epsilon = RenyiFilter.holding(Repeated(EVENT, room), 1e-5).epsilon
    ledger = new_ledger(path, epsilon, suited_to=EVENT)
    room, limit = fitting(ledger, EVENT), ledger.limit
    read, write = os.pipe()
    assert (
        at_once(*[lambda: os.write(write, bytes([spend(path, debits)]))] * processes)
        == [0] * processes
    )
    granted = sum(os.read(read, processes))
    os.close(read)
    os.close(write)
    ledger = Ledger.open(path)
    state = ledger.verify()
    assert granted == min(room, processes * debits)
    assert (state.entries, state.unsettled, fitting(ledger, EVENT)) == (
        1 + 2 * granted,
        0,
        room - granted,
    )
    spent = ledger.export()[-1]["spent"]
    assert spent == granted * limit.cost(EVENT)
    assert state.remaining == limit.share(limit.capacity - spent)


def test_many_processes_share_one_budget_to_the_last_query(tmp_path):
    race(tmp_path / "a.ledger", 50, 8, 8)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_20_races_pass_no_budget(tmp_path):
    for number in range(20):
        # The last ones leave some of the budget.
        race(tmp_path / f"{number}.ledger", 500 + 150 * number, 64, 50)


@pytest.mark.parametrize("opened_in_child", [True, False])
def test_a_child_that_outlives_its_parents_use_of_the_ledger_loses_nothing(
    opened_in_child, tmp_path
):
    # What a lock that is kept between transactions gets wrong: see the head of tutelage.ledger.store.
    path = tmp_path / "a.ledger"
    held = [new_ledger(path, 0.5)]
    reserve(held[0], EVENT, 1)
    room = fitting(held[0], EVENT)
    ready_read, ready_write = os.pipe()
    os.mkfifo(tmp_path / "go")

    def spend_all() -> None:
        mine = Ledger.open(path) if opened_in_child else held[0]
        reserve(mine, EVENT, 1)
        os.write(ready_write, b"x")
        (tmp_path / "go").read_bytes()  # until the parent has let go of the ledger
        for _ in range(room - 1):
            reserve(mine, EVENT, 1)

    child = forked(spend_all)
    os.read(ready_read, 1)
    held.clear()
    path.read_bytes()  # closing any descriptor of the file drops every lock of this process
    Ledger.open(path).state()
    (tmp_path / "go").write_bytes(b"x")
    assert ended(child) == 0
    after = Ledger.open(path)
    assert (fitting(after, EVENT), after.verify().unsettled) == (0, 1 + room)


@pytest.mark.rest
def test_a_fork_during_another_threads_transaction_does_not_hang_the_child(tmp_path):
    ledger = new_ledger(tmp_path / "a.ledger", 50.0)
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            reserve(ledger, EVENT, 1)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(10):
            assert ended(forked(lambda: reserve(ledger, EVENT, 1))) == 0
    finally:
        stop.set()
        thread.join()
    ledger.verify()


def test_threads_share_one_ledger_object(tmp_path):
    ledger = new_ledger(tmp_path / "a.ledger")
    room, granted = fitting(ledger, EVENT), []

    def work(_: int) -> None:
        with suppress(BudgetExceededError):
            while True:
                granted.append(reserve(ledger, EVENT, 1))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert len(granted) == room
    assert len({reservation.number for reservation in granted}) == room
    ledger.verify()


def errors_of_fits(
    rows: Any, monkeypatch: Any, *asked: tuple[Any, int]
) -> list[BaseException | None]:
    """Fit in threads at once, each on a ledger and so many rows: all have prepared before one of them spends."""
    X, y = rows
    together, prepare = threading.Barrier(len(asked), timeout=60), NoisyMoments.prepare

    def fit(ledger: Any, n_rows: int) -> None:
        model = PATEClassifier(classes=[0, 1], epsilon=1.0, ledger=ledger, random_state=0)
        model.fit(X[:n_rows], y[:n_rows], X_public=X[:60] + 1e-3, data_changed=True)

    monkeypatch.setattr(
        NoisyMoments, "prepare", lambda *given: (prepare(*given), together.wait())[0]
    )
    with ThreadPoolExecutor(len(asked)) as pool:
        return [one.exception() for one in [pool.submit(fit, *one) for one in asked]]


@pytest.mark.filterwarnings("ignore::tutelage.exceptions.BudgetContinuedWarning")
def test_fits_in_two_threads_on_one_ledger_object_are_each_tied_to_their_own_data(
    tmp_path, binary_rows, monkeypatch
):
    row = PrivacyUnit("row", NeighboringRelation.CHANGE_ONE_ROW)
    ledger = new_ledger(tmp_path / "a.ledger", 9.0, unit=row)
    errors = errors_of_fits(binary_rows, monkeypatch, *[(ledger, n_rows) for n_rows in (300, 400)])
    assert errors == [None, None]
    kinds = [entry["kind"] for entry in ledger.export()]
    assert kinds.count("bound") == 2
    assert ledger.verify().entries == len(kinds)


def test_sessions_in_two_processes_give_one_answer_to_one_query(tmp_path):
    path, rows = tmp_path / "a.ledger", np.arange(40.0).reshape(20, 2)
    votes = VoteHistogram(np.full((20, 10), 25), 250)  # ties: two independent answers would differ
    new_ledger(path, 20.0)
    SystemNoise().discrete_gaussian(1.0, (1,))  # load the noise library once, before the forks
    read, write = os.pipe()

    def ask() -> None:
        labels = LabelingSession(votes, GNMax(sigma=40.0), Ledger.open(path)).ask(rows).labels
        os.write(write, bytes(labels.tolist()))

    assert at_once(*[ask] * 4) == [0] * 4
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read()
    assert said == 4 * said[:20]
    ledger = Ledger.open(path)
    assert ledger.verify().answers == 20
    assert [entry["kind"] for entry in ledger.export()] == ["opened", "reserved", "answered"], (
        "paid more than once"
    )


@pytest.mark.parametrize("processes", [4, pytest.param(64, marks=pytest.mark.slow)])
@pytest.mark.filterwarnings("ignore")
def test_equal_fits_that_race_are_one_release_that_is_paid_once(processes, binary_rows, tmp_path):
    X, y = binary_rows
    (tmp_path / "alone").mkdir()
    path = tmp_path / "a.ledger"
    read, write = os.pipe()

    def fit(ledger: Path) -> PATEClassifier:
        model = PATEClassifier(epsilon=1.0, budget=1.5, classes=[0, 1], unit="row", ledger=ledger)
        return model.fit(X[:300], y[:300], X_public=X[300:], insist=True)

    def take_part() -> None:
        os.write(write, fit(path).student_[-1].coef_.tobytes())

    alone = fit(tmp_path / "alone" / path.name).ledger_.spent
    assert at_once(*[take_part] * processes) == [0] * processes
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read()
    assert said == processes * said[: len(said) // processes]
    assert Ledger.open(path).verify().spent == pytest.approx(alone, rel=1e-9)
    assert sorted(tmp_path.iterdir()) == [path, tmp_path / "alone"]


def test_two_processes_that_make_the_same_ledger_get_one(tmp_path):
    path = tmp_path / "a.ledger"
    # As a process leaves it that was killed before its first commit.
    path.with_name("a.ledger.making-x").touch()
    make = partial(open_ledger, path, EVENT, 10, epsilon=3.0, delta=1e-5, unit=ONE_TEACHER)

    def spend() -> None:
        try:
            reserve(make(), EVENT, 10)
        except LedgerOvertakenError:
            reserve(make(), EVENT, 10)

    assert at_once(*[spend] * 6) == [0] * 6
    assert Ledger.open(path).verify().unsettled == 6
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.rest
@pytest.mark.filterwarnings("ignore")
def test_of_ledgers_that_are_made_at_once_for_the_same_rows_one_is_kept(
    tmp_path, binary_rows, monkeypatch
):
    asked = [(tmp_path / f"{number}.ledger", 200) for number in range(4)]
    refused = [
        str(error)
        for error in errors_of_fits(binary_rows, monkeypatch, *asked)
        if error is not None
    ]
    assert len(refused) == 3
    assert all("contains the budget of these data" in error for error in refused)
    assert len([*tmp_path.iterdir()]) == 1


def test_a_ledger_that_was_cut_off_is_no_new_budget(tmp_path):
    path = tmp_path / "a.ledger"
    make = partial(open_ledger, path, EVENT, 10, epsilon=3.0, delta=1e-5, unit=ONE_TEACHER)
    reserve(make(), EVENT, 1)
    os.truncate(path, 0)
    for use in (make, partial(Ledger.create, path, epsilon=1.0, delta=1e-5, unit=ONE_TEACHER)):
        with pytest.raises(LedgerStorageError):
            use()
    assert path.read_bytes() == b""


def test_who_ends_a_turn_and_asks_again_comes_after_who_waits(tmp_path):
    path = tmp_path / "a.ledger"
    reads, writes = os.pipe()

    def wait() -> None:
        with turn(path, lambda: not os.write(writes, b"waits ")):
            os.write(writes, b"child ")

    for _ in range(5):
        with turn(path, lambda: False):
            child = forked(wait)
            assert os.read(reads, 6) == b"waits "
        with turn(path, lambda: False):
            os.write(writes, b"parent")
        assert ended(child) == 0
        assert os.read(reads, 12) == b"child parent"
    assert list(tmp_path.iterdir()) == []


def test_a_queue_whose_first_is_killed_goes_on(tmp_path):
    path = tmp_path / "a.ledger"
    reads, writes = os.pipe()

    def wait() -> None:
        with turn(path, lambda: not os.write(writes, b"x")):
            pass

    with turn(path, lambda: False):
        first = forked(wait)
        os.read(reads, 1)  # it has the place at the head, or is about to
        second = forked(wait)
        os.read(reads, 1)
        os.kill(first, signal.SIGKILL)
        os.waitpid(first, 0)
    assert ended(second) == 0
    with turn(path, lambda: False):
        pass
    assert list(tmp_path.iterdir()) == []
