"""Bounds within changed ballots: above the exact cost, and no further apart than one neighbor may move them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exact import histograms, neighbors
from tutelage.accounting import Accountant
from tutelage.accounting.argmax_bound import laplace_noise, positions_of
from tutelage.accounting.exact import ExactCosts
from tutelage.ballots import VoteHistogram
from tutelage.events import (
    ConfidenceCheck,
    ExponentialArgmax,
    InteractiveCheck,
    NoisyArgmaxGaussian,
    NoisyArgmaxLaplace,
    PermuteAndFlipArgmax,
    Repeated,
)
from tutelage.exceptions import NotPublishableError, UnsupportedEventError
from tutelage.privacy import ONE_TEACHER
from tutelage.publishing import reach_of
from tutelage.publishing.cost_envelope import _best_of, _majorants_of, reach

STEPS = 6


def bounds(
    event, counts, teachers: int, order: float = 6.0, steps: int = STEPS, offsets=None
) -> np.ndarray:
    """Return the bounds of each histogram by itself, shape (histograms, steps + 1)."""
    return np.stack(
        [reach(event, VoteHistogram(row[None], teachers), order, steps, offsets) for row in counts]
    )


def exact_costs(event, counts, teachers: int, order: float = 6.0, offsets=None) -> np.ndarray:
    return ExactCosts(event, VoteHistogram(counts, teachers), offsets).per_query(np.array([order]))[
        :, 0
    ]


def assert_smooth(values: np.ndarray, counts: np.ndarray) -> None:
    """Assert that bound j of each histogram is at most bound j + 1 of each of its neighbors."""
    place = {tuple(row): number for number, row in enumerate(counts)}
    pairs = 0
    for number, row in enumerate(counts):
        for other in neighbors(row, abstain=True):
            if tuple(other) in place:
                assert np.all(values[number, :-1] <= values[place[tuple(other)], 1:])
                pairs += 1
    assert pairs > len(counts)


EVENTS = {
    "Laplace, 3 classes": (NoisyArgmaxLaplace(1.3, 3, ONE_TEACHER), 6, 3),
    "Gaussian, 3 classes": (NoisyArgmaxGaussian(2.1, 3, ONE_TEACHER), 6, 3),
    "Laplace, 4 classes": (NoisyArgmaxLaplace(0.8, 4, ONE_TEACHER), 4, 4),
    "Laplace, mostly ties": (NoisyArgmaxLaplace(0.31, 3, ONE_TEACHER), 7, 3),
    "Laplace, 2 classes": (NoisyArgmaxLaplace(1.3, 2, ONE_TEACHER), 14, 2),
    "Gaussian, 2 classes": (NoisyArgmaxGaussian(2.1, 2, ONE_TEACHER), 14, 2),
    "exponential, 2 classes": (ExponentialArgmax(1.3, 2, ONE_TEACHER), 14, 2),
    "permute and flip, 2 classes": (PermuteAndFlipArgmax(1.3, 2, ONE_TEACHER), 14, 2),
    "check": (ConfidenceCheck(4.2, 1.7, 3, ONE_TEACHER), 6, 3),
    "interactive check": (InteractiveCheck(2.0, 1.7, 3, ONE_TEACHER), 6, 3),
}


@pytest.mark.parametrize(("event", "teachers", "classes"), EVENTS.values(), ids=EVENTS)
@pytest.mark.parametrize("order", [1.5, 6.0])
def test_it_bounds_the_exact_cost_and_moves_with_one_ballot_by_one_step(
    event, teachers, classes, order
):
    counts = histograms(teachers, classes, silent=True)
    offsets = np.array([[1.4, 0.2, 4.4]]) if isinstance(event, InteractiveCheck) else None
    values = bounds(event, counts, teachers, order, offsets=offsets)
    of_each = None if offsets is None else np.repeat(offsets, len(counts), axis=0)
    exact = exact_costs(event, counts, teachers, order, of_each)
    assert np.all(values[:, 0] >= exact)
    assert np.all(np.diff(values, axis=1) >= 0)
    assert_smooth(values, counts)
    everybody = counts.sum(axis=1) == teachers
    if order == 6.0:
        assert values[everybody, 0].sum() <= 1.45 * exact[everybody].sum()


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(0, 60), min_size=3, max_size=6),
    st.integers(0, 5),
    st.integers(0, 5),
    st.booleans(),
)
def test_larger_histograms_move_by_one_step_too(counts, taken, given_to, gaussian):
    row = np.array(counts)
    source, target = taken % len(row), given_to % len(row)
    other = row.copy()
    other[source] -= min(1, row[source])
    other[target] += 1
    teachers = int(max(row.sum(), other.sum())) + 1
    kind = NoisyArgmaxGaussian if gaussian else NoisyArgmaxLaplace
    event = kind(5.0, len(row), ONE_TEACHER)
    both = np.array([row, other])
    here, there = values = bounds(event, both, teachers, steps=30)
    assert np.all(here[:-1] <= there[1:])
    assert np.all(there[:-1] <= here[1:])
    assert np.all(values[:, 0] >= exact_costs(event, both, teachers))


@pytest.mark.rest
def test_wide_noise_is_followed_in_cells_that_only_add():
    event, coarse = (
        NoisyArgmaxGaussian(150.0, 3, ONE_TEACHER),
        np.array([[600, 300, 100], [340, 330, 330]]),
    )
    values = bounds(event, coarse, 1000, order=3.0, steps=40)
    exact = exact_costs(event, coarse, 1000, 3.0)
    assert np.all(values[:, 0] >= exact)
    assert np.all(values[:, 0] <= 1.6 * exact)
    moved = bounds(event, coarse + np.array([[-1, 1, 0]]), 1000, order=3.0, steps=40)
    assert np.all(values[:, :-1] <= moved[:, 1:])
    assert np.all(moved[:, :-1] <= values[:, 1:])


def test_bounds_of_many_queries_add_up():
    counts = np.array([[40, 5, 5], [20, 20, 10], [40, 5, 5]])
    event = NoisyArgmaxLaplace(4.0, 3, ONE_TEACHER)
    together = reach(event, VoteHistogram(counts, 50), 6.0, 5)
    assert together == pytest.approx(bounds(event, counts, 50, steps=5).sum(axis=0), rel=1e-12)


def test_more_than_two_classes_need_noise_that_can_be_followed():
    votes = VoteHistogram(np.array([[5, 3, 2]]), 10)
    with pytest.raises(UnsupportedEventError, match="data-independent"):
        reach(ExponentialArgmax(1.0, 3, ONE_TEACHER), votes, 4.0, 3)


def test_an_accountant_guards_what_it_knows_of_the_reach():
    votes = VoteHistogram(np.array([[5, 3, 2]]), 10)
    accountant = Accountant()
    accountant.add(Repeated(NoisyArgmaxLaplace(2.0, 3, ONE_TEACHER), 1), votes)
    guarded = reach_of(accountant, 4.0, 3)
    assert "0." not in repr(guarded)
    with pytest.raises(NotPublishableError):
        guarded.__reduce__()
    assert guarded.reveal().shape == (4,)


def test_noise_beyond_the_table_counts_where_the_bound_is_largest():
    """With very many classes, the largest noisy count often lies above the table."""
    noise, classes = laplace_noise(1.3, 6.0), 1_000_000
    assert noise is not None
    majorants = _majorants_of(noise, positions_of(noise), 6.0)
    tied = np.zeros((1, classes), dtype=int)
    value, mass = _best_of(noise, tied)
    below = noise.here.sum() ** classes
    assert mass.sum() == pytest.approx(1)
    assert mass[0, -1] == pytest.approx(1 - below)
    assert mass[0, -1] > 1e-3
    far_ahead = value - 10 * noise.half_width
    assert majorants.rounded_up(far_ahead)[0, -1] == majorants.last
