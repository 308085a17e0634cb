"""Local mechanisms: their channels in exact numbers, their samplers against the channels, and what they refuse.

Samplers are tested by χ². Seeded ones cannot fail by chance; the real ones are rejected, when right, with probability
1e-9 (`ALPHA`).
"""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp
from scipy import stats

from exact import discrete_gaussian_masses
from tutelage.accounting.data_independent import pure_epsilon
from tutelage.events import CERTAIN
from tutelage.exceptions import AsPrintedWarning, InvalidBallotError, InvalidParameterError
from tutelage.noise import SimulationNoise, SystemNoise, keep_chance
from tutelage.privacy import ONE_ENTITY
from tutelage_consortium import local
from tutelage_consortium.local import (
    KRandomizedResponse,
    LocalGaussian,
    TruncatedGeometric,
    TruncatedGeometricAsPrinted,
)

ALPHA, DRAWS = 1e-9, 10_000
SOURCES = [
    pytest.param(SystemNoise(), id="system"),
    pytest.param(SimulationNoise(seed=11), id="simulation"),
]
alphas = st.fractions(Fraction(1, 100), Fraction(99, 100), max_denominator=200)
class_numbers = st.integers(2, 9)


def as_printed(epsilon: float) -> TruncatedGeometricAsPrinted:
    with pytest.warns(AsPrintedWarning, match="a number that is not a class"):
        return TruncatedGeometricAsPrinted(epsilon)


MAKERS = pytest.mark.parametrize(
    "make", [KRandomizedResponse, TruncatedGeometric, as_printed], ids=["k-rr", "tg", "printed"]
)


def largest_ratio(channel: list[list[Fraction]]) -> Fraction:
    return max(
        one / other for column in zip(*channel, strict=True) for one in column for other in column
    )


def p_value(responses: np.ndarray, law: np.ndarray) -> float:
    observed = np.bincount(responses, minlength=len(law))
    return float(stats.chisquare(observed, law * len(responses)).pvalue)


@given(st.fractions(Fraction(1, 100), Fraction(99, 100), max_denominator=500), class_numbers)
def test_randomized_response_adds_up_to_one_and_its_largest_ratio_is_the_odds_of_keeping(
    keep, classes
):
    channel = local.randomized_response(keep, classes)
    assert all(sum(row) == 1 for row in channel)
    odds = keep * (classes - 1) / (1 - keep)
    assert largest_ratio(channel) == max(odds, 1 / odds)


@given(alphas, class_numbers)
def test_the_truncated_geometric_adds_up_to_one_and_its_largest_ratio_is_that_of_the_ends(
    alpha, classes
):
    channel = local.truncated_geometric(alpha, classes)
    assert {sum(row) for row in channel} == {1}
    assert largest_ratio(channel) == channel[0][0] / channel[-1][0] == alpha ** (1 - classes)


@given(alphas, class_numbers)
def test_equation_2_as_printed_adds_up_to_one_with_a_report_that_is_no_class_and_loses_less(
    alpha, classes
):
    channel = local.truncated_geometric(alpha, classes, 1)
    # E^(ε(M−1)/M) where e^ε is claimed.
    assert largest_ratio(channel) == alpha ** (1 - classes) < alpha**-classes
    inside = (1 / alpha - 1) / (1 / alpha + 1)
    for own, row in enumerate(channel, start=1):  # the paper's four cases, its classes 1, …, M
        ends = alpha**own / (1 + alpha), alpha ** (classes - own) / (1 + alpha)
        assert [row[-1], *row[:-1]] == [
            ends[0],
            *(inside * alpha ** abs(k - own) for k in range(1, classes)),
            ends[1],
        ]
        assert sum(row) == 1


@pytest.mark.parametrize(("classes", "epsilon"), [(2, 0.1), (3, 4.0), (100, 1.0)])
def test_channels_in_floating_point_have_the_loss_that_is_claimed(epsilon, classes):
    for mechanism in (
        KRandomizedResponse(epsilon),
        TruncatedGeometric(epsilon),
        as_printed(epsilon),
    ):
        channel = mechanism.channel(classes)
        assert channel.sum(axis=1) == pytest.approx(np.ones(classes), abs=1e-12)
        found = np.log(channel.max(axis=0) / channel.min(axis=0)).max()
        claimed = pure_epsilon(mechanism.event_of_one(classes, ONE_ENTITY, simulated=True))  # type: ignore[arg-type]
        assert found == pytest.approx(claimed, rel=1e-9)
    assert claimed == pytest.approx(epsilon * (classes - 1) / classes)  # as printed


@given(st.floats(1e-6, 100), st.integers(2, 2**32))
def test_the_chance_to_keep_a_class_never_spends_more_than_epsilon(epsilon, classes):
    chance = keep_chance(epsilon, classes)
    with mp.workdps(80):
        spent = mp.log(mp.mpf(chance) * (classes - 1) / (CERTAIN - chance))
        assert 0 < spent <= mp.mpf(epsilon)
        one_more = mp.mpf(chance + 1) * (classes - 1)
        assert chance == CERTAIN - 1 or mp.log(one_more / (CERTAIN - chance - 1)) > mp.mpf(epsilon)


@given(st.floats(1e-3, 50), class_numbers)
def test_noise_on_a_class_is_never_less_than_epsilon_allows(epsilon, classes):
    for mechanism, distance in (
        (TruncatedGeometric(epsilon), classes - 1),
        (as_printed(epsilon), classes),
    ):
        scale = mechanism.event_of_one(classes, ONE_ENTITY, simulated=True).as_dict()["scale"]
        assert Fraction(distance) / Fraction(scale) <= Fraction(epsilon)
        assert scale == pytest.approx(distance / epsilon, rel=1e-15)


@pytest.mark.parametrize("source", SOURCES)
@MAKERS
def test_responses_have_the_law_of_the_channel_and_of_no_other_epsilon(source, make):
    drawn = make(2.0).perturb(np.repeat([[0], [2]], DRAWS, axis=1), 5, source)
    for own, responses in zip((0, 2), drawn, strict=True):
        assert p_value(responses, make(2.0).channel(5)[own]) > ALPHA
        assert p_value(responses, make(1.4).channel(5)[own]) < ALPHA
        assert p_value(responses, make(2.6).channel(5)[own]) < ALPHA


@pytest.mark.parametrize("source", SOURCES)
def test_a_vector_response_is_the_vote_plus_noise_in_every_class(source):
    drawn = LocalGaussian(1.5).perturb(np.full((1, DRAWS), 2), 3, source)[0]
    masses = discrete_gaussian_masses(1.5, 20)
    law = np.concatenate(
        [masses[:17].sum(keepdims=True), masses[17:24], masses[24:].sum(keepdims=True)]
    )
    for noise in (drawn - [0, 0, 1]).T:
        assert p_value(np.clip(noise, -4, 4) + 4, law) > ALPHA
        assert p_value(np.clip(noise, -4, 3) + 5, law) < ALPHA


@pytest.mark.parametrize("source", SOURCES)
def test_responses_to_different_queries_are_independent(source):
    drawn = KRandomizedResponse(1.0).perturb(np.zeros((2, DRAWS), dtype=int), 2, source)
    for one, other in ((drawn[0], drawn[1]), (drawn[0, 1:], drawn[0, :-1])):
        assert abs(np.corrcoef(one, other)[0, 1]) < stats.norm.isf(ALPHA / 2) / np.sqrt(DRAWS - 1)


def test_many_classes_are_drawn_from_alike():
    drawn = SystemNoise().randomized_response(np.zeros(30_000, dtype=int), 2**20, 1e-6)
    assert drawn.min() >= 0
    assert drawn.max() < 2**20
    assert p_value(drawn >> 17, np.full(8, 1 / 8)) > ALPHA


@MAKERS
def test_an_entity_that_does_not_take_part_draws_nothing(make):
    ballots = np.array([[0, -1, 2], [-1, -1, 1]])
    reports = make(1.0).perturb(ballots, 3, SimulationNoise(0))
    assert np.array_equal(reports == -1, ballots == -1)
    alone = make(1.0).perturb(ballots[ballots >= 0][None, :], 3, SimulationNoise(0))
    assert np.array_equal(reports[ballots >= 0], alone[0])


MECHANISMS = [KRandomizedResponse(1.0), TruncatedGeometric(1.0), LocalGaussian(1.0)]


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda it: type(it).__name__)
def test_what_is_no_ballot_is_refused_without_being_quoted(mechanism):
    for ballots in ([[5]], [[-2]], [[0.0]], [0, 1], [["a"]], [[2**63 - 1]]):
        with pytest.raises(InvalidBallotError) as refused:
            mechanism.perturb(np.array(ballots), 5, SimulationNoise(0))
        assert "9223372036854775807" not in str(refused.value)


def test_the_widest_and_the_narrowest_epsilon_are_drawn():
    ballots = np.full((1, 500), 3)
    # Else: 1e-15.
    assert np.array_equal(KRandomizedResponse(100).perturb(ballots, 7, SystemNoise()), ballots)
    # Else: 1e-11.
    assert np.array_equal(TruncatedGeometric(100).perturb(ballots, 4, SystemNoise()), ballots)
    for mechanism in (KRandomizedResponse(1e-6), TruncatedGeometric(1e-6)):
        reports = mechanism.perturb(ballots, 7, SystemNoise())
        assert reports.min() >= 0
        assert reports.max() < 7


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda it: type(it).__name__)
def test_seeded_responses_are_marked_and_of_two_classes_at_least(mechanism):
    for simulated in (False, True):
        assert mechanism.event_of_one(3, ONE_ENTITY, simulated=simulated).is_simulated == simulated
    for classes in (1, 2.0):
        with pytest.raises(InvalidParameterError, match="classes"):
            mechanism.event_of_one(classes, ONE_ENTITY, simulated=False)
        with pytest.raises(InvalidParameterError, match="n_classes"):
            mechanism.perturb(np.zeros((1, 1), dtype=int), classes, SimulationNoise(0))
