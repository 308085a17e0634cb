"""A budget that is kept exactly for integer Gaussian noise: no strategy passes it, and a sum may fill it."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exact import discrete_gaussian_masses
from ledgers import fitting, new_ledger, rechained, require_room, reserve, settle
from test_vector_ballots import LABELS, PRIVATE, PUBLIC, model
from tutelage import Ledger
from tutelage._internal.typing import FloatArray
from tutelage.accounting.composition import epsilon_of_shifts, most_shifts, shift_mu_squared
from tutelage.accounting.data_independent import epsilon, mu_squared
from tutelage.accounting.filter import GaussianFilter, RenyiFilter
from tutelage.events import (
    CappedArgmaxGaussian,
    Composed,
    ConfidenceCheck,
    Event,
    NoisyArgmaxGaussian,
    NoisyArgmaxLaplace,
    NoisyBallot,
    NoisySumGaussian,
    PublicationTest,
    Repeated,
    SummedNoise,
)
from tutelage.exceptions import (
    BudgetExceededError,
    InvalidParameterError,
    LedgerTamperedError,
    UnsupportedEventError,
)
from tutelage.privacy import ONE_TEACHER

SUM = NoisySumGaussian(200.0, 100, 3, ONE_TEACHER)
QUERY = b"q" * 32


def delta_of(mu: float, at: float) -> Any:
    """Return the exact δ of μ-Gaussian differential privacy at ε."""
    m, e = mpmath.mpf(mu), mpmath.mpf(at)
    return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)


@given(target=st.floats(1e-4, 50), delta=st.floats(1e-12, 0.3))
def test_the_limit_is_the_largest_that_keeps_to_epsilon_and_delta(target, delta):
    limit = most_shifts(target, delta)
    with mpmath.workdps(60):
        apart = mpmath.mpf(limit) * 1e-10
        assert delta_of(math.sqrt(limit), mpmath.mpf(target) - 2 * apart) <= delta * mpmath.exp(
            -apart
        )
        assert delta_of(math.sqrt(limit * 1.001), target) > delta
    assert epsilon_of_shifts(limit, delta) == pytest.approx(target, rel=1e-4)


def worst_delta(
    limit: float, target: float, sigmas: tuple[float, ...], cost: Callable[[float], float]
) -> float:
    """Return the largest δ at ε of an adversary who chooses among noisy counts that one ballot moves by one.

    It knows the privacy loss so far and asks three times at most, so that the later noise depends on all that it saw. A
    count is asked only if what all of them cost keeps to the limit.
    """
    grid = np.arange(-8, 8, 0.002)  # of log ratios so far

    def best(left: float, asked: int) -> FloatArray:
        """Return max E_Q[(ratio·P/Q − e^ε)₊] for each log ratio."""
        values = np.maximum(np.exp(grid) - math.exp(target), 0)
        for sigma in sigmas if asked < 3 else ():
            if (rest := left - cost(sigma)) >= 0:
                masses = discrete_gaussian_masses(sigma, math.ceil(9 * sigma) + 1)
                # With a ballot and without.
                after, p, q = best(rest, asked + 1), masses[:-2], masses[1:-1]
                values = np.maximum(
                    values, np.interp(grid[:, None] + np.log(p / q), grid, after) @ q
                )
        return values

    return float(np.interp(0.0, grid, best(limit, 0)))


@pytest.mark.parametrize(
    ("target", "delta"),
    [
        (0.5, 0.01),
        *(pytest.param(*one, marks=pytest.mark.rest) for one in ((0.2, 1e-3), (1.0, 1e-4))),
    ],
)
def test_no_strategy_passes_the_budget_and_some_nearly_use_it_up(target, delta):
    def cost(sigma: float) -> float:
        return shift_mu_squared(sigma, 1)

    limit = most_shifts(target, delta)
    widths = np.arange(2.0, 60.0, 0.01).tolist()
    sigmas = tuple(
        next(width for width in widths if times * cost(width) <= limit) for times in (1, 2, 3)
    )
    assert 0.7 * delta < worst_delta(limit, target, sigmas, cost) <= delta * (1 + 1e-3)


def test_charges_add_up_over_kinds_repetitions_and_simulated_noise():
    distances: dict[Event, tuple[float, int]] = {
        SUM: (200.0, 400),
        replace(SUM, nonnegative=True): (200.0, 200),
        CappedArgmaxGaussian(40.0, 7, 3, ONE_TEACHER): (40.0, 14),
        NoisyArgmaxGaussian(40.0, 3, ONE_TEACHER): (40.0, 2),
        NoisyBallot(40.0, 3, ONE_TEACHER): (40.0, 2),
    }
    expected = {kind: shift_mu_squared(*moved) for kind, moved in distances.items()}
    assert {kind: mu_squared(kind) for kind in distances} == expected
    assert expected[SUM] == pytest.approx(400 / 200**2, rel=1e-4)
    capped = [*distances][2]
    assert mu_squared(Composed((Repeated(SUM, 5), capped))) == pytest.approx(
        5 * expected[SUM] + expected[capped]
    )
    limit = GaussianFilter(2.0, 1e-5)
    cost = limit.cost(SUM)
    assert cost >= expected[SUM] / limit.mu_squared * limit.capacity
    assert (
        limit.cost(Repeated(Composed((SUM, SUM)), 3))
        == 6 * cost
        == 6 * limit.cost(replace(SUM, simulated=True))
    )
    assert limit.fitting(SUM, 2 * cost) == (limit.capacity - 2 * cost) // cost
    with pytest.raises(UnsupportedEventError, match="costs more than any budget allows"):
        limit.cost(NoisySumGaussian(1.5, 1, 1, ONE_TEACHER))


@given(
    multiplier=st.floats(0.3, 1e6),
    norm=st.integers(99, 999),
    times=st.integers(1, 9),
    delta=st.floats(1e-9, 0.1),
)
def test_the_smallest_budget_holds_its_release_and_hardly_more(multiplier, norm, times, delta):
    event = Repeated(NoisySumGaussian(multiplier * norm, norm**2, 1, ONE_TEACHER), times)
    limit = GaussianFilter.holding(event, delta)
    assert limit.cost(event) <= limit.capacity
    assert limit.epsilon <= epsilon(event, delta).epsilon * (1 + 1e-4) + 1e-8


@pytest.fixture
def path(tmp_path: Path) -> Path:
    new_ledger(tmp_path / "a.ledger", 1.0, accounting="gaussian")
    return tmp_path / "a.ledger"


def test_the_file_says_how_the_budget_is_kept(path):
    ledger = Ledger.open(path)
    settle(ledger, reserve(ledger, SUM, 1), {QUERY: (1, 2, 3)}, SUM)
    state = Ledger.open(path).verify()
    assert (state.accounting, state.order, state.guarantee().order) == ("gaussian", None, None)
    assert "order" not in state.as_dict()
    assert state.spent == pytest.approx(mu_squared(SUM) / most_shifts(1.0, 1e-5))
    # What is charged is all that is spent: nothing is given back.
    assert ledger.export()[-1]["refund"] == 0


def test_the_budget_is_filled_and_never_passed(path):
    ledger = Ledger.open(path)
    for number in range(fitting(ledger, SUM)):
        settle(ledger, reserve(ledger, SUM, 1), {bytes([number]) * 32: (0, 0, 0)}, SUM)
    with pytest.raises(BudgetExceededError):
        reserve(ledger, SUM, 1)
    assert 0 <= ledger.verify().remaining < ledger.account.share_of(SUM)
    assert epsilon(ledger.history().event, 1e-5).epsilon <= 1.0
    assert epsilon(Composed((ledger.history().event, SUM)), 1e-5).epsilon > 1.0


@pytest.mark.parametrize("event", [
    ConfidenceCheck(3, 40.0, 10, ONE_TEACHER),
    NoisyArgmaxLaplace(40.0, 10, ONE_TEACHER),
    PublicationTest((2**40, 2**30), 1e-6, ONE_TEACHER),
    SummedNoise(NoisyArgmaxGaussian(400.0, 10, ONE_TEACHER), 3),
    SummedNoise(NoisySumGaussian(400.0, 100, 3, ONE_TEACHER), 3),
])  # fmt: skip
def test_other_noise_is_refused_in_one_sentence_and_nothing_is_spent(event, path):
    ledger = Ledger.open(path)
    beside = SUM if isinstance(event, SummedNoise) else NoisyArgmaxGaussian(40.0, 10, ONE_TEACHER)
    for call, asked in (
        (require_room, event),
        (reserve, event),
        (reserve, Composed((beside, event))),
    ):
        with pytest.raises(UnsupportedEventError):
            call(ledger, asked, 1)
    assert ledger.state().entries == 1


@pytest.mark.parametrize(("changes", "parameter"), [
    ({"accounting": "exact"}, "accounting"),
    ({"order": 8.0}, "order"),
    ({"suited_to": SUM}, "order"),
    ({"epsilon": 1e-9, "delta": 1e-15}, "epsilon"),
])  # fmt: skip
def test_a_budget_that_cannot_be_kept_is_refused(changes, parameter):
    terms = {"epsilon": 1.0, "delta": 1e-5, "unit": ONE_TEACHER, "accounting": "gaussian"}
    with pytest.raises(InvalidParameterError) as refused:
        Ledger.in_memory(**{**terms, **changes})
    assert refused.value.parameter == parameter


def test_a_rewritten_kind_of_budget_is_found(path):
    ledger = Ledger.open(path)
    settle(ledger, reserve(ledger, SUM, 1), {QUERY: (1, 2, 3)}, SUM)
    for other, message in (
        ("renyi", "budget does not hold what its epsilon and delta allow"),
        ("exact", "Entry 0"),
    ):
        rechained(path, {0: {"accounting": other, "order": RenyiFilter.suited_to(1.0, 1e-5).order}})
        with pytest.raises(LedgerTamperedError, match=message):
            Ledger.open(path)


def test_a_fit_uses_up_its_epsilon(tmp_path):
    fitted = model(epsilon=0.5, ledger=tmp_path / "a.ledger", noise=None).fit(
        PRIVATE, LABELS, X_public=PUBLIC
    )
    assert fitted.ledger_.accounting == "gaussian"
    for found in (fitted.epsilon_.epsilon, fitted.ledger_.spent):
        assert 0.9998 * 0.5 <= found <= 0.5
