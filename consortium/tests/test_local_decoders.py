"""Decoders of local reports: what they converge to, where plurality cannot, and what they refuse."""

from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from test_local_mechanisms import as_printed
from tutelage.exceptions import InvalidBallotError, InvalidParameterError
from tutelage.noise import SimulationNoise
from tutelage_consortium import local
from tutelage_consortium.local import (
    ClassResponse,
    Decoder,
    KRandomizedResponse,
    LocalGaussian,
    TruncatedGeometric,
    count_reports,
    decode,
    invert_channel,
    maximize_likelihood,
    plurality_threshold,
)

alphas = st.fractions(Fraction(1, 50), Fraction(49, 50), max_denominator=100)


def exact(rows: list[list[Fraction]]) -> np.ndarray:
    return np.array(rows, dtype=object)


def elected(shares: np.ndarray, channel: np.ndarray) -> int:
    """Return the class that many reports of votes with these shares elect, ties to the lowest."""
    return int(np.argmax((shares @ channel)[: len(channel)]))


@given(alphas, st.integers(3, 7), st.sampled_from([0, 1]))
def test_plurality_loses_unanimous_votes_from_alpha_one_half_on(alpha, classes, printed):
    channel = exact(local.truncated_geometric(alpha, classes, printed))
    wrong = [
        own for own in range(classes) if elected(np.eye(classes, dtype=int)[own], channel) != own
    ]
    # ε ≤ (M − 1) ln 2, or as printed M ln 2: classes beside the ends lose to them. At α = 1/2 both are ties, and the
    # lower class wins; as printed the lower end is no class.
    assert bool(wrong) == (alpha > Fraction(1, 2) or (alpha == Fraction(1, 2) and not printed))
    assert (classes - 2 in wrong) == (alpha > Fraction(1, 2))
    assert (plurality_threshold(channel) >= 1) == (alpha >= Fraction(1, 2))


@given(alphas.filter(lambda alpha: alpha < Fraction(1, 2)), st.integers(3, 6))
def test_above_that_epsilon_plurality_still_needs_more_than_a_majority(alpha, classes):
    channel = exact(local.truncated_geometric(alpha, classes))
    threshold, step = plurality_threshold(channel), Fraction(1, 10**6)
    assert threshold == (1 - alpha + alpha**2) / ((1 - alpha) * (2 - alpha)) > Fraction(1, 2)

    def shares(winner: int, other: int, of_winner: Fraction) -> np.ndarray:
        return np.array(
            [{winner: of_winner, other: 1 - of_winner}.get(own, 0) for own in range(classes)],
            dtype=object,
        )

    assert elected(shares(1, 0, threshold - step), channel) == 0
    for winner, other in permutations(range(classes), 2):
        assert elected(shares(winner, other, threshold + step), channel) == winner


@given(st.fractions(Fraction(1, 5), Fraction(99, 100), max_denominator=100), st.integers(2, 5))
def test_plurality_of_randomised_response_elects_whoever_has_most_votes(keep, classes):
    channel = exact(local.randomized_response(keep, classes))
    if keep > Fraction(1, classes):
        assert plurality_threshold(channel) == Fraction(1, 2)
        shares = np.arange(classes) * Fraction(1, classes)
        assert elected(shares, channel) == classes - 1
    else:
        assert plurality_threshold(channel) == 1


CASES = [KRandomizedResponse(1.0), TruncatedGeometric(3.0), as_printed(3.0)]
EACH = pytest.mark.parametrize("mechanism", CASES, ids=lambda it: type(it).__name__)


@EACH
def test_inverse_and_likelihood_find_the_votes_of_many_entities(mechanism):
    votes = np.array([100, 400, 200, 50, 250])
    ballots = np.repeat(np.arange(5), votes * 100)[:, None]
    reports, channel = mechanism.perturb(ballots, 5, SimulationNoise(2)), mechanism.channel(5)
    counts = count_reports(reports, channel.shape[1])
    assert counts.sum() == len(ballots)
    assert invert_channel(counts, channel)[0] / 100 == pytest.approx(votes, abs=50)
    assert maximize_likelihood(counts, channel)[0] * 1000 == pytest.approx(votes, abs=50)
    for decoder in ("inverse", "likelihood", None):
        assert decode(reports, mechanism, 5, decoder).tolist() == [1]


@EACH
def test_the_inverse_is_unbiased_in_exact_numbers(mechanism):
    channel = mechanism.channel(4)
    votes = np.array([[7, 0, 2, 5], [0, 0, 0, 3]])
    assert invert_channel(votes @ channel, channel) == pytest.approx(votes, abs=1e-9)


@EACH
def test_the_likelihood_is_the_largest_on_the_simplex(mechanism):
    channel = mechanism.channel(3)
    counts = np.random.default_rng(4).integers(0, 40, size=(5, channel.shape[1]))
    shares = np.random.default_rng(5).dirichlet(np.ones(3) / 2, size=5_000)
    found = maximize_likelihood(counts, channel)
    assert found.sum(axis=1) == pytest.approx(np.ones(5))
    best = (counts @ np.log(shares @ channel).T).max(axis=1)
    assert np.all((counts * np.log(found @ channel)).sum(axis=1) >= best - 1e-4)


@pytest.mark.parametrize(
    "mechanism", [*CASES, LocalGaussian(0.5)], ids=lambda it: type(it).__name__
)
def test_only_those_who_took_part_are_counted(mechanism):
    ballots = np.full((3_000, 3), 2)
    ballots[100:, 1] = -1
    ballots[:, 2] = -1
    reports = mechanism.perturb(ballots, 4, SimulationNoise(8))
    assert decode(reports, mechanism, 4).tolist() == [2, 2, -1]
    if isinstance(mechanism, ClassResponse):
        assert count_reports(reports, 5).sum(axis=1).tolist() == [3000, 100, 0]


def test_nobody_and_nothing_are_decoded_to_nothing():
    for mechanism, of_classes in ((KRandomizedResponse(1.0), ()), (LocalGaussian(1.0), (3,))):
        assert decode(np.zeros((0, 2, *of_classes), dtype=int), mechanism, 3).tolist() == [-1, -1]
        assert decode(np.zeros((4, 0, *of_classes), dtype=int), mechanism, 3).shape == (0,)


@pytest.mark.parametrize(("mechanism", "reports"), [
    (KRandomizedResponse(1.0), np.array([[3]])),
    (KRandomizedResponse(1.0), np.array([0, 1])),
    (TruncatedGeometric(1.0), np.array([[np.nan]])),
    (as_printed(1.0), np.array([[4]])),
    (LocalGaussian(1.0), np.zeros((2, 2, 4), dtype=int)),
])  # fmt: skip
def test_reports_that_cannot_come_from_the_mechanism_are_refused(mechanism, reports):
    with pytest.raises(InvalidBallotError):
        decode(reports, mechanism, 3)


@pytest.mark.parametrize(("mechanism", "decoder", "reports", "message"), [
    (KRandomizedResponse(1.0), "majority", [[0]], "must be one of plurality, inverse"),
    (LocalGaussian(1.0), Decoder.INVERSE, [[[0] * 7]], "LocalGaussian, which has no channel"),
    # Of 7.
    (TruncatedGeometric(4.1), "plurality", [[1]], "Use 'likelihood' or 'inverse', or use KRandomizedResponse"),
    (as_printed(4.8), "plurality", [[1]], "Use 'likelihood' or 'inverse', or use KRandomizedResponse"),
])  # fmt: skip
def test_decoders_that_do_not_suit_the_mechanism_are_refused(mechanism, decoder, reports, message):
    with pytest.raises(InvalidParameterError, match=message):
        decode(np.array(reports), mechanism, 7, decoder)


def _of_two_epsilons(mechanism, accuracy=0.8, classes=10, queries=1_000):
    """Return true classes and reports of 30 entities at ε = 2 and 270 at 0.2, with votes that are often right."""
    rng = np.random.default_rng(11)
    truth = rng.integers(classes, size=queries)
    other = (truth + rng.integers(1, classes, size=(300, queries))) % classes
    votes = np.where(rng.random((300, queries)) < accuracy, truth, other)
    each = [mechanism(2.0)] * 30 + [mechanism(0.2)] * 270
    noise = SimulationNoise(12)
    parts = [
        each[0].perturb(votes[:30], classes, noise),
        each[-1].perturb(votes[30:], classes, noise),
    ]
    return truth, np.concatenate(parts), each


def test_reports_at_a_larger_epsilon_count_more():
    truth, reports, each = _of_two_epsilons(KRandomizedResponse)
    # Standard errors of a thousand queries: 1.3 and .4 points; the limits are more than six of them away.
    alike = np.mean(decode(reports, each[0], 10) == truth)
    weighted = np.mean(decode(reports, each, 10) == truth)
    assert alike < 0.86 < 0.95 < weighted
    # The order of entities does not matter, and one mechanism repeated is that mechanism.
    order = np.random.default_rng(13).permutation(300)
    shuffled = decode(reports[order], [each[place] for place in order], 10)
    assert np.mean(shuffled == decode(reports, each, 10)) == 1
    alone = decode(reports, [each[0]] * 300, 10)
    assert np.array_equal(alone, decode(reports, each[0], 10))
    few = np.where(np.arange(300)[:, None] < 30, -1, reports)
    assert np.array_equal(decode(few, each, 10), decode(reports[30:], each[-1], 10))


def test_all_decoders_weigh_the_reports():
    truth, reports, each = _of_two_epsilons(KRandomizedResponse, queries=300)
    plurality, inverse, likelihood = (decode(reports, each, 10, by) for by in Decoder)
    assert np.mean(plurality == inverse) == 1
    assert np.mean(likelihood == truth) > 0.95


def test_vectors_with_less_noise_count_more():
    def mechanism(epsilon):
        return LocalGaussian(4 / epsilon**2)  # σ = 1 and 100

    truth, reports, each = _of_two_epsilons(mechanism)
    alike = np.mean(decode(reports, each[0], 10) == truth)
    assert np.mean(decode(reports, each, 10) == truth) > alike + 0.5
    assert local.weight_of_report(LocalGaussian(1.0), 2) == pytest.approx(1 / 1.25)


def test_the_likelihood_of_several_channels_is_the_largest_on_the_simplex():
    kinds = [TruncatedGeometric(3.0), as_printed(4.0), KRandomizedResponse(0.5)]
    channel = np.hstack([kind.channel(3) for kind in kinds])
    counts = np.random.default_rng(4).integers(0, 40, size=(5, channel.shape[1]))
    shares = np.random.default_rng(5).dirichlet(np.ones(3) / 2, size=5_000)
    found = maximize_likelihood(counts, channel)
    assert found.sum(axis=1) == pytest.approx(np.ones(5))
    best = (counts @ np.log(shares @ channel).T).max(axis=1)
    assert np.all((counts * np.log(found @ channel)).sum(axis=1) >= best - 1e-4)


@EACH
def test_the_weight_is_the_variance_of_the_estimate_of_one_vote(mechanism):
    channel = mechanism.channel(4)
    reports = np.eye(channel.shape[1], dtype=int)
    estimates = invert_channel(reports, channel)
    chances = channel.mean(axis=0)
    variances = chances @ (estimates - chances @ estimates) ** 2
    assert 1 / local.weight_of_report(mechanism, 4) == pytest.approx(variances.mean())
    # So the mean, by these weights, of estimates of equally many entities has the least variance.
    other = local.weight_of_report(KRandomizedResponse(0.3), 4)
    own = local.weight_of_report(mechanism, 4)
    for share in np.linspace(0, 1, 21):
        assert share**2 / own + (1 - share) ** 2 / other >= 1 / (own + other) - 1e-12


@pytest.mark.parametrize(("mechanism", "decoder", "message"), [
    ([KRandomizedResponse(1.0)], None, "as many as `reports` has rows. Got 1 for"),
    ([], None, "as many as `reports` has rows"),
    ([KRandomizedResponse(1.0), LocalGaussian(1.0)], None, "a class in all entities, or a vector"),
    ([KRandomizedResponse(1.0), TruncatedGeometric(9.0)], "plurality", "not be 'plurality' for several"),
])  # fmt: skip
def test_mechanisms_that_do_not_go_together_are_refused(mechanism, decoder, message):
    with pytest.raises(InvalidParameterError, match=message):
        decode(np.zeros((2, 1), dtype=int), mechanism, 3, decoder)
