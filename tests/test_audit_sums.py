"""The audit of sums of ballots: what is as it should be passes, and planted faults are found."""

from typing import Any

import numpy as np
import pytest

from tutelage import SimulationNoise
from tutelage.accounting.data_independent import epsilon_if_added_or_removed
from tutelage.audit import audit_sum
from tutelage.audit.fits import _check_claim_of_sum, _check_noise_of_sum
from tutelage.ballots import BallotSum
from tutelage.exceptions import InvalidParameterError
from tutelage.mechanisms import NoisySum

pytestmark = pytest.mark.rest


class Scaled:
    """Noise of so many times the parameter that it is asked for."""

    simulated = True

    def __init__(self, factor):
        self.factor, self.source = factor, SimulationNoise(0)

    def discrete_gaussian(self, sigma, shape):
        return self.source.discrete_gaussian(sigma * self.factor, shape)


@pytest.mark.parametrize(("factor", "verdict"), [(None, "pass"), (0.9, "fail"), (1.1, "fail")])
def test_the_noise_that_is_drawn_passes_and_noise_that_is_too_small_or_too_large_is_found(
    factor, verdict
):
    noise: Any = {} if factor is None else {"noise": Scaled(factor)}
    assert _check_noise_of_sum(draws=20_000, **noise).verdict == verdict


RELEASE: Any = NoisySum.release
CASES = [(NoisySum(1.5), (3, -4), 0.05), (NoisySum(3.0), (7,), 0.01)]


@pytest.mark.parametrize(("mechanism", "ballot", "delta"), CASES)
def test_what_a_sum_shows_comes_close_to_its_claim_and_half_its_noise_is_found(
    mechanism, ballot, delta, monkeypatch
):
    found = audit_sum(mechanism, ballot, delta=delta, draws=100_000, noise=SimulationNoise(0))
    assert 0.75 * found.claim < found.lower_bound <= found.claim
    monkeypatch.setattr(
        NoisySum, "release", lambda self, ballots, _: RELEASE(self, ballots, Scaled(0.5))
    )
    assert not audit_sum(
        mechanism, ballot, delta=delta, draws=20_000, noise=SimulationNoise(0)
    ).passed


def test_a_claim_for_ballots_that_are_only_added_is_too_small_for_replaced_ones():
    event = NoisySum(1.5).most(BallotSum(np.array([[3, -4]]), 25).form, simulated=True)
    claim = epsilon_if_added_or_removed(event, 0.05)
    assert not audit_sum(
        NoisySum(1.5), (3, -4), delta=0.05, claim=claim, noise=SimulationNoise(0)
    ).passed


def test_a_sum_with_little_noise_is_part_of_the_audit(monkeypatch):
    assert _check_claim_of_sum(draws=20_000).verdict == "pass"
    monkeypatch.setattr(
        NoisySum, "release", lambda self, ballots, _: RELEASE(self, ballots, Scaled(0.5))
    )
    assert _check_claim_of_sum(draws=20_000).verdict == "fail"


@pytest.mark.parametrize("ballot", [(0, 0), (0.5, 1.0)])
def test_a_ballot_that_shows_nothing_is_refused(ballot):
    with pytest.raises(
        InvalidParameterError, match="`ballot` of audit_sum must be a vector of whole numbers"
    ):
        audit_sum(NoisySum(1.5), ballot, delta=0.05, draws=100)
