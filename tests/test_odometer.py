"""An ε at every moment: no adversary who stops when it pleases, computed exactly, exceeds δ; planted faults do."""

import copy
import math
import pickle
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import product

import msgspec
import numpy as np
import pytest

from blobs import LABELS, PRIVATE, PUBLIC
from ledgers import admit, intend, new_ledger, reserve, settle
from test_cohorts import EVENTS, UNIT
from tutelage import PATEClassifier
from tutelage.accounting import data_independent
from tutelage.accounting.composition import pure_dp_composition
from tutelage.accounting.filter import (
    Accounting,
    GaussianFilter,
    RenyiFilter,
    _conversion,
    _orders_of_odometer,
    epsilon_so_far,
    limit_of,
)
from tutelage.events import (
    Composed,
    ConfidenceCheck,
    NoisyArgmaxGaussian,
    NoisySumGaussian,
    RandomizedResponse,
    Repeated,
    count_releases,
)
from tutelage.privacy import ONE_TEACHER

Counts = tuple[int, ...]


def worst(
    epsilon_of: Callable[[Counts], float], sizes: tuple[int, ...], most: Counts, unit: float
) -> float:
    """Return the most by which any adversary's P(S) exceeds E_Q[1_S e^ε], with ε as it is when the adversary stops.

    Its steps are randomized responses of loss ±size·unit. It chooses each, and when to stop, by what it has seen.
    """
    reach = sum(size * times for size, times in zip(sizes, most, strict=True))
    losses, best = unit * np.arange(-reach, reach + 1), dict[Counts, np.ndarray]()
    for counts in sorted(product(*(range(times + 1) for times in most)), key=sum, reverse=True):
        value = np.maximum(0, -np.expm1(np.minimum(0, epsilon_of(counts) - losses)))
        for kind, size in enumerate(sizes):
            after = best.get(tuple(count + (kind == place) for place, count in enumerate(counts)))
            if after is not None:
                right = 1 / (1 + math.exp(-size * unit))
                up, down = (
                    np.r_[after[size:], np.full(size, after[-1])],
                    np.r_[np.zeros(size), after[:-size]],
                )
                value = np.maximum(value, right * up + (1 - right) * down)
        best[counts] = value
    return float(best[(0,) * len(sizes)][reach])


def response(size: float) -> RandomizedResponse:
    return RandomizedResponse(epsilon=size, classes=2, unit=ONE_TEACHER)


def released(counts: Counts, sizes: tuple[int, ...], unit: float) -> Counter:
    return Counter(
        {response(size * unit): count for size, count in zip(sizes, counts, strict=True)}
    )


SETTINGS = [(1.0, 1e-5, 0.05, 100), (3.0, 1e-2, 0.1, 300)]


@pytest.mark.parametrize(("epsilon", "delta", "unit", "most"), SETTINGS)
def test_no_adversary_exceeds_delta_by_choosing_when_to_stop(epsilon, delta, unit, most):
    limit, orders = limit_of(epsilon, delta, Accounting.RENYI), _orders_of_odometer(epsilon, delta)
    costs = data_independent.rdp_of_three_outcomes(response(unit), orders).values

    def found(odometer: Callable[[int], float]) -> float:
        values = [odometer(number) for number in range(most + 1)]
        return worst(lambda counts: values[counts[0]], (1,), (most,), unit) / delta

    assert 0.9 < found(lambda number: epsilon_so_far(limit, released((number,), (1,), unit))) <= 1
    # Planted: δ is not divided among the orders; steps are not all counted; the ε of the steps that were taken.
    assert found(lambda number: float(np.min(number * costs + _conversion(orders, delta)))) > 1.5
    assert (
        found(lambda number: epsilon_so_far(limit, released((number * 9 // 10,), (1,), unit))) > 1.5
    )
    assert found(lambda number: pure_dp_composition(unit, number, delta)) > 4


def test_no_adversary_exceeds_delta_by_choosing_its_steps():
    sizes, most, delta = (1, 4), (60, 8), 1e-4
    limit = limit_of(2.0, delta, Accounting.RENYI)
    values = {
        counts: epsilon_so_far(limit, released(counts, sizes, 0.1))
        for counts in product(*(range(times + 1) for times in most))
    }
    assert 0.9 < worst(values.__getitem__, sizes, most, 0.1) / delta <= 1
    left_out = {counts: values[counts[0], 0] for counts in values}
    assert worst(left_out.__getitem__, sizes, most, 0.1) / delta > 10


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-5), (8.0, 1e-5)])
def test_it_is_little_more_than_the_smallest_filter_would_be(epsilon, delta):
    one = NoisySumGaussian(sigma=1000 / epsilon, norm_squared=1, dimension=1, unit=ONE_TEACHER)
    for kind, filter_, most in (
        (Accounting.RENYI, RenyiFilter, 1.12),
        (Accounting.GAUSSIAN, GaussianFilter, 1.205),
    ):
        limit = limit_of(epsilon, delta, kind)
        for share in (1 / 24, 1 / 4, 1):
            sums = Repeated(one, int(limit.fitting(one, 0) * share))
            assert (
                1
                <= epsilon_so_far(limit, count_releases([sums]))
                / filter_.holding(sums, delta).epsilon
                <= most
            )


CHECK = ConfidenceCheck(sigma=200.0, threshold=100, classes=3, unit=ONE_TEACHER)


def test_a_state_says_what_was_released_until_then_and_not_what_a_check_did_not_need():
    kept = new_ledger()
    vote = NoisyArgmaxGaussian(sigma=100.0, classes=3, unit=ONE_TEACHER)
    empty = kept.state()
    open_step = reserve(kept, Composed((CHECK, vote)), 4)
    most = kept.state()
    settle(kept, open_step, {b"q" * 32: (1,)}, Composed((Repeated(CHECK, 4), vote)))
    after = kept.state()
    assert most.so_far == epsilon_so_far(
        kept.limit, count_releases([Repeated(Composed((CHECK, vote)), 4)])
    )
    assert (
        after.so_far
        == epsilon_so_far(kept.limit, count_releases([Repeated(CHECK, 4), vote]))
        < (most.so_far or 0)
    )
    assert after.so_far == kept.verify().so_far == kept.history().state.so_far
    assert pickle.loads(pickle.dumps(most)).so_far == copy.deepcopy(most).so_far == most.so_far  # noqa: S301
    assert empty.so_far == empty.as_dict()["so_far"] == 0
    reserve(kept, replace(vote, simulated=True), 1)
    assert (kept.state().so_far, "so_far" in kept.state().as_dict()) == (None, False)


def test_with_cohorts_it_is_of_those_who_took_part_most():
    kept = new_ledger(unit=UNIT)
    event = EVENTS[2]
    for name in ("1", "2", "3"):
        intend(kept, name, None)
        admit(kept, name, "question", ["p", name], event)
        settle(kept, reserve(kept, event, 1), {name.encode() * 32: (7,)}, event)
    assert kept.state().so_far == epsilon_so_far(kept.limit, count_releases([Repeated(event, 3)]))
    assert kept.history().until(6).so_far == epsilon_so_far(
        kept.limit, count_releases([Repeated(event, 2)])
    )


def test_a_card_shows_it_where_it_is_below_the_budget(tmp_path):
    given = {"epsilon": 0.5, "budget": 2.0, "ledger": tmp_path / "a.ledger", "unit": "row"}
    card = (
        PATEClassifier(**given, classes=range(3))
        .fit(PRIVATE, LABELS, X_public=PUBLIC, insist=True)
        .card()
    )
    assert card.budget.so_far == pytest.approx(0.6, abs=0.1)
    pages = [
        msgspec.structs.replace(
            card, budget=msgspec.structs.replace(card.budget, so_far=more)
        ).as_markdown()
        for more in (0.6, 2.1)
    ]
    assert ["Released so far" in page for page in pages] == [True, False]
