"""`PATEClassifier` where people vote on the nearest public rows: what it learns, costs, remembers and refuses."""

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

from blobs import LABELS, PRIVATE, PUBLIC, TEST, TRUE, blobs
from tutelage import GNMax, PATEClassifier, Shards, SimulationNoise
from tutelage.accounting.filter import RenyiFilter
from tutelage.ballots import tally_few
from tutelage.exceptions import (
    BudgetContinuedWarning,
    BudgetExceededError,
    InvalidDataError,
    InvalidParameterError,
)
from tutelage.features import PublicPCA, PublicRows, PublicSteps
from tutelage.mechanisms import CappedGNMax
from tutelage.methods import CappedVotes, Method, TeacherVotes
from tutelage.people.memory import PeopleInMemory
from tutelage.privacy import NeighboringRelation, PrivacyUnit
from tutelage.release import FEW_VOTES_LEFT
from tutelage.students import NoisySumClassifier
from tutelage.teachers import NearestQueries

CAP, DELTA = 5, 1e-5
ROW = PrivacyUnit("row", NeighboringRelation.CHANGE_ONE_ROW)


CAPPED = CappedVotes(CAP, student=GaussianNB())
AXES = PublicPCA.learn(PublicRows(PUBLIC, "made up"), 2)


def model(method: Method = CAPPED, **changes):
    given = {"epsilon": 2.0, "random_state": 0, "noise": SimulationNoise(0), "classes": [0, 1, 2]}
    return PATEClassifier(method=method, **given | changes)


def fitted(X=PRIVATE, y=LABELS, public=PUBLIC, ids=None, **changes) -> Any:
    return model(**changes).fit(X, y, X_public=public, entity_ids=ids)


@pytest.fixture(scope="module")
def plain() -> Any:
    return fitted()


def few_votes(X, public):
    few = (
        NearestQueries(CAP)
        .fit(X, LABELS, Shards.of_single_people(len(X)), n_classes=3)
        .few_votes(public)
    )
    return tally_few(few.teachers, few.queries, few.labels, shape=few.shape, cap=CAP).counts


# What it learns, and what that costs


@pytest.mark.rest
def test_it_learns_nearly_as_much_as_a_model_without_privacy(plain):
    assert (
        plain.score(TEST, TRUE) > LogisticRegression().fit(PRIVATE, LABELS).score(TEST, TRUE) - 0.05
    )
    drowned = {"epsilon": None, "method": CAPPED.with_params(mechanism=CappedGNMax(5_000.0, CAP))}
    assert (
        np.mean(
            [fitted(noise=SimulationNoise(seed), **drowned).score(TEST, TRUE) for seed in range(3)]
        )
        < 0.5
    )


@pytest.mark.parametrize("epsilon", [None, 4.0])
def test_the_noise_is_the_least_that_the_budget_holds(epsilon):
    found, target = fitted(epsilon=epsilon), epsilon or 1.0
    assert 0.97 * target < found.epsilon_.epsilon <= target
    less = CappedGNMax(found.mechanism_.sigma * 0.9998, CAP).event_of_one(3, ROW, simulated=True)
    limit = RenyiFilter.suited_to(target, DELTA)
    assert limit.cost(less) > limit.capacity >= limit.cost(found.release_.event)


def test_everybody_votes_as_often_as_the_cap_says_on_the_nearest_rows(plain):
    steps = PublicSteps.learn(PublicRows(PUBLIC, "X_public"), PUBLIC.shape[1])
    assert np.array_equal(
        plain.ballots_[0].counts, few_votes(steps.transform(PRIVATE), steps.transform(PUBLIC))
    )
    assert not hasattr(plain, "votes_")


def test_the_votes_are_on_what_is_near_through_the_features(plain):
    found = fitted(features=AXES, method=CAPPED.with_params(student_features="rows"))
    assert np.array_equal(
        found.ballots_[0].counts, few_votes(AXES.transform(PRIVATE), AXES.transform(PUBLIC))
    )
    assert not np.array_equal(found.ballots_[0].counts, plain.ballots_[0].counts)


@pytest.mark.parametrize("gone", [False, True])
def test_one_person_moves_at_most_twice_the_cap_in_all_rounds(gone):
    X, y = blobs(60, 0)
    ids = np.arange(60) // 3
    own, mechanism = ids == 7, CappedGNMax(10.0, 4)
    there = (
        (X[~own], y[~own], ids[~own])
        if gone
        else (np.where(own[:, np.newaxis], 0, X), (y + own) % 3, ids)
    )
    method = CAPPED.with_params(mechanism=mechanism, rounds=3, n_queries=45)
    fits = [
        fitted(*rows[:2], PUBLIC[:45], rows[2], epsilon=None, method=method)
        for rows in ((X, y, ids), there)
    ]
    counts = [np.concatenate([votes.counts for votes in one.ballots_]) for one in fits]
    assert 0 < np.abs(counts[0] - counts[1]).sum() <= mechanism.cap * (1 if gone else 2)


def test_the_number_of_people_is_told_only_where_it_is_public(plain):
    assert plain.n_teachers_ == len(PRIVATE)
    by_person = fitted(ids=np.arange(3000) // 2, unit="patient")
    assert by_person.n_teachers_ is None
    assert by_person.epsilon_.unit.name == "patient"
    assert by_person.ballots_[0].counts.sum() == 1500 * CAP
    assert "1500" not in repr(by_person.ballots_)


# What a ledger remembers


@pytest.fixture
def path(tmp_path):
    return tmp_path / "private.ledger"


def test_no_text_shows_rows_or_the_number_of_people():
    assert "n_shards=<hidden>" in repr(
        Shards.of_single_people(4, np.arange(4) // 2, name="patient_id")
    )
    people = PeopleInMemory(PRIVATE, LABELS, Shards.of_single_people(len(PRIVATE)))
    assert repr(people) == "PeopleInMemory(<private rows hidden>)"


def test_new_queries_of_a_paid_campaign_fit_a_full_budget_and_say_that_votes_are_gone(path):
    first = fitted(noise=None, ledger=path, public=PUBLIC[:200], features=AXES)
    with pytest.warns(BudgetContinuedWarning) as caught:
        again = fitted(noise=None, ledger=path, features=AXES)
    assert FEW_VOTES_LEFT in str(caught[0].message)
    assert "200 of its queries were answered before" in str(caught[0].message)
    assert again.mechanism_ == first.mechanism_
    assert (again.release_.cost, again.drawn_, again.remembered_) == (0.0, 200, 200)
    assert np.array_equal(again.release_.labels[:200], first.release_.labels)
    assert again.ballots_[0].counts.sum() == 0  # everybody has cast all votes
    assert again.epsilon_ == again.ledger_.guarantee()


def test_what_does_not_fit_is_refused_before_anybody_votes(path, monkeypatch):
    monkeypatch.setattr(NearestQueries, "fit", None)
    little = CAPPED.with_params(mechanism=CappedGNMax(1.0, CAP))
    with pytest.raises(BudgetExceededError, match="has no room for this release"):
        fitted(noise=None, ledger=path, epsilon=None, budget=2.0, method=little)
    assert not path.exists()


# What does not go together


@pytest.mark.parametrize(("kind", "of_method", "epsilon", "said"), [
    (CappedVotes, {"mechanism": GNMax(10.0)}, 2.0, "must be a CappedGNMax, because every person has"),
    (CappedVotes, {"student": NoisySumClassifier()}, 2.0, "`student` of CappedVotes must be a classifier that learns"),
    (CappedVotes, {"mechanism": CappedGNMax(10.0, 5)}, 2.0, "each of them sets the noise"),
    (TeacherVotes, {"mechanism": CappedGNMax(10.0, 5)}, None, "CappedVotes for a `CappedGNMax`"),
    (CappedVotes, {"votes": 10**6}, 1e-7, "no amount of noise meets it"),
])  # fmt: skip
def test_parameters_that_do_not_go_together_are_refused_in_one_sentence(
    kind, of_method, epsilon, said
):
    with pytest.raises(InvalidParameterError, match=said):
        fitted(method=kind(**{"student": GaussianNB(), **of_method}), epsilon=epsilon)


def test_owners_and_missing_values_are_refused():
    with pytest.raises(InvalidParameterError, match="must be left out for CappedVotes"):
        model().fit(PRIVATE, LABELS, X_public=PUBLIC, silos=np.arange(len(PRIVATE)) % 3)
    holed = PRIVATE.copy()
    holed[0, 0] = np.nan
    with pytest.raises(InvalidDataError, match="NaN"):
        fitted(holed, features=AXES)
