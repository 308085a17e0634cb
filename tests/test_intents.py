"""A release is known by all that was declared for it: interrupted or repeated, it is one, with one ε and one price."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from ledgers import edit, intend, new_ledger, reserve, settle, whole_release
from processes import ended, forked
from tutelage import GNMax, LabelingSession, Ledger, PATEClassifier, PermuteAndFlip, VoteHistogram
from tutelage.events import NoisySumGaussian, Repeated, count_releases
from tutelage.exceptions import BudgetExceededError, LedgerTamperedError
from tutelage.features.scored import ScoredRows
from tutelage.ledger.account import Account
from tutelage.ledger.entries import Entry, EntryKind
from tutelage.ledger.turns import is_held
from tutelage.ledger.verification import verify_entries
from tutelage.mechanisms import NoisySum
from tutelage.methods import CappedVotes, NoisyMoments, TeacherVotes
from tutelage.privacy import NeighboringRelation, PrivacyUnit
from tutelage.teachers import ClassMeans

ROW = PrivacyUnit("row", NeighboringRelation.CHANGE_ONE_ROW)
rest = partial(pytest.param, marks=pytest.mark.rest)


def votes(**changed: Any) -> dict[str, Any]:
    return {
        "method": TeacherVotes(ClassMeans(), **{"n_teachers": 30, "n_queries": 30, **changed}),
        "random_state": 0,
    }


METHODS: dict[str, dict[str, Any]] = {
    "sums": {},
    "votes": votes(),
    "rounds": votes(rounds=2),
    "capped": {"method": CappedVotes(3)},
    "declared noise": {**votes(mechanism=GNMax(20.0)), "epsilon": None},
}


@pytest.fixture
def fitted(binary_rows, tmp_path):
    X, y = binary_rows

    def fit(**settings: Any) -> Any:
        given = {"epsilon": 1.0, "budget": 3.0, "classes": [0, 1], "unit": "row", **settings}
        model = PATEClassifier(**given, ledger=tmp_path / "a.ledger")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return model.fit(X[:300], y[:300], X_public=X[300:], insist=True)

    return fit


@pytest.mark.parametrize("method", ["sums", rest("votes"), rest("rounds"), rest("declared noise")])
def test_a_release_that_is_repeated_is_the_same_at_the_same_epsilon_and_no_cost(
    method, fitted, tmp_path
):
    first = fitted(**METHODS[method])
    again = fitted(**METHODS[method])
    assert first.epsilon_.epsilon < 3
    assert again.epsilon_ == first.epsilon_
    assert again.mechanism_ == first.mechanism_
    assert again.release_.cost == 0
    assert again.ledger_.spent == first.ledger_.spent
    assert count_releases([again.release_.event]) == count_releases([first.release_.event])
    np.testing.assert_array_equal(again.release_.labels, first.release_.labels)
    if method == "sums":
        again.save(tmp_path / "folder", again.card())
    assert Ledger.open(tmp_path / "a.ledger").verify().spent == first.ledger_.spent


@pytest.mark.parametrize("method", ["sums", rest("rounds")])
def test_defaults_and_what_they_stand_for_are_one_release(method, fitted):
    first = fitted(**METHODS[method])
    again = fitted(
        method=replace(first.method_, mechanism=None),
        random_state=METHODS[method].get("random_state"),
    )
    assert (again.epsilon_, again.release_.cost) == (first.epsilon_, 0)


@pytest.mark.parametrize(("first", "then"), [
    rest(votes(), votes(n_queries=40)),  # more queries, perhaps because of the answers
    ({}, {"epsilon": 0.5}),
    rest(votes(), votes(student="label-propagation")),
])  # fmt: skip
def test_another_release_on_the_same_ledger_has_the_guarantee_of_the_ledger(first, then, fitted):
    assert [fitted(**one).epsilon_.epsilon for one in (first, then, then)][1:] == [3, 3]


@pytest.mark.rest
def test_rows_that_are_chosen_anew_without_a_seed_have_the_guarantee_of_the_ledger(fitted):
    # 80 of 100 rows.
    settings = votes(selection="random", n_queries=80) | {"random_state": None, "budget": 20.0}
    first = fitted(**settings)
    assert first.epsilon_.epsilon < 20
    again = fitted(**settings)
    assert 0 < again.remembered_ < 80
    assert again.epsilon_.epsilon == 20


def test_the_noise_of_a_release_that_has_begun_is_never_found_again(fitted, monkeypatch):
    first = fitted()
    monkeypatch.setattr(
        "tutelage.terms.noise_within", lambda *_, **__: first.mechanism_.noise_multiplier * 2
    )
    assert fitted().mechanism_ == first.mechanism_
    assert fitted(epsilon=0.5).mechanism_ != first.mechanism_


@pytest.mark.parametrize(
    ("method", "ids"),
    [
        ("sums", None),
        ("capped", np.arange(300)),
        rest("votes", None),
        rest("rounds", np.arange(300)),
    ],
)
def test_a_full_ledger_refuses_what_it_does_not_remember_before_anything_is_learned(
    method, ids, binary_rows, tmp_path, monkeypatch
):
    X, y = binary_rows
    settings: Any = {
        "budget": 1.0,
        "classes": [0, 1],
        "ledger": tmp_path / "a.ledger",
        **METHODS[method],
    }
    public = {"X_public": X[300:], "y_public": y[300:] if method == "sums" else None}

    def done(verb: str, **changed: Any) -> None:
        getattr(PATEClassifier(**settings | changed), verb)(
            X[:300], y[:300], **public, entity_ids=ids, insist=True
        )

    done("fit")
    same_answers = replace(settings.get("method", NoisyMoments()), student=LogisticRegression())
    done("check", method=same_answers)
    monkeypatch.setattr(ScoredRows, "learn", None)
    with pytest.raises(BudgetExceededError):
        done("check", question="another")


@pytest.mark.parametrize("changes", [{"noise": 1}, {"noise": "1.0"}, {"subject": 5}])
def test_an_intent_that_was_not_written_so_does_not_verify(changes, tmp_path, fitted):
    fitted()
    ledger = Ledger.open(tmp_path / "a.ledger")
    assert [entry.kind for entry in ledger.history().entries][:4] == [
        EntryKind.OPENED,
        EntryKind.KEPT,
        EntryKind.INTENDED,
        EntryKind.BOUND,
    ]
    with ledger._opened.hold(write=True) as write:
        last = write.last()
        write.append(
            Entry.after(
                last, EntryKind.INTENDED, last.spent, **({"subject": "ab", "noise": 1.0} | changes)
            )
        )
        with pytest.raises(LedgerTamperedError):
            verify_entries(write)


@pytest.mark.rest
def test_a_repeat_under_another_blas_kernel_spends_nothing(binary_rows, tmp_path):
    X, y = binary_rows
    np.savez(tmp_path / "rows.npz", X=X @ np.random.default_rng(1).normal(size=(4, 30)), y=y)
    call = """
import sys, warnings, numpy as np
from tutelage import PATEClassifier
warnings.simplefilter("ignore")
X, y = np.load(sys.argv[1]).values()
model = PATEClassifier(epsilon=1.0, budget=6.0, classes=[0, 1], unit="row", ledger=sys.argv[2])
model.fit(X[:300], y[:300], X_public=X[300:], insist=True)
print(model.ledger_.spent, model.epsilon_.epsilon, *model.release_.labels)
"""
    command = [sys.executable, "-c", call, str(tmp_path / "rows.npz"), str(tmp_path / "a.ledger")]
    said = [
        subprocess.run(
            command,
            env={**os.environ, "OPENBLAS_CORETYPE": kernel},
            capture_output=True,
            check=True,
        ).stdout
        for kernel in ("Haswell", "Prescott")
    ]
    assert len(set(said)) == 1
    kinds = [entry["kind"] for entry in Ledger.open(tmp_path / "a.ledger").export()]
    assert (kinds.count("reserved"), kinds.count("kept")) == (3, 1)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE kept SET content = zeroblob(9)",
        "UPDATE kept SET content = 'text'",
        "DELETE FROM kept",
    ],
)
def test_a_map_that_is_kept_and_was_changed_is_refused(change, fitted, tmp_path):
    fitted()
    edit(tmp_path / "a.ledger", change)
    with pytest.raises(LedgerTamperedError):
        fitted()
    with pytest.raises(LedgerTamperedError):
        Ledger.open(tmp_path / "a.ledger").verify()


@pytest.mark.filterwarnings("ignore")  # `catch_warnings` of one thread undoes that of the other
def test_of_two_equal_fits_at_once_the_second_states_what_the_first_released(fitted, tmp_path):
    new_ledger(tmp_path / "a.ledger", 3.0, unit=ROW, accounting="gaussian")
    with ThreadPoolExecutor(2) as threads:
        one, two = threads.map(lambda _: fitted(), range(2))
    assert one.epsilon_ == two.epsilon_
    assert count_releases([one.release_.event]) == count_releases([two.release_.event])
    assert min(one.release_.cost, two.release_.cost) == 0


VOTED = VoteHistogram(np.tile([30, 10], (4, 1)), 40)
ROWS = np.arange(4.0)[:, np.newaxis]


def killed(path: Path) -> None:
    """Reserve a step in a process that dies before it is drawn."""
    new_ledger(path, 20.0)

    def die() -> None:
        GNMax.release = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # pyright: ignore
        LabelingSession(VOTED, GNMax(9.0), Ledger.open(path)).ask(ROWS)

    ended(forked(die))


def test_a_step_whose_price_was_raised_in_the_file_is_not_taken_over(tmp_path):
    killed(tmp_path / "a.ledger")
    spent = Ledger.open(tmp_path / "a.ledger").state().spent
    later = LabelingSession(VOTED, GNMax(9.0), Ledger.open(tmp_path / "a.ledger"))
    later.ask(ROWS + 10)
    with sqlite3.connect(tmp_path / "a.ledger") as file:
        (text,) = file.execute("SELECT text FROM entries WHERE number = 1").fetchone()
        dearer = text.replace(f'"cost":{(cost := json.loads(text)["cost"])}', f'"cost":{3 * cost}')
        file.execute("UPDATE entries SET text = ? WHERE number = 1", (dearer,))
    file.close()
    later.ask(ROWS)
    assert Ledger.open(tmp_path / "a.ledger").state().spent == pytest.approx(3 * spent)


@pytest.mark.parametrize(("where", "before", "method"), [
    ((NoisySum, "release"), 1, "sums"),
    ((Account, "reserve_new"), 1, "rounds"),
])  # fmt: skip
def test_a_fit_that_was_killed_before_a_step_was_settled_pays_nothing_twice(
    where, before, method, fitted, tmp_path, monkeypatch
):
    def die(*given):
        found = honest(*given)
        done.append(1)
        return os._exit(9) if len(done) > before else found

    honest, done = getattr(*where), []
    with monkeypatch.context() as patch:
        patch.setattr(*where, die)
        assert ended(forked(lambda: fitted(**METHODS[method]))) == 9
    assert Ledger.open(tmp_path / "a.ledger").state().unsettled == 1
    found, ledger = fitted(**METHODS[method]), Ledger.open(tmp_path / "a.ledger")
    asked = 30 if method == "rounds" else found.drawn_ + found.remembered_
    assert len(found.queries_) == asked
    assert found.epsilon_.epsilon <= 1
    assert ledger.verify().unsettled == 0
    n_steps = 3 if method == "sums" else 2  # with the report
    assert [entry["kind"] for entry in ledger.export()].count("reserved") == n_steps


@pytest.mark.parametrize(
    "one", [GNMax(40.0).event_of_one(2, ROW, simulated=False), NoisySumGaussian(90.0, 1, 1, ROW)]
)
def test_a_release_of_which_more_was_drawn_than_it_may_is_not_whole_and_states_no_epsilon_of_its_own(
    one,
):
    """As where its rows were chosen again, without a seed."""
    ledger = new_ledger(epsilon=9.0, unit=ROW)
    intend(ledger, "one", None)
    steps = [reserve(ledger, one, 1) for _ in range(3)]
    for number, step in enumerate(steps):
        settle(ledger, step, {bytes([number]) * 32: (1,)}, one)
    numbers = [step.number for step in steps]
    assert whole_release(ledger, "one", numbers, Repeated(one, 3)) is not None
    assert whole_release(ledger, "one", numbers, Repeated(one, 2)) is None
    # A step of another release.
    assert whole_release(ledger, "one", numbers[:2], Repeated(one, 3)) is None


def test_what_was_drawn_must_be_of_the_kinds_that_were_declared(tmp_path):
    ledger = new_ledger(tmp_path / "a.ledger", 9.0, unit=ROW)
    declared, drawn = (
        kind.event_of_one(2, ROW, simulated=False) for kind in (PermuteAndFlip(2.0), GNMax(40.0))
    )
    intend(ledger, "one", None)
    settle(ledger, one := reserve(ledger, drawn, 1), {bytes(32): (1,)}, drawn)
    found = [
        whole_release(ledger, "one", [one.number], event) is None for event in (drawn, declared)
    ]
    assert found == [False, True]  # though what was declared costs more


def test_a_fork_holds_no_turn_and_one_thread_may_hold_it_twice(tmp_path):
    path = tmp_path / "a.ledger"
    one = new_ledger(path, 20.0)
    two = Ledger.open(path)
    with one.account.turn(), two.account.turn():
        child = forked(Event().wait)
    with two.account.turn():  # although the child lives
        assert is_held(path)
    os.kill(child, signal.SIGKILL)
    ended(child)
    assert list(tmp_path.iterdir()) == [path]
