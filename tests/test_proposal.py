"""Propose, test, release: the claim enumerated on both of every two neighboring worlds, and faults that break it."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exact import hockey_stick
from tutelage.accounting import Accountant, data_independent
from tutelage.ballots import VoteHistogram
from tutelage.events import (
    CERTAIN,
    Composed,
    ExponentialArgmax,
    NoisyArgmaxLaplace,
    PublicationTest,
    Repeated,
)
from tutelage.exceptions import (
    InvalidDataError,
    InvalidParameterError,
    NothingToGainError,
    UnsupportedEventError,
)
from tutelage.privacy import ONE_TEACHER
from tutelage.publishing.cost_envelope import reach, reach_of
from tutelage.publishing.proposal import PASSING, REFUSED, TAIL, Proposal, best_chances, propose
from tutelage.testing.laws import label_law

TEACHERS, QUERIES, DELTA = 24, 2, 0.02
EVENT = NoisyArgmaxLaplace(1.6, 2, ONE_TEACHER)
HISTOGRAMS = [(votes, TEACHERS - votes) for votes in range(TEACHERS + 1)]


@pytest.fixture(scope="module")
def laws() -> dict[tuple[int, int], np.ndarray]:
    return {row: label_law(EVENT, np.array(row))[:2] for row in HISTOGRAMS}


@pytest.fixture(scope="module")
def reaches() -> dict[tuple[int, int], np.ndarray]:
    return {
        row: reach(EVENT, VoteHistogram(np.array([row]), TEACHERS), 4.0, TEACHERS)
        for row in HISTOGRAMS
    }


@pytest.fixture(scope="module")
def proposal(reaches) -> Proposal:
    """Return what two unanimous queries bear."""
    caps = 1.5 * QUERIES * reaches[TEACHERS, 0]
    epsilon, chances = best_chances(caps, 4.0, DELTA, 0.05)
    assert np.isfinite(epsilon)
    kept = tuple(caps[: len(chances) - 1].tolist())
    return Proposal(delta=DELTA, order=4.0, caps=kept, chances=tuple(chances), unit=ONE_TEACHER)


def worlds():
    """Yield every pair of neighboring data sets: any two queries, each moved by at most one ballot."""
    for here in itertools.product(range(TEACHERS + 1), repeat=QUERIES):
        for moves in itertools.product((-1, 0, 1), repeat=QUERIES):
            there = tuple(votes + move for votes, move in zip(here, moves, strict=True))
            if here <= there and min(there) >= 0 and max(there) <= TEACHERS:
                yield (
                    tuple(HISTOGRAMS[votes] for votes in here),
                    tuple(HISTOGRAMS[votes] for votes in there),
                )


def outcomes(world, laws, passes) -> np.ndarray:
    """Return the probabilities of both labels and the test's bit, shape (labels…, bit); last index 0 is a pass."""
    labels = np.multiply.outer(laws[world[0]], laws[world[1]])
    return np.stack([labels * passes, labels * (1 - passes)], axis=-1)


def chance(proposal: Proposal, world, reaches) -> float:
    shortfall = proposal.shortfall(np.sum([reaches[row] for row in world], axis=0))
    return proposal.chances[min(shortfall, len(proposal.caps))] / CERTAIN


def worst_of_passing(proposal: Proposal, laws, reaches) -> float:
    """Return the largest δ that the claimed ε needs over all pairs of worlds where the test passes."""
    worst = 0.0
    for pair in worlds():
        here, there = (
            outcomes(world, laws, chance(proposal, world, reaches))[..., 0] for world in pair
        )
        worst = max(
            worst,
            *(hockey_stick(p, q, proposal.epsilon) for p, q in ((here, there), (there, here))),
        )
    return worst


def test_what_is_claimed_after_a_pass_holds_in_every_two_worlds(proposal, laws, reaches):
    independent = data_independent.epsilon(Repeated(EVENT, QUERIES), DELTA).epsilon
    assert proposal.epsilon < independent
    assert worst_of_passing(proposal, laws, reaches) <= (PASSING + TAIL) * DELTA


def test_what_is_claimed_after_a_refusal_holds_too(proposal, laws, reaches):
    whole = Composed((Repeated(EVENT, QUERIES), proposal.event()))
    epsilon = data_independent.epsilon(whole, REFUSED * DELTA).epsilon
    for pair in worlds():
        here, there = [
            outcomes(world, laws, chance(proposal, world, reaches))[..., 1] for world in pair
        ]
        assert hockey_stick(here, there, epsilon) <= REFUSED * DELTA
        assert hockey_stick(there, here, epsilon) <= REFUSED * DELTA


def test_labels_kept_back_unless_it_passes_are_private_in_the_usual_sense(proposal, laws, reaches):
    for pair in worlds():
        both = [outcomes(world, laws, chance(proposal, world, reaches)) for world in pair]
        here, there = [np.append(world[..., 0].ravel(), world[..., 1].sum()) for world in both]
        assert hockey_stick(here, there, proposal.withheld_epsilon) <= DELTA
        assert hockey_stick(there, here, proposal.withheld_epsilon) <= DELTA


def test_one_ballot_moves_the_shortfall_by_at_most_one(proposal, reaches):
    seen = set()
    for pair in worlds():
        here, there = (
            proposal.shortfall(np.sum([reaches[row] for row in world], axis=0)) for world in pair
        )
        assert abs(here - there) <= 1
        seen |= {here, there}
    assert len(seen) > 8


def test_a_shortfall_is_the_least_that_brings_every_look_within_its_cap(proposal):
    caps, random = proposal.caps, np.random.default_rng(0)
    for _ in range(200):
        looks = np.sort(random.uniform(0, 1.2 * caps[-1], len(caps))) ** random.uniform(0.5, 2)
        enough = (
            more
            for more in range(len(caps) + 1)
            if all(look <= cap for look, cap in zip(looks, caps[more:], strict=False))
        )
        assert proposal.shortfall(looks) == next(enough)


@settings(max_examples=20)
@given(
    st.floats(1.2, 40),
    st.floats(1e-9, 0.05),
    st.floats(0.01, 0.5),
    st.lists(st.floats(0, 0.3), min_size=60, max_size=60),
)
def test_the_proved_epsilon_is_the_one_that_the_chances_were_made_for(order, delta, refusal, rises):
    caps = np.cumsum(rises) / 10
    epsilon, chances = best_chances(caps, order, delta, refusal)
    if not np.isfinite(epsilon):
        return
    kept = tuple(caps[: len(chances) - 1].tolist())
    proposal = Proposal(
        delta=delta, order=order, caps=kept, chances=tuple(chances), unit=ONE_TEACHER
    )
    assert proposal.epsilon <= epsilon + 1e-5
    assert proposal.refusal == pytest.approx(refusal)
    assert Proposal.from_json(json.dumps(proposal.as_dict())) == proposal


def test_a_file_cannot_claim_more_than_its_numbers_prove(proposal):
    forged = {**proposal.as_dict(), "epsilon": 1e-3}
    assert Proposal.from_json(json.dumps(forged)).epsilon == proposal.epsilon
    bolder = {**proposal.as_dict(), "caps": [5 * cap + 1 for cap in proposal.caps]}
    assert Proposal.from_json(json.dumps(bolder)).epsilon > proposal.epsilon + 0.9


@pytest.mark.parametrize("change", [
    {"caps": [0.1]}, {"caps": [float("nan")] * 99}, {"delta": 1e-9}, {"order": 1.0}, {"chances": [CERTAIN] * 99},
])  # fmt: skip
def test_what_is_no_proposal_is_refused(proposal, change):
    record = {**proposal.as_dict(), **change}
    with pytest.raises((InvalidDataError, InvalidParameterError)):
        Proposal.from_json(json.dumps(record))


@pytest.mark.parametrize("chances", [(0, 0), (1, 2), (2.0, 1.0)])
def test_chances_that_are_none_are_refused(chances):
    with pytest.raises(InvalidParameterError, match="chances"):
        PublicationTest(chances, 1e-5, ONE_TEACHER)


def accountant(counts, event=None) -> Accountant:
    votes = VoteHistogram(np.asarray(counts), int(np.sum(counts[0])))
    adding = Accountant()
    adding.add(
        Repeated(event or NoisyArgmaxLaplace(5.0, votes.n_classes, ONE_TEACHER), len(counts)), votes
    )
    return adding


AGREEING = np.repeat([[57, 4, 1], [61, 1, 0]], 20, axis=0)


def test_votes_that_agree_bear_less_than_any_votes_must():
    proxy = accountant(AGREEING)
    proposal = propose(proxy, 1e-5)
    assert proposal.epsilon < 0.5 * proxy.data_independent(1e-5).epsilon
    assert proposal.shortfall(reach_of(proxy, proposal.order, len(proposal.caps)).reveal()) == 0
    assert proposal.refusal == pytest.approx(0.05)


def test_votes_that_disagree_bear_nothing_less():
    with pytest.raises(NothingToGainError, match="data-independent"):
        propose(accountant([[21, 21, 20]] * 5), 1e-5)


def test_an_event_that_cannot_be_bounded_is_refused():
    with pytest.raises(UnsupportedEventError):
        propose(accountant(AGREEING, ExponentialArgmax(5.0, 3, ONE_TEACHER)), 1e-5)


@pytest.mark.parametrize(("name", "value"), [("margin", 0.9), ("refusal", 0.6), ("queries", 0)])
def test_settings_out_of_range_are_named(name, value):
    with pytest.raises(InvalidParameterError, match=name):
        propose(accountant(AGREEING), 1e-5, **{name: value})
