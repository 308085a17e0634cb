"""Exact costs against enumeration, fifty digits, and every bound that has to lie above them."""

import pickle
import tracemalloc
from functools import cache, partial
from itertools import count
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mpf

from exact import (
    discrete_gaussian_masses,
    discrete_laplace_masses,
    histograms,
    label_probabilities,
    log_renyi_moment,
    neighbors,
    per_source,
)
from precise import LAWS, precise_cost
from tutelage.accounting import exact
from tutelage.accounting.data_independent import rdp
from tutelage.accounting.exact import ExactCosts, _worst_divergences
from tutelage.accounting.outcome_probabilities import MoveLaws
from tutelage.ballots import VoteHistogram
from tutelage.events import (
    ConfidenceCheck,
    Event,
    ExponentialArgmax,
    InteractiveCheck,
    NoisyArgmaxGaussian,
    NoisyArgmaxLaplace,
    PermuteAndFlipArgmax,
)
from tutelage.exceptions import InvalidDataError, NotPublishableError, UnsupportedEventError
from tutelage.privacy import ONE_TEACHER, NeighboringRelation, PrivacyUnit

ORDERS = np.array([1.5, 2.0, 8.0, 40.0])
ROW = PrivacyUnit("row", NeighboringRelation.CHANGE_ONE_ROW)


def enumerated_cost(counts, law_of, orders=ORDERS, *, enters=False) -> np.ndarray:
    """Return the largest divergence between the law at `counts` and at any neighbor, both ways, per order.

    If a ballot `enters`, a teacher abstained who may vote.
    """
    here = law_of(counts := np.array(counts))
    worst = np.zeros(len(orders))
    entered = [counts + one for one in np.eye(len(counts), dtype=int)] if enters else []
    for other in neighbors(counts, abstain=True) + entered:
        both = (here, there := law_of(other)), (there, here)
        for index, order in enumerate(orders):
            worst[index] = max(worst[index], *(log_renyi_moment(*laws, order) for laws in both))
    return worst / (orders - 1)


EVENTS = {
    "laplace": NoisyArgmaxLaplace,
    "gaussian": NoisyArgmaxGaussian,
    "exponential": ExponentialArgmax,
    "permute and flip": PermuteAndFlipArgmax,
}
MECHANISMS = {
    "laplace": (
        lambda m: NoisyArgmaxLaplace(1.7, m, ONE_TEACHER),
        discrete_laplace_masses(1.7, 120),
    ),
    "gaussian": (
        lambda m: NoisyArgmaxGaussian(1.4, m, ONE_TEACHER),
        discrete_gaussian_masses(1.4, 24),
    ),
}


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("kind", MECHANISMS)
def test_every_histogram_of_up_to_six_teachers_costs_what_enumeration_says(classes, kind):
    event, masses = MECHANISMS[kind]
    for teachers, silent in ((0, True), (1, False), (2, True), (4, False), (5, True)):
        all_votes = histograms(teachers, classes)
        found = ExactCosts(event(classes), VoteHistogram(all_votes, teachers + silent)).per_query(
            ORDERS
        )
        limit = rdp(event(classes), ORDERS).values
        expected = [
            enumerated_cost(counts, lambda n: label_probabilities(n, masses), enters=silent)
            for counts in all_votes
        ]
        assert found == pytest.approx(np.minimum(expected, limit), rel=1e-8, abs=1e-14)


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("kind", ["exponential", "permute and flip"])
def test_closed_forms_against_enumeration(kind, classes):
    event = EVENTS[kind](1.3, classes, ONE_TEACHER)

    @cache
    def law(*counts: int) -> np.ndarray:
        return np.array(LAWS[kind](counts, mpf(1.3)), dtype=float)

    for votes in (VoteHistogram(histograms(n, classes), n) for n in (1, 2, 5)):
        found = ExactCosts(event, votes).per_query(ORDERS)
        expected = [enumerated_cost(counts, lambda n: law(*n.tolist())) for counts in votes.counts]
        assert found == pytest.approx(
            np.minimum(expected, rdp(event, ORDERS).values), rel=1e-8, abs=1e-13
        )


def test_checks_against_enumeration():
    masses = discrete_gaussian_masses(2.5, 60)
    at_least = np.cumsum(masses[::-1])[::-1]
    offsets = np.array([0.3, -1.2, 2.0])

    def law_of(counts: np.ndarray, needed: np.ndarray) -> np.ndarray:
        passes = at_least[len(masses) // 2 + int(np.min(np.ceil(needed) - counts))]
        return np.array([passes, 1 - passes])

    votes = VoteHistogram(histograms(6, 3), 6)
    plain = ExactCosts(ConfidenceCheck(4.5, 2.5, 3, ONE_TEACHER), votes).per_query(ORDERS)
    expected = [
        enumerated_cost(counts, lambda n: law_of(n, np.full(3, 4.5))) for counts in votes.counts
    ]
    assert plain == pytest.approx(np.array(expected), rel=1e-8)
    asked = InteractiveCheck(4.5, 2.5, 3, ONE_TEACHER)
    interactive = ExactCosts(asked, votes, np.tile(offsets, (votes.n_queries, 1))).per_query(ORDERS)
    expected = [
        enumerated_cost(counts, lambda n: law_of(n, 4.5 + offsets)) for counts in votes.counts
    ]
    assert interactive == pytest.approx(np.array(expected), rel=1e-8, abs=1e-15)


@pytest.mark.parametrize("kind", EVENTS)
@settings(max_examples=30)
@given(data=st.data(), rare=st.booleans())
def test_no_move_costs_less_than_fifty_digits_say(kind, data, rare):
    """At a high order a label of probability e^−760, which no double holds, can be the whole cost."""
    most = 40 if not rare else 80 if kind in MECHANISMS else 10_000
    counts = data.draw(
        st.lists(st.integers(0, most), min_size=2, max_size=3 if rare else 4).filter(any)
    )
    source = data.draw(st.sampled_from(np.flatnonzero(counts).tolist()))
    target = data.draw(st.integers(0, len(counts)).filter(lambda target: target != source))
    scale = data.draw(st.floats(0.13, 1) if rare else st.floats(0.5, 12))
    order = 1 + 10 ** data.draw(st.floats(0, 5) if rare else st.floats(-2, 2.5))
    event, votes = (
        EVENTS[kind](scale, len(counts), ONE_TEACHER),
        VoteHistogram(np.array([counts]), sum(counts)),
    )
    before = None if kind in MECHANISMS else votes.counts
    found = per_source(ExactCosts(event, votes), np.array([order]), before)[0, source, 0]
    limit = rdp(event, np.array([order])).values[0]
    # What fifty digits leave of nothing.
    exact = precise_cost(kind, counts, scale, order, source, target) - 1e-40
    assert found >= min(exact, limit * (1 - 1e-12))


@pytest.mark.parametrize("event", [NoisyArgmaxLaplace, NoisyArgmaxGaussian])
def test_classes_put_aside_cost_at_least_what_they_would_and_hardly_more(event, monkeypatch):
    generator = np.random.default_rng(5)
    counts = generator.integers(0, 3, size=(6, 20))
    for row in counts:  # few classes far ahead of many
        row[generator.permutation(20)[:4]] += generator.integers(150, 400, 4)
    # A ballot may go to one far behind, which gains much.
    counts = np.vstack([counts, [500, 500] + [0] * 18])
    orders = np.append(ORDERS, [180.0, 250.0])
    votes = VoteHistogram(counts, int(counts.sum(axis=1).max()))
    aside = ExactCosts(event(9.0, 20, ONE_TEACHER), votes).per_query(orders)
    monkeypatch.setattr("tutelage.accounting.exact._ALL_KEPT", 20)
    whole = ExactCosts(event(9.0, 20, ONE_TEACHER), votes).per_query(orders)
    assert np.all(aside >= whole * (1 - 1e-9))
    assert aside[:, :3] == pytest.approx(whole[:, :3], rel=1e-3, abs=1e-9)


def test_an_error_that_may_change_the_sign_of_a_log_ratio_counts():
    ratio, slack = np.reshape([9e-10, -1e-18], (1, 1, 1, 2)), np.reshape([0, 9e-10], (1, 1, 1, 2))
    laws = MoveLaws(
        0 * slack, ratio, slack, np.full((1, 1, 1), True), np.zeros((1, 1), dtype=np.int64)
    )
    # Both are 9e-10, where φ is larger.
    truth = np.log1p(2 * (np.expm1(9e-4) - 1e6 * np.expm1(9e-10))) / (1e6 - 1)
    assert _worst_divergences(laws, np.array([1e6]))[0, 0, 0] >= truth


@pytest.mark.parametrize(("kind", "counts", "scale"), [
    ("exponential", [13, 3], 1 / 30),
    ("exponential", [9, 7, 1], 0.4),
    ("gaussian", [250, 0, 0], 0.5),
    ("gaussian", [130, 120, 0], 3.0),
])  # fmt: skip
def test_little_noise_and_a_clear_vote_keep_their_digits(kind, counts, scale):
    votes, orders = VoteHistogram(np.array([counts]), sum(counts)), np.array([1.5, 5.0])
    event = EVENTS[kind](scale, len(counts), ONE_TEACHER)
    found, limit = ExactCosts(event, votes).per_query(orders)[0], rdp(event, orders).values
    moves = [
        (a, b) for a in range(len(counts)) if counts[a] for b in range(len(counts) + 1) if a != b
    ]
    exact = [
        max(precise_cost(kind, counts, scale, order, *move) for move in moves) for order in orders
    ]
    assert np.all(found >= np.minimum(exact, limit * (1 - 1e-12)))
    assert found == pytest.approx(np.minimum(exact, limit), rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("place", ["_law_of", "_worst_divergences"])
def test_a_computation_that_was_interrupted_leaves_nothing_that_a_later_one_believes(
    place, monkeypatch
):
    monkeypatch.setattr(exact, "_NUMBERS_AT_ONCE", 1)  # every histogram by itself
    votes, uninterrupted, calls = VoteHistogram(histograms(5, 3), 5), getattr(exact, place), count()
    costs, others = (ExactCosts(NoisyArgmaxLaplace(1.7, 3, ONE_TEACHER), votes) for _ in range(2))

    def interrupted(*given: Any) -> Any:
        if next(calls) == 3:
            raise KeyboardInterrupt
        return uninterrupted(*given)

    with monkeypatch.context() as patch:
        patch.setattr(exact, place, interrupted)
        with pytest.raises(KeyboardInterrupt):
            costs.per_query(ORDERS)
    assert costs.per_query(ORDERS).tobytes() == others.per_query(ORDERS).tobytes()


def test_costs_cannot_be_stored():
    with pytest.raises(NotPublishableError):
        pickle.dumps(
            ExactCosts(
                NoisyArgmaxLaplace(2.0, 2, ONE_TEACHER), VoteHistogram(np.array([[3, 4]]), 7)
            )
        )


@pytest.mark.rest
@pytest.mark.parametrize("size", [1e-6, 0.2, 1e12])
@pytest.mark.parametrize("event", [*EVENTS.values(), partial(ConfidenceCheck, 150)])
def test_any_amount_of_noise_has_a_finite_cost_below_the_data_independent_one(event, size):
    votes = VoteHistogram(np.array([[200, 30, 20], [90, 80, 80], [250, 0, 0]]), 250)
    release = event(size, 3, ONE_TEACHER)
    costs = ExactCosts(release, votes).per_query(ORDERS)
    assert np.all((costs >= 0) & (costs <= rdp(release, ORDERS).values))


class _Unknown(Event):
    classes, unit = 2, ONE_TEACHER


class _Derived(NoisyArgmaxGaussian):  # pyright: ignore[reportGeneralTypeIssues]
    """Of clipped votes, say."""


@pytest.mark.parametrize(("event", "offsets", "error", "message"), [
    (_Unknown(), None, UnsupportedEventError, "_Unknown"),
    (_Derived(40.0, 2, ONE_TEACHER), None, UnsupportedEventError, "_Derived"),
    (NoisyArgmaxLaplace(2.0, 3, ONE_TEACHER), None, InvalidDataError, "3 classes, the votes have 2"),
    (NoisyArgmaxLaplace(2.0, 2, ROW), None, InvalidDataError, "different units"),
    (InteractiveCheck(2.0, 2.0, 2, ONE_TEACHER), None, InvalidDataError, "`offsets`"),
    (InteractiveCheck(2.0, 2.0, 2, ONE_TEACHER), np.array([[0, np.nan]]), InvalidDataError, "finite"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(event, offsets, error, message):
    with pytest.raises(error, match=message):
        ExactCosts(event, VoteHistogram(np.array([[3, 4]]), 7), offsets)


def test_the_laws_that_are_kept_take_the_memory_that_they_may_take_and_change_no_cost(monkeypatch):
    counts = np.random.default_rng(0).multinomial(2000, [0.5, 0.3, *[0.2 / 38] * 38], size=100)
    votes, event = VoteHistogram(counts, 2000), NoisyArgmaxGaussian(40.0, 40, ONE_TEACHER)
    every = ExactCosts(event, votes).per_query(ORDERS)
    monkeypatch.setattr("tutelage.accounting.exact._NUMBERS_KEPT", 2**16)
    tracemalloc.start()
    few = ExactCosts(event, votes)
    assert few.per_query(ORDERS).tobytes() == every.tobytes()
    assert tracemalloc.get_traced_memory()[0] < 2 * 8 * 2**16
    tracemalloc.stop()
    assert few.per_query(ORDERS).tobytes() == every.tobytes()
