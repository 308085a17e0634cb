"""Decoders of local reports: what they converge to, where plurality cannot, and what they refuse."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize

from test_local_mechanisms import as_printed
from tutelage.exceptions import InvalidBallotError, InvalidParameterError
from tutelage.mechanisms import (
    ClassResponse,
    Decoder,
    KRandomizedResponse,
    LocalGaussian,
    TruncatedGeometric,
    decode,
    local,
)
from tutelage.mechanisms.local import count_reports, invert_channel, maximize_likelihood, plurality_threshold
from tutelage.noise import SimulationNoise

alphas = st.fractions(Fraction(1, 50), Fraction(49, 50), max_denominator=100)


def exact(rows: list[list[Fraction]]) -> np.ndarray:
    return np.array(rows, dtype=object)


def elected(shares: np.ndarray, channel: np.ndarray) -> int:
    """Return the class that many reports of votes with these shares elect, ties to the lowest."""
    return int(np.argmax((shares @ channel)[: len(channel)]))


@given(alphas, st.integers(3, 7))
def test_plurality_of_the_truncated_geometric_loses_unanimous_votes_from_alpha_one_half_on(alpha, classes):
    channel = exact(local.truncated_geometric(alpha, classes))
    wrong = [own for own in range(classes) if elected(np.eye(classes, dtype=int)[own], channel) != own]
    # ε ≤ (M − 1) ln 2: classes beside the ends lose to them. At α = 1/2 both are ties, and the lower class wins.
    beside = {1, classes - 2} if alpha > Fraction(1, 2) else {1} if alpha == Fraction(1, 2) else set()
    assert beside <= set(wrong)
    assert bool(beside) == bool(wrong)
    assert (plurality_threshold(channel) >= 1) == (alpha >= Fraction(1, 2))


@given(alphas, st.integers(2, 7))
def test_plurality_of_the_printed_equation_loses_unanimous_votes_above_alpha_one_half(alpha, classes):
    channel = exact(local.truncated_geometric(alpha, classes, 1))
    wrong = [own for own in range(classes) if elected(np.eye(classes, dtype=int)[own], channel) != own]
    # ε < M ln 2. Class M has the upper end to itself; report 0, the lower one, is no class and is not counted.
    assert (classes - 2 in wrong) == bool(wrong) == (alpha > Fraction(1, 2))
    assert (plurality_threshold(channel) >= 1) == (alpha >= Fraction(1, 2))


@given(alphas.filter(lambda alpha: alpha < Fraction(1, 2)), st.integers(3, 6))
def test_above_that_epsilon_plurality_still_needs_more_than_a_majority(alpha, classes):
    channel = exact(local.truncated_geometric(alpha, classes))
    threshold = plurality_threshold(channel)
    assert threshold == (1 - alpha + alpha**2) / ((1 - alpha) * (2 - alpha))
    assert threshold > Fraction(1, 2)
    step = Fraction(1, 10**6)
    shares = np.array([1 - threshold, threshold, *[0] * (classes - 2)], dtype=object)
    assert elected(shares + np.array([step, -step, *[0] * (classes - 2)], dtype=object), channel) == 0
    for winner, other in product(range(classes), repeat=2):
        if winner != other:
            shares = np.zeros(classes, dtype=object)
            shares[winner], shares[other] = threshold + step, 1 - threshold - step
            assert elected(shares, channel) == winner


@given(st.fractions(Fraction(1, 5), Fraction(99, 100), max_denominator=100), st.integers(2, 5))
def test_plurality_of_randomised_response_elects_whoever_has_most_votes(keep, classes):
    channel = exact(local.randomized_response(keep, classes))
    if keep > Fraction(1, classes):
        assert plurality_threshold(channel) == Fraction(1, 2)
        shares = np.arange(classes) * Fraction(1, classes)
        assert elected(shares, channel) == classes - 1
    else:
        assert plurality_threshold(channel) == 1


@pytest.mark.parametrize("mechanism", [TruncatedGeometric(6.2), as_printed(6.9)])
def test_plurality_that_would_elect_a_wrong_class_is_refused_with_the_fix(mechanism):
    reports = mechanism.perturb(np.full((4, 3), 1), 10, SimulationNoise(0))
    with pytest.raises(InvalidParameterError, match=r"Take 'likelihood' or 'inverse', or KRandomizedResponse"):
        decode(reports, mechanism, 10, "plurality")


CASES = [KRandomizedResponse(1.0), TruncatedGeometric(3.0), as_printed(3.0)]


@pytest.mark.parametrize("mechanism", CASES, ids=lambda it: type(it).__name__)
def test_inverse_and_likelihood_find_the_votes_of_many_entities(mechanism):
    votes = np.array([100, 400, 200, 50, 250])
    ballots = np.repeat(np.arange(5), votes * 400)[:, None]
    counts = count_reports(mechanism.perturb(ballots, 5, SimulationNoise(2)), mechanism.channel(5).shape[1])
    assert counts.sum() == len(ballots)
    assert invert_channel(counts, mechanism.channel(5))[0] / 400 == pytest.approx(votes, abs=25)
    assert maximize_likelihood(counts, mechanism.channel(5))[0] * 1000 == pytest.approx(votes, abs=25)
    for decoder in ("inverse", "likelihood", None):
        assert decode(mechanism.perturb(ballots, 5, SimulationNoise(3)), mechanism, 5, decoder).tolist() == [1]


@pytest.mark.parametrize("mechanism", CASES, ids=lambda it: type(it).__name__)
def test_the_inverse_is_unbiased_in_exact_numbers(mechanism):
    channel = mechanism.channel(4)
    votes = np.array([[7, 0, 2, 5], [0, 0, 0, 3]])
    assert invert_channel(votes @ channel, channel) == pytest.approx(votes, abs=1e-9)


@pytest.mark.parametrize("mechanism", CASES, ids=lambda it: type(it).__name__)
def test_the_likelihood_is_the_largest_on_the_simplex(mechanism):
    channel = mechanism.channel(3)
    counts = np.random.default_rng(4).integers(0, 40, size=(5, channel.shape[1]))
    found = maximize_likelihood(counts, channel)
    assert found.sum(axis=1) == pytest.approx(np.ones(5))

    def loss(free: np.ndarray, row: np.ndarray) -> float:
        shares = np.exp([*free, 0.0]) / np.exp([*free, 0.0]).sum()
        return -float(row @ np.log(shares @ channel))

    for row, shares in zip(counts, found, strict=True):
        best = min(optimize.minimize(loss, start, args=(row,)).fun for start in ([0.0, 0.0], [2.0, -2.0]))
        assert -float(row @ np.log(shares @ channel)) <= best + 1e-4


def test_a_planted_wrong_channel_decodes_to_the_wrong_class():
    mechanism = TruncatedGeometric(2.0)  # below 4 ln 2
    ballots = np.ones((40_000, 1), dtype=int)
    counts = count_reports(mechanism.perturb(ballots, 5, SimulationNoise(7)), 5)
    assert invert_channel(counts, mechanism.channel(5)).argmax() == 1
    assert invert_channel(counts, np.eye(5)).argmax() != 1  # plurality
    assert invert_channel(counts, mechanism.channel(5)[::-1]).argmax() != 1


@pytest.mark.parametrize("mechanism", [*CASES, LocalGaussian(0.5)], ids=lambda it: type(it).__name__)
def test_only_those_who_took_part_are_counted(mechanism):
    ballots = np.full((3_000, 4), 2)
    ballots[100:, 1] = -1
    ballots[:, 2] = -1
    ballots[::2, 3] = -1
    reports = mechanism.perturb(ballots, 4, SimulationNoise(8))
    assert decode(reports, mechanism, 4).tolist() == [2, 2, -1, 2]
    present = ballots[:, 1] >= 0
    assert np.array_equal(decode(reports[present][:, 1:2], mechanism, 4), decode(reports[:, 1:2], mechanism, 4))
    if isinstance(mechanism, ClassResponse):
        assert count_reports(reports, 5).sum(axis=1).tolist() == [3000, 100, 0, 1500]


def test_nobody_and_nothing_are_decoded_to_nothing():
    assert decode(np.zeros((0, 2), dtype=int), KRandomizedResponse(1.0), 3).tolist() == [-1, -1]
    for decoder in Decoder:
        assert decode(np.zeros((4, 0), dtype=int), KRandomizedResponse(1.0), 3, decoder).shape == (0,)
    assert decode(np.zeros((4, 0, 3), dtype=int), LocalGaussian(1.0), 3).shape == (0,)
    assert decode(np.zeros((0, 2, 3), dtype=int), LocalGaussian(1.0), 3).tolist() == [-1, -1]


@pytest.mark.parametrize(("mechanism", "reports"), [
    (KRandomizedResponse(1.0), np.array([[3]])),
    (KRandomizedResponse(1.0), np.array([[-2]])),
    (KRandomizedResponse(1.0), np.array([[0.5]])),
    (KRandomizedResponse(1.0), np.array([0, 1])),
    (TruncatedGeometric(1.0), np.array([[np.nan]])),
    (as_printed(1.0), np.array([[4]])),
    (LocalGaussian(1.0), np.array([[1, 2]])),
    (LocalGaussian(1.0), np.zeros((2, 2, 4), dtype=int)),
    (LocalGaussian(1.0), np.zeros((2, 2, 3))),
])  # fmt: skip
def test_reports_that_cannot_come_from_the_mechanism_are_refused(mechanism, reports):
    with pytest.raises(InvalidBallotError):
        decode(reports, mechanism, 3)


def test_decoders_that_are_none_are_refused():
    with pytest.raises(InvalidParameterError, match="must be one of plurality, inverse, likelihood"):
        decode(np.zeros((1, 1), dtype=int), KRandomizedResponse(1.0), 3, "majority")
    with pytest.raises(InvalidParameterError, match="it has no channel"):
        decode(np.zeros((1, 1, 3), dtype=int), LocalGaussian(1.0), 3, Decoder.INVERSE)
    with pytest.raises(InvalidParameterError, match="n_classes"):
        decode(np.zeros((1, 1), dtype=int), KRandomizedResponse(1.0), 1)
