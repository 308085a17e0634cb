"""The audit of sums of ballots: what is as it should be passes, and planted faults are found."""

from typing import Any

import numpy as np
import pytest

from tutelage import PATEClassifier, Shards, SimulationNoise
from tutelage.accounting.data_independent import epsilon_if_added_or_removed
from tutelage.audit import audit_sum
from tutelage.audit.checklist import PrivateRows
from tutelage.audit.sums import check_ballots, check_claim_of_sum, check_noise_of_sum, check_votes, tried_on_few
from tutelage.ballots import BallotSum
from tutelage.exceptions import InvalidParameterError
from tutelage.mechanisms import CappedGNMax, NoisySum
from tutelage.teachers import NearestQueries, VectorBallots

pytestmark = pytest.mark.rest

rng = np.random.default_rng(0)
LABELS = rng.integers(0, 2, 200)
PRIVATE = rng.normal(size=(200, 3)) + LABELS[:, None]
PUBLIC = rng.normal(size=(100, 3)) + rng.integers(0, 2, (100, 1))
PEOPLE = np.repeat(np.arange(100), 2)
OF_PEOPLE = PrivateRows(PRIVATE, LABELS, PEOPLE)


class Scaled:
    """Noise of so many times the parameter that it is asked for."""

    simulated = True

    def __init__(self, factor):
        self.factor, self.source = factor, SimulationNoise(0)

    def discrete_gaussian(self, sigma, shape):
        return self.source.discrete_gaussian(sigma * self.factor, shape)


@pytest.mark.parametrize(("factor", "verdict"), [(None, "pass"), (0.9, "fail"), (1.1, "fail")])
def test_the_noise_that_is_drawn_passes_and_noise_that_is_too_small_or_too_large_is_found(factor, verdict):
    noise: Any = {} if factor is None else {"noise": Scaled(factor)}
    assert check_noise_of_sum(draws=20_000, **noise).verdict == verdict


RELEASE: Any = NoisySum.release
CASES = [(NoisySum(1.5), (3, -4), 0.05), (NoisySum(3.0), (7,), 0.01)]


@pytest.mark.parametrize(("mechanism", "ballot", "delta"), CASES)
def test_what_a_sum_shows_comes_close_to_its_claim_and_half_its_noise_is_found(mechanism, ballot, delta, monkeypatch):
    found = audit_sum(mechanism, ballot, delta=delta, draws=100_000, noise=SimulationNoise(0))
    assert 0.75 * found.claim < found.lower_bound <= found.claim
    monkeypatch.setattr(NoisySum, "release", lambda self, ballots, _: RELEASE(self, ballots, Scaled(0.5)))
    assert not audit_sum(mechanism, ballot, delta=delta, draws=20_000, noise=SimulationNoise(0)).passed


def test_a_claim_for_ballots_that_are_only_added_is_too_small_for_replaced_ones():
    event = NoisySum(1.5).event(BallotSum(np.array([[3, -4]]), 25), simulated=True)
    claim = epsilon_if_added_or_removed(event, 0.05)
    assert not audit_sum(NoisySum(1.5), (3, -4), delta=0.05, claim=claim, noise=SimulationNoise(0)).passed


def test_a_sum_with_little_noise_is_part_of_the_audit(monkeypatch):
    assert check_claim_of_sum(draws=20_000).verdict == "pass"
    monkeypatch.setattr(NoisySum, "release", lambda self, ballots, _: RELEASE(self, ballots, Scaled(0.5)))
    assert check_claim_of_sum(draws=20_000).verdict == "fail"


@pytest.mark.parametrize("ballot", [(), (0, 0), (0.5, 1.0), ((1, 2), (3, 4))])
def test_a_ballot_that_shows_nothing_is_refused(ballot):
    with pytest.raises(InvalidParameterError, match="`ballot` of audit_sum must be whole numbers"):
        audit_sum(NoisySum(1.5), ballot, delta=0.05, draws=100)


def of(teacher, **settings):
    given = {"classes": [0, 1], "random_state": 0, "noise": SimulationNoise(0), "epsilon": 3.0, **settings}
    return PATEClassifier(teacher, **given)


@pytest.mark.parametrize("ids", [None, PEOPLE])
def test_one_person_casts_one_ballot(ids):
    found = check_ballots(of(VectorBallots()), PrivateRows(PRIVATE, LABELS, ids), PUBLIC, entities=3)
    assert found.verdict == "pass"
    assert found.private
    assert found.reason.startswith("In 2 rounds one person moved the sum by up to ")


def centered(self, blocks, products_of, radius, unit):
    """Cast ballots from which the mean of all private rows was taken first."""
    blocks = list(blocks)
    mean = np.concatenate([products_of(block)[0] for block in blocks]).mean(axis=0)

    def centered_products(block):
        vectors, residuals = products_of(block)
        return vectors - 20 * mean, residuals

    return CAST(self, blocks, centered_products, radius, unit)


def above_its_cap_at_last(self, blocks, products_of, radius, unit):
    """Cast ballots that are too long once there is a student, whose residuals are no fractions of the classes."""
    blocks = list(blocks)
    honest = CAST(self, blocks, products_of, radius, unit)
    residuals = np.concatenate([products_of(block)[1] for block in blocks])
    first = len(np.unique(np.round(residuals, 9))) <= residuals.shape[1]
    return honest if first else BallotSum(3 * honest.totals, honest.norm_squared, honest.unit)


CAST = VectorBallots.cast


@pytest.mark.parametrize("fault", [above_its_cap_at_last, centered])
def test_a_planted_fault_is_found(fault, monkeypatch):
    monkeypatch.setattr(VectorBallots, "cast", fault)
    assert check_ballots(of(VectorBallots()), OF_PEOPLE, PUBLIC, entities=8).verdict == "fail"


@pytest.mark.parametrize("ids", [None, PEOPLE])
@pytest.mark.parametrize("settings", [{}, {"n_queries": 60, "rounds": 3, "selection": "least-confident"}])
def test_one_person_moves_no_more_votes_than_the_cap(ids, settings):
    found = check_votes(of(NearestQueries(4), **settings), PrivateRows(PRIVATE, LABELS, ids), PUBLIC, entities=3)
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
    assert check_votes(of(NearestQueries(4)), OF_PEOPLE, PUBLIC, entities=8).verdict == "fail"


def test_votes_above_the_cap_of_a_batch_are_cut_off_by_the_ledger(monkeypatch):
    monkeypatch.setattr(NearestQueries, "fit", above_the_cap)
    assert check_votes(of(NearestQueries(4)), OF_PEOPLE, PUBLIC, entities=3).verdict == "pass"


def test_the_mechanism_on_a_few_rows_is_that_of_all():
    few, settings = PrivateRows(PRIVATE[:50], LABELS[:50]), {"n_queries": 90, "rounds": 2}
    found: Any = tried_on_few(of(NearestQueries(4), **settings), few, PUBLIC[:70])
    whole = of(NearestQueries(4), **settings).fit(PRIVATE, LABELS, X_public=PUBLIC)
    assert found.mechanism_ == whole.mechanism_
    assert isinstance(whole.mechanism_, CappedGNMax)
