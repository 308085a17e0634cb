"""A budget that is raised, and people who withdraw: what was said before stays true, and nothing else changes."""

import os
import re
import signal
import warnings
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

from ledgers import edit, fitting, rechained, reserve
from processes import at_once, ended, forked
from test_card import put
from test_cohorts import copied
from tutelage import LabelingSession, Ledger, LNMax, PATEClassifier, SimulationNoise, VoteHistogram
from tutelage.accounting.composition import most_shifts
from tutelage.accounting.filter import GaussianFilter
from tutelage.cli.card import _proved_card
from tutelage.events import NoisySumGaussian
from tutelage.exceptions import (
    BudgetExceededError,
    InvalidDataError,
    InvalidParameterError,
    LedgerMismatchError,
    LedgerTamperedError,
)
from tutelage.features import Schema
from tutelage.ledger.account import Account
from tutelage.ledger.transaction import Transaction
from tutelage.mechanisms import CappedGNMax
from tutelage.methods import CappedVotes, TeacherVotes
from tutelage.privacy import ONE_TEACHER, NeighboringRelation, PrivacyUnit
from tutelage.publishing.proof import prove
from tutelage.reporting import read_card
from tutelage.teachers import Ridge

UNIT = PrivacyUnit("entity", NeighboringRelation.ADD_REMOVE_OR_CHANGE_ONE_ENTITY)
SUM = NoisySumGaussian(10.0, 1, 1, UNIT)
WHY: dict[str, Any] = {"by": "Dr. Müller", "why": "second study, approved"}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.ledger"


def made(path: Path, accounting: str = "renyi", **terms: Any) -> Ledger:
    return Ledger.create(
        path, **{"epsilon": 1.0, "delta": 1e-5, "unit": UNIT, "accounting": accounting, **terms}
    )


# Raising a budget


@pytest.mark.parametrize("accounting", ["renyi", "gaussian"])
def test_a_raised_budget_holds_more_keeps_what_is_spent_and_is_verified(accounting, path):
    ledger, other = made(path, accounting), Ledger.open(path)
    reserve(ledger, SUM, fitting(ledger, SUM))
    spent, before, limit = ledger.history().entries[-1].spent, ledger.state(), ledger.limit
    with pytest.raises(BudgetExceededError):
        reserve(other, SUM, 1)
    state = ledger.raise_budget(2.0, **WHY)
    assert (state.budget, state.delta) == (2.0, 2e-5 if accounting == "gaussian" else 1e-5)
    assert (state.guarantee().epsilon, state.guarantee().delta) == (state.budget, state.delta)
    assert [(one.before, one.epsilon, one.by, one.why) for one in state.raised] == [
        (1.0, 2.0, *WHY.values())
    ]
    assert (ledger.history().entries[-1].spent, ledger.limit.cost(SUM)) == (spent, limit.cost(SUM))
    if accounting == "renyi":  # at one order, ε is added to what may be spent
        assert ledger.limit.capacity == pytest.approx(limit.capacity + 1e12)
    reserve(other, SUM, fitting(other, SUM))  # an object that was open before knows it
    with pytest.raises(BudgetExceededError):
        reserve(Ledger.open(path), SUM, 1)
    third = Ledger.open(path).raise_budget(3.0, **WHY)
    assert (third.delta, len(third.raised)) == (state.delta, 2)
    assert Ledger.open(path).verify(before.head) == third
    assert ledger.history().until_head(before.head, "").state == before


def test_a_budget_is_never_lowered(path):
    ledger = made(path, "gaussian")
    for wrong in (*({"epsilon": one} for one in (0.5, 1.0, float("nan"), 1e6)), {"by": " "}):
        with pytest.raises(InvalidParameterError):
            ledger.raise_budget(**{"epsilon": 2.0, **WHY, **wrong})
    assert ledger.state().entries == 1


@pytest.mark.parametrize("change", [{"epsilon": 9.0}, {"capacity": 10**15}, {"by": 1}])
def test_an_edited_raise_is_found_whoever_computed_the_hashes_again(change, path):
    made(path).raise_budget(2.0, **WHY)
    rechained(path, {1: change})
    with pytest.raises(LedgerTamperedError):
        Ledger.open(path).verify()


def test_a_raise_that_is_killed_before_its_end_never_was(path):
    made(path)

    def raise_it() -> None:
        Ledger.open(path).raise_budget(2.0, **WHY)

    def raise_and_die() -> None:
        Transaction.write_sums = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[method-assign]
        raise_it()

    assert ended(forked(raise_and_die)) == -signal.SIGKILL
    assert Ledger.open(path).verify().raised == ()
    assert sorted(at_once(raise_it, raise_it)) == [0, 1]
    # One of both, and the other is refused.
    assert [one.epsilon for one in Ledger.open(path).verify().raised] == [2.0]


def delta_in_view_of_the_loss(first: float, mu_squared_of: Any) -> float:
    """Return the δ of somebody who spends a budget whole, sees the loss, and takes the raise that is worst."""
    spent, after = (
        most_shifts(first, 1e-5),
        [(first * one, mu_squared_of(first * one)) for one in RAISES],
    )
    loss = np.linspace(spent / 2 - 2 * np.sqrt(spent), spent / 2 + 10 * np.sqrt(spent), 20_001)
    worst = np.maximum(0, 1 - np.exp(first - loss))
    for epsilon, mu in ((one, np.sqrt(more - spent)) for one, more in after if more > spent):
        left = epsilon - loss
        more = norm.cdf(mu / 2 - left / mu) - np.exp(left + norm.logcdf(-mu / 2 - left / mu))
        worst = np.maximum(worst, more)
    return float(np.trapezoid(worst * norm.pdf(loss, spent / 2, np.sqrt(spent)), loss))


RAISES = 1 + np.geomspace(1e-6, 30, 100)


@pytest.mark.parametrize("first", [0.1, 10.0])
def test_a_gaussian_budget_that_is_raised_in_view_of_the_loss_keeps_its_delta(first):
    def raised(epsilon: float) -> float:
        try:
            return GaussianFilter(first, 1e-5).larger_budget(epsilon).mu_squared
        except InvalidParameterError:
            return 0.0

    assert 1e-5 < delta_in_view_of_the_loss(first, raised) < 1.5e-5
    assert delta_in_view_of_the_loss(first, lambda epsilon: most_shifts(epsilon, 1e-5)) > 2.8e-5


# People

RANDOM = np.random.default_rng(0)
X = RANDOM.uniform(size=(360, 4))
Y = (X[:, 0] > 0.5).astype(int)
IDS = np.array([f"patient-{row // 2}" for row in range(300)])
GONE = "patient-17"
FEW: dict[str, Any] = {"n_queries": 20, "student": GaussianNB()}
NOISE_GIVEN: dict[str, Any] = {"epsilon": None, "random_state": 0}
METHODS: dict[str, dict[str, Any]] = {
    "vectors": {},
    "capped votes": {
        "method": CappedVotes(votes=3, mechanism=CappedGNMax(20.0, 3), **FEW),
        **NOISE_GIVEN,
    },
    "schema": {"columns": Schema(dict.fromkeys("abcd", (0, 1)))},
    "teachers": {
        "method": TeacherVotes(Ridge(), n_teachers=6, mechanism=LNMax(200.0), **FEW),
        **NOISE_GIVEN,
    },
}
ONCE = ("release", "data_changed", "checkpoints")


def fit(path: Path, who: Any = slice(300), **settings: Any) -> Any:
    once = {name: settings.pop(name) for name in ONCE if name in settings}
    own = {
        "epsilon": 0.4,
        "budget": 1.0,
        "classes": [0, 1],
        "noise": SimulationNoise(3),
        **settings,
    }
    rows = {} if "columns" in own else {"X_public": X[300:]}
    people: Any = {"entity_ids": IDS[who], "insist": True}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return PATEClassifier(ledger=path, **own).fit(
            X[:300][who], Y[:300][who], **people, **rows, **once
        )


def shown(model: Any) -> Any:
    return model.predict(X[300:]).tolist(), model.n_teachers_, model.rounds_


@pytest.mark.filterwarnings("ignore")
def test_a_card_that_was_right_stays_right_after_a_raise(path, tmp_path):
    own: dict[str, Any] = {"noise": None}
    first = fit(path, **own)
    cards = [first.save(tmp_path / "alone") / "card.json"]
    second = fit(path, question="second", **own)  # it states the budget
    cards.append(second.save(tmp_path / "budget") / "card.json")
    Ledger.open(path).raise_budget(2.0, **WHY)
    history = Ledger.open(path).history()
    alone, whole = map(read_card, cards)
    for card in (alone, whole):  # a smaller ε so far is found without the ledger, too
        prove(card, "", history)
        with pytest.raises(InvalidDataError, match="states so far an ε = 0"):
            prove(put(card, ("budget", "so_far"), 0.3), "")
    assert alone.epsilon.epsilon < 0.4001 < whole.epsilon.epsilon == 1
    assert (
        "released from this budget, until it is raised, has ε = 1.0"
        in whole.as_markdown().replace("\n", " ")
    )
    assert (
        _proved_card(cards[0], history.until_head(alone.budget.head, ""), claimed=False).epsilon
        == alone.epsilon
    )
    now = _proved_card(cards[1], history, claimed=False)
    assert (now.epsilon.epsilon, now.budget.raised[0].before) == (2, 1)
    prove(now, "", history)
    assert now.epsilon == history.state.guarantee()
    again = fit(path, budget=2.0, question="second", **own)  # the same release, at no cost
    assert (again.release_.cost, shown(again), again.epsilon_.epsilon) == (0, shown(second), 2.0)
    with pytest.raises(
        LedgerMismatchError, match=r"`budget` must be 2, that of the ledger\. Got 1"
    ):
        fit(path)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", METHODS)
def test_a_fit_after_a_withdrawal_is_one_whose_table_never_had_the_person(method, path):
    own, stay = METHODS[method], IDS != GONE
    before = fit(path, **own)
    copy = copied(path, "copy")
    Ledger.open(path).withdraw([GONE])
    later, without = (
        fit(path, question="later", **own),
        fit(copy, stay, question="later", data_changed=True, **own),
    )
    assert shown(later) == shown(without)
    assert later.release_.cost > 0
    assert Ledger.open(path).verify().entries == Ledger.open(copy).verify().entries
    for one, other in zip(later._private, without._private, strict=True):
        assert repr(getattr(later, one)) == repr(getattr(without, other))
    assert GONE not in str(Ledger.open(path).export()) + repr(Ledger.open(path))
    again = fit(path, **own)
    assert (again.release_.cost, shown(again)) == (0, shown(before))


class Noting(LogisticRegression):
    """A teacher that notes what was fitted."""

    noted: ClassVar = Counter[bytes]()

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        super().fit(X, y)
        Noting.noted[self.coef_.tobytes()] += 1
        return self


def test_teachers_of_others_are_bit_for_bit_the_same_with_and_without_checkpoints(
    path, tmp_path, monkeypatch
):
    method = TeacherVotes(Noting(), n_teachers=12, mechanism=LNMax(200.0), **FEW)
    own = {"method": method, "n_jobs": 1, **NOISE_GIVEN}

    def noted(path: Path, **more: Any) -> tuple[Any, Counter[bytes]]:
        Noting.noted.clear()
        return fit(path, **own, **more), Counter(Noting.noted)

    made(path)
    copy, kept = copied(path, "copy"), tmp_path / "kept"
    with monkeypatch.context() as stopped:
        stopped.setattr(Account, "reserve_new", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            noted(path, checkpoints=kept)
    before = Counter(Noting.noted)
    for one in (path, copy):
        Ledger.open(one).withdraw([GONE])
    (model, resumed), (other, whole) = noted(path, checkpoints=kept), noted(copy)
    # The teacher of the person who withdrew.
    assert (before - whole).total() == (whole - before).total() == 1
    assert resumed - before == whole - before
    assert resumed.total() < before.total()
    assert np.array_equal(model.votes_.counts, other.votes_.counts)


def test_what_cannot_leave_people_out_is_refused_and_spends_nothing(path):
    ledger = made(path, unit=ONE_TEACHER)
    session = LabelingSession(
        VoteHistogram(np.array([[9, 1], [2, 8]]), 10), LNMax(30.0), ledger, X_voted=X[:2]
    )
    first = session.ask(X[:1])
    Ledger.open(path).withdraw([GONE])
    assert session.ask(X[:1]).labels == first.labels
    with pytest.raises(LedgerMismatchError, match="People have withdrawn from"):
        session.ask(X[1:2])
    of_rows = made(
        path.with_name("b.ledger"), unit=PrivacyUnit("row", NeighboringRelation.CHANGE_ONE_ROW)
    )
    of_rows.withdraw([GONE])
    model = PATEClassifier(epsilon=0.4, classes=[0, 1], ledger=of_rows.path, unit="row")
    with pytest.raises(LedgerMismatchError, match="People have withdrawn from") as error:
        model.fit(X[:300], Y[:300], X_public=X[300:], insist=True)
    assert GONE not in str(error.value)
    assert (ledger.state().entries, of_rows.state().spent) == (3, 0)


def test_somebody_who_withdraws_while_a_fit_prepares_is_not_in_it(path, monkeypatch):
    made(path)
    begin = Ledger.begin

    def withdraw_first(ledger: Ledger, *given: Any) -> Any:
        monkeypatch.setattr(Ledger, "begin", begin)
        Ledger.open(path).withdraw([GONE])
        return begin(ledger, *given)

    monkeypatch.setattr(Ledger, "begin", withdraw_first)
    with pytest.raises(LedgerMismatchError, match="if somebody withdrew just now, repeat it"):
        fit(path)
    assert Ledger.open(path).state().spent == 0


@pytest.mark.filterwarnings("ignore")
def test_a_cohort_that_is_empty_shows_nowhere(path):
    fit(path, slice(100), release="January")
    copy = copied(path, "copy")
    Ledger.open(path).withdraw(IDS[:100])
    for one in (path, copy):
        assert fit(one, release="February").release_.cost > 0
    exports = [
        [(entry["kind"], entry["spent"]) for entry in Ledger.open(one).export()]
        for one in (path, copy)
    ]
    assert exports[0] == exports[1]
    assert Ledger.open(path).verify().cohorts == Ledger.open(copy).verify().cohorts
    Ledger.open(path).withdraw(IDS)
    assert fit(path, release="March").release_.cost > 0  # of nobody


@pytest.mark.parametrize(
    "edited", ["DELETE FROM withdrawn", "DROP TABLE withdrawn", "UPDATE withdrawn SET day = 'x'"]
)
def test_people_who_withdrew_are_kept_and_copied_and_an_edit_is_found(edited, path, tmp_path):
    ledger = made(path)
    head = ledger.state().head
    assert ledger.withdraw([GONE, 17]) == ledger.withdraw(["patient-17", " 017"])
    assert ledger.backup(tmp_path / "copy") == ledger.state().head == head
    assert Ledger.open(tmp_path / "copy").register.not_withdrawn([GONE, "17", "18"])[
        0
    ].tolist() == [
        False,
        False,
        True,
    ]
    edit(path, edited)
    for use in (
        lambda: Ledger.open(path).verify(),
        lambda: ledger.withdraw(["other"]),
        lambda: fit(path),
    ):
        with pytest.raises(LedgerTamperedError):
            use()


def test_a_raise_prints_what_configurations_must_now_say_and_silent_ones_go_on(called, path):
    folder, ages = path.parent, np.random.default_rng(0).integers(0, 90, 300)
    lines = ["age,ill", *(f"{age},{'yes' if age > 50 else 'no'}" for age in ages)]
    (folder / "rows.csv").write_text("\n".join(lines))
    (folder / "schema.toml").write_text("[schema]\nage = [0, 90]")
    sections = [
        '[private]\nfile = "rows.csv"\nunit = "row"\n[target]\ncolumn = "ill"\nclasses = ["no", "yes"]'
    ]
    sections += [
        '[public]\nschema = "schema.toml"',
        '[output]\nfolder = "out"',
        "[privacy]\nepsilon = 0.5\n",
    ]

    def run(*terms: str) -> Any:
        (folder / "run.toml").write_text("\n".join([*sections, *terms]))
        return called("run", "run.toml", "--overwrite", cwd=folder)

    init = (
        "ledger init rows.csv.ledger --epsilon 1 --delta 1e-5 --neighbors row --accounting gaussian"
    )
    assert called(*init.split(), cwd=folder).returncode == 0
    more = "ledger raise rows.csv.ledger --epsilon 2 --by M --why x"
    done = called(*more.split(), cwd=folder)
    assert done.stdout.endswith("[privacy] must now have:\nbudget = 2.0\ndelta = 2e-05\n")
    assert (
        "from ε = 1 to 2 by M: x" in called("ledger", "show", "rows.csv.ledger", cwd=folder).stdout
    )
    assert re.search(
        "`budget` must be 2.*`delta` must be 2e-05",
        run("budget = 1", "delta = 1e-5").stderr,
        re.DOTALL,
    )
    for terms in ((), done.stdout.splitlines()[-2:]):
        assert run(*terms).returncode == 0
        assert read_card(folder / "out" / "card.json").epsilon.delta == 2e-5


@pytest.mark.parametrize("release", [None, "January"])
def test_an_id_of_nobody_withdraws_only_if_that_is_said(release, called, path):
    fit(path, release=release)
    gone = called("ledger", "withdraw", path, "--id", GONE)
    assert (gone.returncode, "Of 1 ids, 1 were in its releases." in gone.stderr) == (0, True)
    assert "1 were" not in gone.stdout
    before = Ledger.open(path).state()
    mistaken = called("ledger", "withdraw", path, "--id", "patient-1T")
    assert (mistaken.returncode, mistaken.stdout) == (1, "")
    assert "and 1 of 1 are not, so no person was withdrawn" in mistaken.stderr
    assert "1T" not in mistaken.stderr
    later = called("ledger", "withdraw", path, "--id", "patient-1T", "--yes")
    assert (later.returncode, "Of 1 ids, 0 were in its releases." in later.stderr) == (0, True)
    assert Ledger.open(path).verify().head == before.head
