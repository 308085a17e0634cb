"""The audit of sums of ballots: what is as it should be passes, and planted faults are found."""

from typing import Any

import numpy as np
import pytest

from tutelage import PATEClassifier, Shards, SimulationNoise
from tutelage.audit.checklist import PrivateRows
from tutelage.audit.sums import check_ballots, check_noise_of_sum, check_votes, tried_on_few
from tutelage.ballots import BallotSum
from tutelage.mechanisms import CappedGNMax
from tutelage.noise import SystemNoise
from tutelage.teachers import NearestQueries, VectorBallots

rng = np.random.default_rng(0)
LABELS = rng.integers(0, 2, 200)
PRIVATE = rng.normal(size=(200, 3)) + LABELS[:, None]
PUBLIC = rng.normal(size=(100, 3)) + rng.integers(0, 2, (100, 1))
PEOPLE = np.repeat(np.arange(100), 2)


def test_the_noise_that_is_drawn_passes():
    assert check_noise_of_sum(draws=20_000).verdict == "pass"


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_noise_that_is_too_small_or_too_large_is_found(factor):
    class OfAnotherSize:
        simulated = False

        def discrete_gaussian(self, sigma, shape):
            return SystemNoise().discrete_gaussian(sigma * factor, shape)

    noise: Any = OfAnotherSize()
    assert check_noise_of_sum(draws=20_000, noise=noise).verdict == "fail"


@pytest.mark.parametrize("ids", [None, PEOPLE])
def test_one_person_casts_one_ballot(ids):
    model = PATEClassifier(VectorBallots(), random_state=0, noise=SimulationNoise(0))
    found = check_ballots(model, PrivateRows(PRIVATE, LABELS, ids), PUBLIC, entities=3)
    assert found.verdict == "pass"
    assert found.private


def above_its_cap(self, vectors, residuals, shards, radius):
    """Cast ballots three times as long as they are said to be."""
    honest = CAST(self, vectors, residuals, shards, radius)
    return BallotSum(3 * honest.totals, honest.norm_squared, honest.unit)


def centered(self, vectors, residuals, shards, radius):
    """Cast ballots from which the mean of all private rows was taken first."""
    return CAST(self, vectors - 20 * vectors.mean(axis=0), residuals, shards, radius)


CAST = VectorBallots.cast


@pytest.mark.parametrize("fault", [above_its_cap, centered])
def test_a_planted_fault_is_found(fault, monkeypatch):
    monkeypatch.setattr(VectorBallots, "cast", fault)
    model = PATEClassifier(VectorBallots(), random_state=0, noise=SimulationNoise(0))
    assert check_ballots(model, PrivateRows(PRIVATE, LABELS, PEOPLE), PUBLIC, entities=8).verdict == "fail"


def of_people(**settings):
    given = {"classes": [0, 1], "random_state": 0, "noise": SimulationNoise(0), "epsilon": 3.0, **settings}
    return PATEClassifier(NearestQueries(4), **given)


@pytest.mark.parametrize("ids", [None, PEOPLE])
@pytest.mark.parametrize("settings", [{}, {"n_queries": 60, "rounds": 3, "selection": "least-confident"}])
def test_one_person_moves_no_more_votes_than_the_cap(ids, settings):
    found = check_votes(of_people(**settings), PrivateRows(PRIVATE, LABELS, ids), PUBLIC, entities=3)
    assert found.verdict == "pass"
    assert found.private
    assert "up to 2.000 times the cap" in found.reason  # a changed label moves every vote


def centered_on_all(self, X, y, shards, **settings):
    return FIT(self, X - 20 * X.mean(axis=0), y, shards, **settings)


def above_the_cap(self, X, y, shards, **settings):
    return FIT(NearestQueries(3 * self.cap), X, y, shards, **settings)


def twice_as_teachers(self, X, y, shards, **settings):
    """Make one teacher of each row, whoever it belongs to."""
    return FIT(self, X, y, Shards(np.arange(len(X)), len(X), shards.unit), **settings)


FIT = NearestQueries.fit


@pytest.mark.parametrize("fault", [centered_on_all, twice_as_teachers])
def test_a_planted_fault_of_votes_is_found(fault, monkeypatch):
    monkeypatch.setattr(NearestQueries, "fit", fault)
    assert check_votes(of_people(), PrivateRows(PRIVATE, LABELS, PEOPLE), PUBLIC, entities=8).verdict == "fail"


def test_votes_above_the_cap_of_a_batch_are_cut_off_by_the_ledger(monkeypatch):
    monkeypatch.setattr(NearestQueries, "fit", above_the_cap)
    assert check_votes(of_people(), PrivateRows(PRIVATE, LABELS, PEOPLE), PUBLIC, entities=3).verdict == "pass"


def test_the_mechanism_on_a_few_rows_is_that_of_all():
    found: Any = tried_on_few(of_people(n_queries=90, rounds=2), PrivateRows(PRIVATE[:50], LABELS[:50]), PUBLIC[:70])
    whole = of_people(n_queries=90, rounds=2).fit(PRIVATE, LABELS, X_public=PUBLIC)
    assert found.mechanism_ == whole.mechanism_
    assert isinstance(whole.mechanism_, CappedGNMax)
