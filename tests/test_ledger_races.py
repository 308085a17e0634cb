"""Many real processes and threads on one budget: it is used up to its last query and never passed."""

import os
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from tutelage import GNMax, LabelingSession, Ledger, SystemNoise, VoteHistogram
from tutelage.events import NoisyArgmaxGaussian, Repeated
from tutelage.exceptions import BudgetExceededError
from tutelage.ledger.filter import RenyiFilter
from tutelage.neighboring import ONE_TEACHER

PROCESSES, DEBITS = 64, 50
EVENT = NoisyArgmaxGaussian(40.0, 10, ONE_TEACHER)


def spend(path: Path, times: int) -> int:
    """Reserve and settle one query after the other, and return how many were granted."""
    ledger, granted = Ledger.open(path), 0
    for _ in range(times):
        try:
            reservation = ledger.reserve(EVENT, 1)
        except BudgetExceededError:
            continue
        granted += 1
        ledger.settle(reservation, {os.urandom(32): (granted % 10,)}, EVENT)
    return granted


def race(path: Path) -> int:
    """Let the processes loose at once, and return how many debits were granted in all."""
    start_read, start_write = os.pipe()
    result_read, result_write = os.pipe()
    children = []
    for _ in range(PROCESSES):
        child = os.fork()
        if child == 0:
            os.close(start_write)
            os.read(start_read, 1)  # until the parent closes the other end
            os.write(result_write, spend(path, DEBITS).to_bytes(4, "big"))
            os._exit(0)
        children.append(child)
    os.close(start_write)
    exits = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    os.close(result_write)
    os.close(start_read)
    assert exits == [0] * PROCESSES
    with os.fdopen(result_read, "rb") as pipe:
        results = pipe.read()
    return sum(int.from_bytes(results[at : at + 4], "big") for at in range(0, len(results), 4))


def one_race(path: Path, room: int) -> None:
    """Race for a budget with room for so many queries, and account for every grain of it."""
    epsilon = RenyiFilter.holding(Repeated(EVENT, room), 1e-5).epsilon
    with Ledger.create(path, epsilon=epsilon, delta=1e-5, unit=ONE_TEACHER, suited_to=EVENT) as ledger:
        room = ledger.fitting(EVENT)
    granted = race(path)
    limit = RenyiFilter.suited_to(epsilon, 1e-5, EVENT)
    with Ledger.open(path) as ledger:
        state = ledger.verify()
        assert granted == min(room, PROCESSES * DEBITS)
        assert state.entries == 1 + 2 * granted
        assert state.unsettled == 0
        spent = ledger.export()[-1]["spent"]
        assert spent == granted * limit.cost(EVENT)
        assert state.remaining == limit.share(limit.capacity - spent)
        assert ledger.fitting(EVENT) == room - granted


def test_64_processes_share_one_budget_to_the_last_query(tmp_path):
    one_race(tmp_path / "a.ledger", 2000)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_20_races_pass_no_budget(tmp_path):
    for number in range(20):
        one_race(tmp_path / f"{number}.ledger", 500 + 150 * number)  # the last ones leave some of the budget


def test_threads_share_one_ledger_object(tmp_path):
    path = tmp_path / "a.ledger"
    with Ledger.create(path, epsilon=2.0, delta=1e-5, unit=ONE_TEACHER) as ledger:
        room, granted = ledger.fitting(EVENT), []

        def work() -> None:
            for _ in range(60):
                try:
                    granted.append(ledger.reserve(EVENT, 1))
                except BudgetExceededError:
                    return

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(granted) == room
        assert len({reservation.number for reservation in granted}) == room
        ledger.verify()


def test_sessions_in_two_processes_give_one_answer_to_one_query(tmp_path):
    path, rows = tmp_path / "a.ledger", np.arange(40.0).reshape(20, 2)
    votes = VoteHistogram(np.full((20, 10), 25), 250)  # ties: two independent answers would differ
    Ledger.create(path, epsilon=20.0, delta=1e-5, unit=ONE_TEACHER).close()
    SystemNoise().discrete_gaussian(1.0, (1,))  # load the noise library once, before the forks
    reads = []
    for _ in range(6):
        read, write = os.pipe()
        if os.fork() == 0:
            labels = LabelingSession(votes, GNMax(sigma=40.0), Ledger.open(path)).ask(rows).labels
            os.write(write, bytes(labels.tolist()))
            os._exit(0)
        os.close(write)
        reads.append(read)
    answers = set()
    for read in reads:
        with os.fdopen(read, "rb") as pipe:
            answers.add(pipe.read())
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
    assert len(answers) == 1
    assert len(answers.pop()) == 20
    with Ledger.open(path) as ledger:
        assert ledger.verify().answers == 20


def test_two_processes_that_make_the_same_ledger_get_one(tmp_path):
    path, children = tmp_path / "a.ledger", []
    for _ in range(8):
        child = os.fork()
        if child == 0:
            from tutelage.ledger import budget_of

            try:
                with budget_of(path, EVENT, 10, epsilon=3.0, delta=1e-5, unit=ONE_TEACHER) as ledger:
                    ledger.reserve(EVENT, 10)
            except BaseException as error:
                sys.stderr.write(repr(error))
                os._exit(1)
            os._exit(0)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 8
    with Ledger.open(path) as ledger:
        assert ledger.verify().unsettled == 8
