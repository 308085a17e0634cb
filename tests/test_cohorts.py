"""Releases with names: every person has one budget, whenever the person came, and what is not paid is not drawn."""

import hashlib
import json
import os
import pickle
import shutil
import signal
import sqlite3
import warnings
from collections import Counter, defaultdict
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

from ledgers import admit, for_release, intend, reserve_new, settle
from processes import ended, forked
from tutelage import Ledger, PATEClassifier, PATERegressor, SimulationNoise
from tutelage.accounting import data_independent
from tutelage.accounting.composition import shift_mu_squared
from tutelage.boundary import Boundary
from tutelage.digests import canonical
from tutelage.events import (
    CappedArgmaxGaussian,
    Composed,
    Event,
    NoisyArgmaxGaussian,
    NoisySumGaussian,
)
from tutelage.exceptions import (
    BudgetExceededError,
    InvalidParameterError,
    LedgerMismatchError,
    LedgerTamperedError,
    PreflightError,
    TutelageError,
)
from tutelage.features import Schema
from tutelage.ledger.account import Account
from tutelage.ledger.entries import Entry
from tutelage.ledger.people import cohorts
from tutelage.mechanisms import CappedGNMax, NoisySum
from tutelage.methods import METHODS as METHODS_OF_ALL
from tutelage.methods import AdditiveMean, CappedVotes, Sizes, TeacherVotes
from tutelage.methods.over_releases import Average
from tutelage.privacy import NeighboringRelation, PrivacyUnit
from tutelage.tables import Batches
from tutelage.teachers import ClassMeans

UNIT = PrivacyUnit("entity", NeighboringRelation.ADD_REMOVE_OR_CHANGE_ONE_ENTITY)
EVENTS = [NoisySumGaussian(sigma, 1, 1, UNIT) for sigma in (8.0, 12.0, 20.0, 40.0)]


class Accountant:
    """The costs of each person and of each cohort, by the number of the reservation, without a look at the ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self.limit, self.raised = ledger.limit, list[float]()
        # Releases, by the number of what they paid.
        self.withdrawn, self.paid = set[str](), dict[int, str]()
        self.cohort_of = dict[str, str]()
        self.of_person, self.of_cohort = (
            defaultdict[str, dict[int, int]](dict),
            defaultdict[str, dict[int, int]](dict),
        )
        self.begun, self.answers = dict[str, set[str]](), dict[bytes, tuple[int, ...]]()

    def cohorts(self, name: str, most: Event) -> set[str]:
        spent = {one: sum(self.of_cohort[one].values()) for one in self.begun}
        having = {one for one in spent if spent[one] + self.limit.cost(most) <= self.limit.capacity}
        return self.begun.get(name, having | {name})

    def pays(
        self,
        ledger: Ledger,
        name: str,
        cohorts: set[str],
        people: list[str],
        voting: list[str],
        paid: Any,
    ):
        assert self.begun.setdefault(name, cohorts) == cohorts
        self.paid[paid.number] = name
        assert not self.withdrawn.intersection(voting)
        for person in self.withdrawn.symmetric_difference(people).difference(self.withdrawn):
            self.cohort_of.setdefault(person, name)
        cost = self.limit.cost(paid.event)
        for one in cohorts:
            self.of_cohort[one][paid.number] = cost
        for person in voting:
            assert self.cohort_of[person] in cohorts
            self.of_person[person][paid.number] = cost
        assert ledger.limit == self.limit
        for costs in self.of_person.values():
            assert sum(costs.values()) <= self.limit.capacity

    def agrees(self, ledger: Ledger) -> None:
        """Compare the whole ledger with what was paid."""
        state, history = ledger.verify(), ledger.history()
        assert (state.cohorts.keys(), [one.epsilon for one in state.raised]) == (
            self.begun.keys(),
            self.raised,
        )
        assert {one.number: one.reserved.content["release"] for one in history.charges} == self.paid
        for person, costs in self.of_person.items():
            share = self.limit.share(sum(costs.values()))
            assert share <= state.cohorts[self.cohort_of[person]] <= ledger.limit.epsilon
        assert "person" not in str([entry.text for entry in history.entries])

    def raises(self, ledger: Ledger, epsilon: float) -> None:
        """Raise the budget."""
        before, self.limit = self.limit, self.limit.larger_budget(epsilon)
        assert ledger.raise_budget(epsilon, by="somebody", why="a reason").budget == epsilon
        assert all(ledger.limit.cost(one) == before.cost(one) for one in EVENTS)
        self.raised.append(epsilon)


class Release:
    """A release of several steps that was admitted, and may be interrupted."""

    def __init__(
        self,
        ledger: Ledger,
        book: Accountant,
        name: str,
        question: str,
        steps: list[Event],
        people: Any,
    ):
        self.ledger, self.book, self.name, self.question, self.steps = (
            ledger,
            book,
            name,
            question,
            steps,
        )
        self.people, most = list(people), Composed(tuple(steps))
        intend(ledger, canonical([question, name]), None)
        takes_part = admit(ledger, name, question, self.people, most)
        self.cohorts = book.cohorts(name, most)
        there = [
            one not in book.withdrawn and book.cohort_of.get(one, name) in self.cohorts
            for one in self.people
        ]
        assert takes_part.tolist() == there
        self.voting = [one for one, takes in zip(self.people, takes_part, strict=True) if takes]

    def go_on(self, stop: int, *, fails: bool) -> None:
        """Draw step after step; before the answer of step `stop` the process ends, or the mechanism fails."""
        for step, event in enumerate(self.steps):
            key = hashlib.sha256(f"{self.name} {self.question} {step}".encode()).digest()
            found, paid = reserve_new(self.ledger, event, [key])
            assert found == {one: self.book.answers[one] for one in found}
            if paid is None:
                continue
            assert key not in self.book.answers
            self.book.pays(self.ledger, self.name, self.cohorts, self.people, self.voting, paid)
            if step == stop and fails:
                self.ledger.account.forfeit(paid)
            if step == stop:
                return
            self.book.answers[key] = (len(self.book.answers),)
            settle(self.ledger, paid, {key: self.book.answers[key]}, event)


def live(seed: int, path: Path | None = None) -> Counter[str]:
    """Live through a random history of people and releases, and return how often each thing happened."""
    random, seen, late = np.random.default_rng(seed), Counter[str](), None
    terms: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-5, "unit": UNIT}
    terms["accounting"] = "gaussian" if random.random() < 0.5 else "renyi"
    ledger = Ledger.in_memory(**terms) if path is None else Ledger.create(path, **terms)
    book, present, plans = Accountant(ledger), set[str](), dict[str, tuple[str, list[Event]]]()

    def opened() -> Ledger:
        return for_release(ledger) if path is None else Ledger.open(path)

    for turn in range(int(random.integers(2, 9))):
        present ^= {f"person {one}" for one in random.integers(0, 9, size=random.integers(0, 5))}
        name = (
            str(random.choice(list(plans)))
            if plans and random.random() < 0.4
            else f"release {turn}"
        )
        steps = [EVENTS[one] for one in random.integers(0, len(EVENTS), size=random.integers(1, 4))]
        plan = plans.setdefault(name, (f"question {random.integers(2)}", steps))
        # Admitted beside all others, where nobody waits for a turn.
        if late is None and random.random() < 0.3:
            late = Release(
                opened(),
                book,
                *((name, *plan) if random.random() < 0.5 else ("late", "", steps)),
                present,
            )
        this = opened()
        try:
            with this.account.turn():
                Release(this, book, name, *plan, present).go_on(
                    int(random.integers(5)), fails=random.random() < 0.3
                )
            if late is not None and random.random() < 0.5:
                raced, late = late, None
                raced.go_on(9, fails=False)
                seen["raced"] += 1
        except BudgetExceededError:
            seen["no room"] += 1
        except LedgerMismatchError:
            seen["at the same time"] += 1
        if random.random() < 0.1:
            book.raises(opened(), book.limit.epsilon * float(random.choice([1.5, 2.0])))
        if random.random() < 0.2:
            gone = [f"person {one}" for one in random.integers(0, 9, size=random.integers(1, 3))]
            opened().withdraw(gone, unknown=True)
            book.withdrawn |= set(gone)
            seen["withdrew"] += bool(present.intersection(gone))
        seen["nobody"] += not present
    book.agrees(opened())
    return seen + Counter(raised=len(book.raised), paid=sum(map(len, book.of_person.values())))


HAPPENS = ("raced", "no room", "at the same time", "nobody", "paid", "raised", "withdrew")
MANY = [range(1000 + part, 101_000, 10) for part in range(10)]


@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    "seeds", [range(60), *(pytest.param(part, marks=pytest.mark.slow) for part in MANY)]
)
def test_nobody_is_charged_too_little_in_random_histories(seeds, tmp_path):
    seen = sum(
        (live(seed, tmp_path / f"{seed}.ledger" if seed % 10 == 0 else None) for seed in seeds),
        Counter(),
    )
    assert min(seen[one] for one in HAPPENS) > 3


ORDERS = np.array([1.02, 1.5, 3.0, 10.0, 60.0, 300.0])


def on_one_side(event: Event) -> tuple[Any, Any]:
    """Return the Rényi cost at each order and the μ² of ballots that only one of two neighbors has."""
    parts: Any = [(part.event, part.times) for part in event.flatten()]
    assert {type(one) for one, _ in parts} <= {NoisySumGaussian, CappedArgmaxGaussian}
    renyi = sum(times * data_independent._rdp_if_added(one, ORDERS) for one, times in parts)
    moved = [
        (one.sigma, data_independent._squared_distance_if_added(one), times) for one, times in parts
    ]
    return renyi, sum(times * shift_mu_squared(sigma, distance) for sigma, distance, times in moved)


@pytest.mark.parametrize("noise", [0.6, 8.0])
@pytest.mark.parametrize(
    "method", [AdditiveMean, *(kind for kind in METHODS_OF_ALL.values() if not kind.needs.shards)]
)
def test_a_ballot_on_one_side_costs_at_most_half_of_what_is_charged(method, noise):
    more: dict[str, Any]
    for more in ({}, {"labeled": True}, {"bins": (5, 9)}):
        sizes = Sizes(n_classes=2, n_public=60, unit=UNIT, **more)
        if (method.needs.public == "schema") != bool(sizes.bins) or (
            sizes.labeled and not method.needs.start
        ):
            continue
        charged = method().with_noise(noise).event(sizes)
        renyi, shifts = on_one_side(charged)
        assert np.all(
            2 * renyi
            <= data_independent.rdp_of_three_outcomes(charged, ORDERS).values * (1 + 1e-12)
        )
        if noise > 2:  # with less, no Gaussian budget holds votes
            assert 2 * shifts <= data_independent.mu_squared(charged) * (1 + 1e-12)


def test_a_ballot_on_one_side_costs_more_than_half_of_other_steps():
    vote, order = NoisyArgmaxGaussian(0.5, 10, UNIT), np.array([1.1])
    charged = data_independent.rdp_of_three_outcomes(vote, order).values
    alone = data_independent._rdp_if_added(vote, order)
    assert 0.5 * charged < alone < 0.52 * charged


RANDOM = np.random.default_rng(0)
X = RANDOM.uniform(size=(190, 4))
Y = (X[:, 0] > 0.5).astype(int)
IDS = np.array([f"person {row}" for row in range(150)])
METHODS: dict[str, dict[str, Any]] = {
    "vectors and labels": {"labeled": True},
    "capped votes": {"method": CappedVotes(3, student=GaussianNB()), "random_state": 0},
    "schema": {"columns": Schema(dict.fromkeys("abcd", (0, 1)))},
}
OLD, NEW, ALL, PUBLIC = range(100), range(100, 150), range(150), X[150:]


@pytest.fixture
def path(tmp_path, monkeypatch):
    # A model of public labels sees no private row.
    monkeypatch.setattr("tutelage.features.scored._FOLDS", 2)
    return tmp_path / "a.ledger"


@pytest.fixture(scope="module")
def months(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger of two releases, each for .6 of a budget of 2."""
    made = tmp_path_factory.mktemp("months") / "a.ledger"
    for name, who in (("January", OLD), ("February", ALL)):
        fit(made, name, who, epsilon=0.6)
    return made


def fit(
    path: Path | None,
    release: str | None,
    who: Any,
    ids: Any = IDS,
    *,
    labeled: bool = False,
    insist: bool = True,
    **settings: Any,
) -> Any:
    own = {
        "epsilon": 1.0,
        "budget": 2.0,
        "classes": [0, 1],
        "noise": SimulationNoise(3),
        **settings,
    }
    who = np.asarray(who)
    rows: dict[str, Any] = {} if "columns" in own else {"X_public": PUBLIC}
    rows |= {"y_public": Y[150:]} if labeled else {}
    ids = None if ids is None else ids[who]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = PATEClassifier(ledger=path, **own)
        return model.fit(X[who], Y[who], entity_ids=ids, release=release, insist=insist, **rows)


def shown(model: Any) -> Any:
    """Return what the student of a fit gives to public rows."""
    return (model.predict if model.release_.labels.size else model.predict_proba)(PUBLIC).tolist()


def exported(path: Path) -> list[dict[str, Any]]:
    entries = Ledger.open(path).export()
    return [
        {name: one[name] for name in one if name not in ("hash", "fingerprint", "nonce")}
        for one in entries
    ]


def people(path: Path) -> dict[bytes, str]:
    with Ledger.open(path)._opened.store.transaction() as read:
        return cohorts(read)


def after(times: int, honest: Any, act: Any) -> Any:
    """Return a function that acts instead of the call of this number."""
    left = count(1 - times)
    return lambda *given, **more: act() if next(left) == 0 else honest(*given, **more)


def interrupt() -> None:
    raise KeyboardInterrupt


WITHIN, BETWEEN = (NoisySum, "release"), (Account, "reserve_new")


@pytest.mark.parametrize(("place", "step"), [(BETWEEN, 2), (WITHIN, 3)])
def test_a_repeated_release_is_the_same_at_no_cost_although_an_older_one_was_finished_since(
    place, step, path, monkeypatch
):
    own: dict[str, Any] = {"epsilon": 0.6}
    with monkeypatch.context() as patched:
        patched.setattr(*place, after(step, getattr(*place), interrupt))
        with pytest.raises(KeyboardInterrupt):
            fit(path, "January", OLD, **own)
    whole = {
        name: fit(path, name, who, **own)
        for name, who in (("February", ALL), ("January", OLD), ("March", NEW))
    }
    spent = Ledger.open(path).verify().cohorts
    for name, before in whole.items():
        again = fit(path, name, OLD, **own)
        assert (again.release_.cost, shown(again)) == (0, shown(before))
    assert Ledger.open(path).verify().cohorts == spent


def test_people_who_are_new_in_a_repeated_release_come_with_the_next_one(path):
    fit(path, "January", OLD, epsilon=0.6)
    before = people(path)
    assert fit(path, "January", ALL, epsilon=0.6).release_.cost == 0
    assert people(path) == before
    fit(path, "February", ALL, epsilon=0.6)
    assert len(people(path)) == 150
    assert sum(cohort == "February" for cohort in people(path).values()) == 50


@pytest.mark.parametrize("method", ["vectors and labels", "schema"])
def test_every_sum_of_every_earlier_release_of_the_question_is_averaged_and_no_other(
    method, path, monkeypatch
):
    honest, drawn, recalled = Boundary._answer, list[tuple[bytes, Any]](), list[tuple[bytes, Any]]()

    def answer(self: Boundary, request: Any) -> Any:
        found = honest(self, request)
        assert found is not None
        if "report" in str(request.subject):  # on the student of one release alone
            return found
        (recalled if request.earlier else drawn).append(
            (self.keys(request)[0], found.values.tolist())
        )
        return found

    monkeypatch.setattr(Boundary, "_answer", answer)
    for name, who in (("January", OLD), ("February", ALL), ("March", NEW)):
        recalled.clear()
        before, _ = list(drawn), fit(path, name, who, epsilon=0.6, **METHODS[method])
        assert sorted(recalled) == sorted(before)
    assert len(drawn) == 3 * 4  # with the number of people
    recalled.clear()
    fit(path, "April", ALL, epsilon=0.6, question="other", **METHODS[method])
    assert recalled == []


def test_votes_of_a_release_join_the_labels_of_earlier_ones(path, monkeypatch):
    method = CappedVotes(3, n_queries=13, student=GaussianNB())
    own = {"method": method, "random_state": 0, "epsilon": 0.6}
    january = fit(path, "January", OLD, **own)
    with monkeypatch.context() as patched:  # between the campaign, which is paid, and its batch
        patched.setattr(CappedGNMax, "release", lambda *_: interrupt())
        with pytest.raises(KeyboardInterrupt):
            fit(path, "between", OLD, **own)
    february, march = fit(path, "February", ALL, **own), fit(path, "March", NEW, **own)
    queries = [set(one.queries_.tolist()) for one in (january, february, march)]
    assert list(map(len, queries)) == [13, 26, 39]
    assert queries[0] < queries[1] < queries[2]
    labels = [
        dict(zip(one.queries_.tolist(), one.release_.labels.tolist(), strict=True))
        for one in (january, march)
    ]
    assert labels[0].items() <= labels[1].items()
    fit(path, "between", OLD, **own)
    again = fit(path, "February", ALL, **own)
    assert (again.release_.cost, again.queries_.tolist()) == (0, february.queries_.tolist())
    # For which too few rows are left, but for those of the oldest labels.
    april = fit(path, "April", NEW, **own)
    assert len(april.queries_) == 39
    assert april.release_.cost > 0


def test_a_repeated_release_is_the_same_where_averages_have_other_last_digits(
    months, path, monkeypatch
):
    shutil.copy(months, path)
    honest = Average.with_sum
    monkeypatch.setattr(
        Average, "with_sum", lambda *given: (honest(*given)[0] * (1 + 1e-13), honest(*given)[1])
    )
    assert fit(path, "February", ALL, epsilon=0.6).release_.cost == 0


@pytest.mark.filterwarnings("ignore")
def test_how_a_release_begins_is_not_shown_and_not_pickled(path):
    model = PATEClassifier(ledger=path, budget=2.0, classes=[0, 1])
    release = model.prepare(X[:150], Y[:150], X_public=PUBLIC, entity_ids=IDS, insist=True)
    assert "person" not in repr(release)
    for one in (release, release.budget):
        with pytest.raises(TutelageError, match=f"{type(one).__name__} is not pickled"):
            pickle.dumps(one)


def test_an_average_over_releases_is_by_the_inverse_of_the_variance():
    sums, sizes = RANDOM.normal(size=(3, 2, 5)), np.array([10.0, 30.0, 20.0])
    average, middle = Average(), Average()
    found, sigma = [
        average.with_sum(value, 2.0, size) for value, size in zip(sums, sizes, strict=True)
    ][-1]
    means = [
        middle.with_mean(value, size) for value, size in zip((1.0, 2.0, 3.0), sizes, strict=True)
    ]
    weights = (precision := (sizes / 2.0) ** 2) / precision.sum()
    assert found / 20 == pytest.approx(
        np.tensordot(weights, sums / sizes[:, np.newaxis, np.newaxis], 1)
    )
    assert sigma / 20 == pytest.approx(np.sqrt(1 / precision.sum()))
    assert means == pytest.approx([1.0, 1.9, weights @ [1.0, 2.0, 3.0]])


@pytest.mark.parametrize("method", METHODS)
def test_people_of_a_spent_cohort_change_nothing_that_leaves_also_where_nobody_else_comes(
    method, path
):
    own = METHODS[method]
    fit(path, "January", OLD, **{**own, "epsilon": 2.0})
    more, less = (copied(path, name) for name in ("more", "less"))
    for name, some, fewer in (("nobody", OLD, [7]), ("one person", [*OLD, 100], [100])):
        one, other = (
            fit(more, name, some, **own, question=name),
            fit(less, name, fewer, **own, question=name),
        )
        assert shown(one) == shown(other)
        assert one.n_teachers_ == other.n_teachers_
        assert one.release_.cost > 0
    assert exported(more) == exported(less)
    assert people(more) == people(less)
    assert Counter(people(more).values()) == {"January": 100, "one person": 1}


def test_a_release_in_which_hardly_anybody_takes_part_is_refused_before_it_spends(path):
    own = {**METHODS["schema"], "epsilon": 2.0}
    fit(path, "January", OLD, **own)
    before = exported(path)
    for who in (OLD, [*OLD, 100, 101]):
        with pytest.raises(
            PreflightError, match=r"Too few people take part in February.*pass `insist=True`"
        ):
            fit(path, "February", who, **own, insist=False)
    assert exported(path) == before
    fit(path, "February", OLD, **own)
    assert fit(path, "February", OLD, **own, insist=False).release_.cost == 0  # it is paid for


@pytest.mark.parametrize("method", METHODS)
def test_who_somebody_is_shows_nowhere(method, path):
    own = {"epsilon": 0.6, **METHODS[method]}
    fit(path, "January", OLD, **own)
    old, new = (copied(path, name) for name in ("old", "new"))
    renamed = np.where(IDS == "person 7", "somebody new", IDS)
    known, unknown = fit(old, "February", ALL, **own), fit(new, "February", ALL, renamed, **own)
    assert shown(known) == shown(unknown)
    assert exported(old) == exported(new)
    assert len(people(new)) == len(people(old)) + 1


def copied(path: Path, folder: str) -> Path:
    """Return a copy of a ledger in a folder of its own: beside the original it could not be used."""
    made = path.parent / folder
    made.mkdir()
    return Path(shutil.copy(path, made))


def fit_until_killed(path: Path, draw: int) -> None:
    """Fit, and die in the draw of this number: it is reserved then, and not settled."""
    NoisySum.release = after(draw, NoisySum.release, lambda: os.kill(os.getpid(), signal.SIGKILL))  # type: ignore
    fit(path, "February", range(50, 125))


@pytest.mark.parametrize("draw", [1, 3])
def test_a_release_that_was_killed_goes_on_with_a_person_more_and_one_less(draw, path):
    fit(path, "January", OLD)
    assert ended(forked(lambda: fit_until_killed(path, draw))) == -signal.SIGKILL
    fit(path, "February", range(51, 126))
    state = Ledger.open(path).verify()
    assert state.unsettled == 0
    assert state.cohorts["January"] == 2 * state.cohorts["February"] <= 2
    assert Counter(people(path).values()) == {"January": 100, "February": 26}


def test_two_processes_that_begin_releases_with_the_same_newcomers_charge_them_for_both(path):
    fit(path, "January", OLD)
    children = [
        forked(lambda name=name: fit(path, name, range(75, 125))) for name in ("February", "March")
    ]
    assert list(map(ended, children)) == [0, 0]
    spent = Ledger.open(path).verify().cohorts
    first, second = sorted(("February", "March"), key=spent.__getitem__, reverse=True)
    assert spent["January"] == pytest.approx(3 * spent[second], rel=1e-12)
    assert spent[first] == pytest.approx(2 * spent[second], rel=1e-12)
    assert Counter(people(path).values()) == {"January": 100, first: 25}


def name_fewer_cohorts(raw: sqlite3.Connection) -> None:
    """Take a cohort from the second release, and compute all hashes anew, which needs no key."""
    last, found = (
        None,
        raw.execute("SELECT number, text, hash FROM entries ORDER BY number").fetchall(),
    )
    for number, text, before in found:
        content = json.loads(text)
        content |= (
            {"cohorts": ["February"]} if content.get("cohorts") == ["January", "February"] else {}
        )
        last = Entry.after(last, content.pop("kind"), content.pop("spent"), **content)
        raw.execute(
            "UPDATE entries SET text = ?, hash = ? WHERE number = ?", (last.text, last.hash, number)
        )
        raw.execute(
            "UPDATE checkpoint SET text = replace(text, ?, ?)", (before.hex(), last.hash.hex())
        )


EDITS = {
    "a person removed": "DELETE FROM people WHERE person = (SELECT min(person) FROM people)",
    "a person moved": "UPDATE people SET cohort = 'February' WHERE cohort = 'January'",
    "a person added": "INSERT INTO people VALUES (randomblob(32), 'February')",
    "everybody removed": "DELETE FROM people",
    "an account lowered": "UPDATE checkpoint SET text = replace(text, '\"January\":', '\"January\":0')",
    "fewer cohorts named": name_fewer_cohorts,
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_people_accounts_and_cohorts_that_were_changed_are_found(edit, months, path):
    shutil.copy(months, path)
    with sqlite3.connect(path) as raw:
        _ = raw.execute(edit) if isinstance(edit, str) else edit(raw)
    for use in (lambda: Ledger.open(path).verify(), lambda: fit(path, "March", ALL, epsilon=0.6)):
        with pytest.raises(LedgerTamperedError):
            use()


@pytest.mark.parametrize(("settings", "said"), [
    ({"release": None}, "`release` must name each release"),
    ({"release": ""}, "must be printable text"),
    ({"classes": None}, "must list all class values if you name a `release`"),
    ({"question": "other"}, "begun with other settings"),
    ({"path": None, "budget": None}, "`release` of PATEClassifier.fit must come with `ledger`"),
    ({"ids": None, "release": "February"}, "must come with `entity_ids`"),
    ({"method": TeacherVotes(ClassMeans(), n_teachers=5)}, "only if every person casts ballots"),
])  # fmt: skip
def test_what_has_no_name_or_two_meanings_is_refused_and_changes_nothing(
    settings, said, months, path
):
    shutil.copy(months, path)
    before = exported(path)
    with pytest.raises((InvalidParameterError, LedgerMismatchError), match=said):
        fit(who=ALL, **{"path": path, "release": "January", "epsilon": 0.6, **settings})
    assert exported(path) == before


@pytest.mark.filterwarnings("ignore")
def test_names_that_later_releases_need_and_names_that_find_no_other_are_told_before_anything_is_spent(
    path,
):
    months = {
        "classes": [0, 1],
        "ledger": path,
        "budget": 1.0,
        "releases": 3,
        "noise": SimulationNoise(0),
        "unit": "person",
    }
    given = {"X_public": PUBLIC, "entity_ids": IDS, "insist": True}

    def told(release: str | None, **changed: Any) -> list[str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            PATEClassifier(**months | changed).prepare(X[:150], Y[:150], release=release, **given)
        return [str(one.message) for one in caught if "release" in str(one.message)]

    (unnamed,) = told(None)
    assert "name each release by `release`" in unnamed
    assert told("January") == []
    PATEClassifier(**months).fit(X[:150], Y[:150], release="January", **given)
    assert told("January") == told("February") == []
    (other,) = told("February", question="another")
    assert "No earlier release of this ledger has these settings" in other


def test_a_name_is_refused_where_releases_had_none_or_rows_come_in_batches(path):
    fit(path, None, OLD, epsilon=0.5)
    with pytest.raises(LedgerMismatchError, match="`release` must be left out"):
        fit(path, "January", OLD, epsilon=0.5)
    batches = Batches("", ("a", "label", "id"), lambda _: iter(()))
    model = PATEClassifier(ledger=path.with_name("b.ledger"), classes=[0, 1], budget=1.0)
    with pytest.raises(InvalidParameterError, match="must be left out if rows are read in batches"):
        model.fit(
            batches, "label", X_public={"a": PUBLIC[:, 0]}, entity_ids="id", release="January"
        )


@pytest.mark.parametrize("release", ["February", None])
def test_a_new_ledger_beside_one_that_knows_somebody_is_refused_whatever_its_name(release, path):
    fit(path, "January", OLD, **METHODS["schema"])
    beside = path.with_name("b.ledger")
    with pytest.raises(LedgerMismatchError, match=r"a\.ledger contains .* of some of these people"):
        fit(beside, release, [7, *NEW])
    assert not beside.exists()
    assert fit(beside, release, NEW).release_.cost > 0


@pytest.mark.filterwarnings("ignore::tutelage.exceptions.BudgetContinuedWarning")
def test_numbers_have_releases_with_names_too(path):
    def cost(release: str, who: range) -> float:
        model = PATERegressor(
            epsilon=0.6, target_range=(0, 1), budget=1.3, ledger=path, **METHODS["schema"]
        )
        return model.fit(
            X[who], X[who, 0], entity_ids=IDS[who], release=release, insist=True
        ).release_.cost

    first = cost("January", OLD)
    assert (cost("January", ALL), cost("February", ALL)) == (0, first)
